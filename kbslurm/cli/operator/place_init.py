"""`kbslurm place init …`: describe a new place. Each kind asks, looks at what can be seen from here, writes TOML."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.chosen import chosen
from kbslurm.cli.context import lenient_configuration
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take what is given and found.")]
Stdout = Annotated[bool, typer.Option("--stdout", help="Only print the TOML; write nothing.")]
PROBE_S = 20.0
DEVICE = re.compile(r"GPU \d+: (.+?) \(UUID")


def slurm(
    name: Annotated[str, typer.Option("--name", help="The site's name.")] = "",
    shared_root: Annotated[
        Path | None, typer.Option("--shared-root", help="A folder shared by login and compute nodes.")
    ] = None,
    image_dir: Annotated[Path | None, typer.Option("--image-dir", help="The folder of the images.")] = None,
    image: Annotated[str, typer.Option("--image", help="The image for every GPU type, below --image-dir.")] = "",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Only these GPU types.")] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="How many GPUs of each type may be used at once.")
    ] = None,
    bin_dir: Annotated[str, typer.Option("--bin-dir", help="The folder of Slurm's commands, if not in PATH.")] = "",
    rest: Annotated[str, typer.Option("--rest", metavar="URL", help="Ask slurmrestd at this address instead.")] = "",
    yes: Yes = False,
    stdout: Stdout = False,
    as_json: Json = False,
) -> int:
    """Write a cluster file from what Slurm reports here. It goes into site-configs/ next to kbslurm.toml.

    No file is overwritten.
    The same as kbslurm site init, which has more options. Run it on the login node, then review its lines with a `?`.
    """
    from kbslurm.cli.operator.site_init import site_init

    name = name or ("" if stdout else asked("--name", "The site's name", "", yes=yes))
    config = lenient_configuration()
    folder = config.sites_dir or (config.file.parent if config.file else Path.cwd()) / "site-configs"
    done = site_init(
        name=name, out=None if stdout else folder / f"{name}.toml", shared_root=shared_root, image_dir=image_dir,
        image=image, gpu=gpu, count=count, bin_dir=bin_dir, rest=rest, yes=yes, as_json=as_json,
    )  # fmt: skip
    if not stdout and not as_json and name not in config.sites.use:
        printing.say(f'then put "{name}" into [sites] use of kbslurm.toml, and: kbslurm place reload')
    return done


def local(
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", metavar="TYPE=SLOTS", help="How many runs at once, by GPU type.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="This machine's name as a place.")] = "",
    staff_only: Annotated[bool, typer.Option("--staff-only", help="Only the hosts' own submissions run here.")] = False,
    yes: Yes = False,
    stdout: Stdout = False,
    as_json: Json = False,
) -> int:
    """Make this machine a place, in kbslurm.toml. Without --gpu, one run per GPU that nvidia-smi lists."""
    found = _devices()
    slots = _slots(gpu) if gpu else {one: many for one, many in found.items() if _wanted(one, many, yes=yes)}
    if not slots and not gpu:
        text = asked("--gpu", "No GPU was found here. GPU type to play", "CPU", yes=yes)
        slots = {text: 1}
    keys: dict[str, Any] = {"slots": slots}
    keys |= {"name": name} if name else {}
    keys |= {"staff_only": True} if staff_only else {}
    next_ = ["kbslurm place check --all"]
    return _finish(("daemon", "local"), keys, stdout=stdout, as_json=as_json, seen=_said(found), then=next_)


def github(
    repository: Annotated[str, typer.Option("--repository", help="The private repository: owner/name.")] = "",
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", metavar="TYPE=LABEL,…", help="The runner's labels, by GPU type.")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, help="How many runs at once, of each type.")] = 4,
    branch: Annotated[str, typer.Option("--branch", help="The branch with workflow and harness.")] = "main",
    yes: Yes = False,
    stdout: Stdout = False,
    as_json: Json = False,
) -> int:
    """Make a GitHub repository's runners a place, in kbslurm.toml. With GITHUB_TOKEN set, it lists their labels."""
    from kbslurm.cli.operator.github import runners

    repository = repository or asked("--repository", "The private repository, owner/name", "", yes=yes)
    seen = runners(lenient_configuration(), repository)
    if seen and not yes and _is_terminal():
        typer.echo(f"runners there: {'; '.join(seen)}", err=True)
    wanted = gpu or [asked("--gpu", "A GPU type and its runner's labels, TYPE=LABEL,LABEL", "", yes=yes)]
    labels = {kind: _words(text, "--gpu H100=self-hosted,h100") for kind, text in _pairs(wanted)}
    keys: dict[str, Any] = {"repository": repository, "gpus": labels}
    keys |= {"slots": dict.fromkeys(labels, slots)} if slots != 4 else {}
    keys |= {"branch": branch} if branch != "main" else {}
    missing = [one for one in ("GITHUB_TOKEN", "KBSLURM_RUN_KEY") if one not in lenient_configuration().secrets]
    then = [f"set {' and '.join(missing)} for the service"] if missing else []
    then += ["kbslurm github install DIR in a working copy of the repository", "kbslurm place check github"]
    return _finish(("github",), keys, stdout=stdout, as_json=as_json, seen=seen, then=then)


