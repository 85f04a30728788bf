"""`kbslurm site init`: a first cluster file, from what Slurm reports on its login node."""

from __future__ import annotations

import getpass
import shutil
import socket
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, BackendRefused, BackendTrouble, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.backends.slurm.doctor.site_file import Kind

BUDGET_WAIT_S = 120.0


def site_init(
    name: Annotated[str, typer.Option("--name", help="The site's name (default: the cluster's name).")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing it.")] = None,
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
    rest: Annotated[
        str, typer.Option("--rest", metavar="URL", help="Ask slurmrestd at this address instead of commands here.")
    ] = "",
    token_command: Annotated[
        str, typer.Option("--token-command", help="What prints its token (else it is in SLURM_JWT).")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take a few of each GPU type.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
) -> int:
    """Write a first cluster file from what Slurm reports here. Run it on the login node, then review its lines with a
    `?`.

    Of each GPU type it takes a few, at most four; on a terminal it asks how many."""
    from kbslurm import wiring
    from kbslurm.backends.slurm.doctor import site_file, survey
    from kbslurm.config import sites
    from kbslurm.domain.site import Submission

    if out is not None and out.exists() and not force:
        raise Invalid(f"{out} already exists", hint="Choose another name, or pass --force.")
    submit = Submission(via="rest", url=rest, token_command=token_command) if rest else None
    program = shutil.which("apptainer") or shutil.which("singularity") or ""
    try:
        commands = wiring.commands_here(
            configuration(), name or (out.stem if out else "here"), bin_dir=bin_dir, submit=submit, wait_s=BUDGET_WAIT_S
        )
        found = survey.survey(commands, user=getpass.getuser(), program=program)
    except BackendRefused:
        raise
    except BackendTrouble as error:
        if rest:
            raise
        raise NotFound(
            "Slurm", f"on {socket.gethostname()}", hint=f"Use a login node, or --bin-dir ({error.message})."
        ) from None
    chosen = site_file.chosen_kinds(found, tuple(gpu or ()))
    counts = {kind.name: count for kind in chosen} if count is not None else {}
    if count is None and out is not None and not (as_json or yes) and sys.stdin.isatty():
        counts = {kind.name: _asked_count(kind) for kind in chosen}
    wishes = site_file.Wishes(
        name=name or (out.stem if out else ""),
        shared_root=str((shared_root or Path.home() / "kbslurm").absolute()),
        image_dir=str(image_dir.absolute()) if image_dir else "",
        image=image,
        checked_on=datetime.now(UTC).date().isoformat(),
        bin_dir=bin_dir,
        rest=rest,
        token_command=token_command,
        gpus=tuple(gpu or ()),
        counts=counts,
    )
    text = site_file.toml_of(found, wishes)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(f"{out.parent} can't be created: {error.strerror}", hint="Choose another --out.") from None
    with tempfile.TemporaryDirectory(prefix="kb-site-", dir=out.parent if out else None) as folder:
        fresh = Path(folder) / (out.name if out else "site.toml")
        fresh.write_text(text, encoding="utf-8")
        site = sites.load(fresh)  # what we write must pass our own check
        if out is not None:
            fresh.replace(out)
    if as_json:
        where = None if out is None else str(out)
        printing.as_json({"site": site.name, "gpus": sorted(site.gpus), "file": where, "toml": text})
        return EXIT_OK
    if out is None:
        print(text, end="")
        return EXIT_OK
    printing.say(f"{out} written; review the lines with a ?")
    printing.say(f"then: kbslurm site check {out}; kbslurm doctor --site {out} --live")
    return EXIT_OK


def _asked_count(kind: Kind) -> int:
    """How many GPUs of this type may be ours, from whoever sits at the terminal."""
    where = f"{kind.name}: {kind.there} in partition {kind.partition.name}"
    question = f"{where}. How many may the competition use at once?"
    while True:
        asked: int = typer.prompt(question, default=kind.proposed, type=int, err=True)
        if 1 <= asked <= kind.there:
            return asked
        typer.echo(f"between 1 and {kind.there}", err=True)