def modal(
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="A GPU type; Modal's name for it.")] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, help="How many runs at once, of each type.")] = 4,
    yes: Yes = False,
    stdout: Stdout = False,
    as_json: Json = False,
) -> int:
    """Make Modal a place, in kbslurm.toml. With its token set, it checks whether the token is accepted."""
    from kbslurm.cli.operator.modal import accepted

    kinds = gpu or _words(asked("--gpu", "GPU types, separated by commas", "H100", yes=yes), "--gpu H100")
    then = [] if _has_modal() else ["set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET for the service"]
    then += ["kbslurm modal deploy", "kbslurm place check modal"]
    keys = {kind: {"slots": slots} for kind in kinds}
    return _finish(
        ("modal", "gpus"), keys, stdout=stdout, as_json=as_json, seen=accepted(lenient_configuration()), then=then
    )


def _finish(
    table: Sequence[str],
    keys: Mapping[str, Any],
    *,
    stdout: bool,
    as_json: bool,
    seen: Sequence[str],
    then: Sequence[str],
) -> int:
    """Add it to the configuration in use, or to a kbslurm.toml here; or only print it."""
    from kbslurm.config import toml_addition
    from kbslurm.config.settings import FILE_NAME

    file = lenient_configuration().file or chosen.config or Path.cwd() / FILE_NAME
    try:
        before = "" if stdout or not file.exists() else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Invalid(f"{file} can't be read", hint="Check its permissions.") from None
    text = toml_addition.added(before, file, table, keys)
    if not stdout:
        toml_addition.written(file, text)
    addition = toml_addition.added("", file, table, keys)
    if as_json:
        printing.as_json(
            {"file": None if stdout else str(file), "toml": addition, "found": list(seen), "next": list(then)}
        )
    elif stdout:
        print(addition, end="")
    else:
        printing.say(f"{printing.path(file)} has now:")
        printing.say(addition.rstrip("\n"))
        for step in [*then, "kbslurm place reload, if the service runs"]:
            printing.say(f"then: {step}")
    return EXIT_OK


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def asked(option: str, question: str, usual: str, *, yes: bool) -> str:
    """What somebody at the terminal says; without one, or with --yes, the usual value, or Invalid if there is none."""
    if not yes and _is_terminal():
        answer: str = typer.prompt(question, default=usual or None, err=True)
        return answer.strip()
    if usual and yes:
        return usual
    raise Invalid(f"{option} is missing, and there is nobody to ask", hint=f"Pass {option}, or use a terminal.")


def _wanted(kind: str, many: int, *, yes: bool) -> bool:
    if yes or not _is_terminal():
        return True
    return typer.confirm(f"Use {many} × {kind}?", default=True, err=True)


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    found = [text.partition("=") for text in texts]
    for text, (kind, sep, value) in zip(texts, found, strict=True):
        if not (kind.strip() and sep and value.strip()):
            raise Invalid(f"{text!r} isn't TYPE=…", hint="Write it like H100=1 or H100=self-hosted,h100.")
    return [(kind.strip(), value.strip()) for kind, _, value in found]


def _slots(texts: Sequence[str]) -> dict[str, int]:
    found = {}
    for kind, text in _pairs(texts):
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 10_000):
            raise Invalid(f"{text[:20]!r} isn't a number of slots", hint="Write it like --gpu H100=1.")
        found[kind] = int(text)
    return found


def _words(text: str, example: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise Invalid("nothing is named", hint=f"Write it like {example}.")
    return words


def _devices() -> dict[str, int]:
    """The GPUs of this machine by type, as nvidia-smi lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(Counter(_type_of(one) for one in DEVICE.findall(done.stdout)))


def _type_of(device: str) -> str:
    """A GPU type for a device: `H100` of `NVIDIA H100 80GB HBM3`."""
    words = [word for word in re.split(r"[\s-]+", device) if word.upper() not in ("NVIDIA", "TESLA", "GEFORCE")]
    return next(
        (word for word in words if re.fullmatch(r"[A-Z]{1,3}\d{1,4}[A-Z]?", word)), "-".join(words[:2]) or "GPU"
    )


def _said(found: Mapping[str, int]) -> list[str]:
    return [f"{many} × {kind}" for kind, many in found.items()]


def _has_modal() -> bool:
    return {"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"} <= set(lenient_configuration().secrets)
