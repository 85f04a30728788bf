"""The job script of an attempt: a template of the site's, filled with quoted values. Pure but for reading templates.

What a job does is in the harness's supervise.sh, the same for all; a script holds its digest and what differs.
It contains no secrets and no user code, since Slurm shows scripts to others. Every `{{ value }}` in a template is
shell-quoted by the environment itself, so that no template can forget it; an unknown name is an error.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import jinja2

from kbslurm.domain.apptainer import VENDOR_OPTIONS, hardened, quoted
from kbslurm.domain.keepers import END_S, Keeper, beyond_s
from kbslurm.domain.profiler import around
from kbslurm.domain.run import JobName, KeeperName, Work
from kbslurm.domain.site import PERSON_ACCOUNT, GpuType, Site
from kbslurm.errors import Misconfigured
from kbslurm_eval.shared.wire import Mode

LINK = "/link"
SUPERVISOR = "supervise.sh"
KEEPER = "keep.sh"
KEEPER_MB = 256  # a keeper's own script, beside the memory of the step in it
MARGIN_S = 60.0
JUDGE_MEMORY_BYTES = 1 << 30
MIB = 1 << 20
_VARIABLE = re.compile(r"\$\{?([A-Z_][A-Z0-9_]*)\}?")
_FORBIDDEN = re.compile(r"[\n\r\0]")


class ShellText(str):
    """Text that is already shell code and must not be quoted again."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Charged:
    """Who pays for a job where each person's own account does."""

    person: str
    account: str | None


def harness_files(eval_dir: Path) -> list[Path]:
    """What a harness is made of, sorted: its sources, the supervisor of its jobs, and what a keeper does."""
    shell = (eval_dir / SUPERVISOR, eval_dir / KEEPER)
    return sorted(path for path in (*eval_dir.rglob("*.py"), *shell) if path.is_file())


def harness_digest(eval_dir: Path) -> str:
    """This harness's name: a digest of its files."""
    digest = hashlib.sha256()
    for path in harness_files(eval_dir):
        digest.update(path.relative_to(eval_dir).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def harness_folder(site: Site, eval_dir: Path) -> PurePath:
    """The harness's path on the site's shared root, staged or not."""
    return site.paths.shared_root / f"eval-{harness_digest(eval_dir)[:16]}"


def supervisor_digest(eval_dir: Path, program: str = SUPERVISOR) -> str:
    """What a job holds the supervisor's bytes to before it runs them: their sha256."""
    return hashlib.sha256((eval_dir / program).read_bytes()).hexdigest()


def attempts_folder(site: Site) -> Path:
    """The folder of the attempts' directories: the `root` of this site's place."""
    return Path(site.paths.shared_root) / "attempts"


def keepers_folder(site: Site) -> Path:
    """The folder of the keepers' directories."""
    return Path(site.paths.shared_root) / "keepers"


def script_writer(site: Site, *, templates: Path, eval_dir: Path) -> Callable[[Work, Path, float], str]:
    """A Place's script function: the job script for (work, attempt directory, time limit)."""
    harness, supervisor = harness_folder(site, eval_dir), supervisor_digest(eval_dir)

    def write(work: Work, directory: Path, time_limit_s: float) -> str:
        return script_for(
            site,
            name=work.attempt.name,
            gpu=work.attempt.gpu,
            directory=directory,
            harness=harness,
            supervisor=supervisor,
            time_limit_s=time_limit_s,
            memory_bytes=work.problem.memory_bytes,
            gpus=work.problem.world_size,
            avoid_nodes=work.avoid_nodes,
            charged=Charged(person=work.person, account=work.cluster_account),
            mode=work.mode,
            templates=templates,
        )

    return write


def script_for(
    site: Site,
    *,
    name: JobName,
    gpu: str,
    directory: PurePath,
    harness: PurePath,
    supervisor: str,
    time_limit_s: float,
    memory_bytes: int,
    templates: Path,
    avoid_nodes: tuple[str, ...] = (),
    gpus: int = 1,
    charged: Charged | None = None,
    mode: Mode | None = None,
) -> str:
    """The sbatch script of one attempt at this site, on this many GPUs. The same values give the same text.

    `charged`: whose account pays, where each person's own does. `mode`: a test may be shorter than `min_time`.
    """
    kind = site.gpus.get(gpu)
    if kind is None:
        raise Misconfigured(f"site {site.name} has no GPU type {gpu}", fix=f"Add [gpus.{gpu}] to its file.")
    if gpus > 1:
        kind = _several(site, kind, gpus)
    kind = charging(site, kind, charged)
    limit_s = math.ceil(time_limit_s + site.start_s)
    values: dict[str, Any] = {
        **_usual(site, kind, name, directory, harness, supervisor),
        "keeper": None,
        "program": SUPERVISOR,
        "minutes": _minutes(site, kind, limit_s, mode),
        "limit_s": limit_s,
        "memory": f"{_memory_mb(site, kind, memory_bytes, gpus)}M",
        "avoid_nodes": ",".join(avoid_nodes),
        "image_digest": kind.image_digest,
        "container": _container(site),
        "gpu_option": " ".join(VENDOR_OPTIONS[kind.vendor]),
        "whole": "yes" if kind.whole else "",
        "profiler": "" if kind.profiler == "none" else kind.profiler,
        "profile": " ".join(around(kind.profiler, LINK)),
        "scratch": ShellText(node_text(site.paths.node_scratch)) if site.paths.node_scratch else "",
        "scratch_needs": " ".join(_VARIABLE.findall(site.paths.node_scratch)),
    }
    return _rendered(values, site, templates)


def keeper_writer(site: Site, *, templates: Path, eval_dir: Path) -> Callable[[Keeper, Path], str]:
    """A Place's keeper_script function: the job script of (keeper, its directory)."""
    harness, program = harness_folder(site, eval_dir), supervisor_digest(eval_dir, KEEPER)

    def write(keeper: Keeper, directory: Path) -> str:
        return keeper_script_for(
            site,
            name=keeper.name,
            gpu=keeper.gpu,
            directory=directory,
            harness=harness,
            program=program,
            idle_s=keeper.idle_s,
            life_s=keeper.life_s,
            avoid_nodes=keeper.avoid_nodes,
            templates=templates,
        )

    return write


def keeper_script_for(
    site: Site,
    *,
    name: KeeperName,
    gpu: str,
    directory: PurePath,
    harness: PurePath,
    program: str,
    idle_s: float,
    life_s: float,
    templates: Path,
    avoid_nodes: tuple[str, ...] = (),
) -> str:
    """The sbatch script of a keeper: the request of an attempt's job, for longer, and a little more memory. Each
    attempt's step in it gets what its job would have got. The same values give the same text."""
    kind = site.gpus.get(gpu)
    if kind is None:
        raise Misconfigured(f"site {site.name} has no GPU type {gpu}", fix=f"Add [gpus.{gpu}] to its file.")
    if kind.memory_mb is None or kind.charges_people:
        raise Misconfigured(
            f"{gpu} at {site.name} can't be held for runs to come: its jobs differ in memory or in who pays",
            fix=f"Set memory and one account for all below [gpus.{gpu}] of the site's file.",
        )
    options = [f"--cpus-per-task={kind.cpus}", f"--mem={kind.memory_mb}M"]
    options += [kind.request] if kind.request else []
    options += [f"--gpu-freq={kind.gpu_freq}"] if kind.gpu_freq else []
    values: dict[str, Any] = {
        **_usual(site, kind, name, directory, harness, program),
        "program": KEEPER,
        "minutes": math.ceil(life_s / 60),
        "memory": f"{kind.memory_mb + KEEPER_MB}M",
        "avoid_nodes": ",".join(avoid_nodes),
        "keeper": {
            "attempts": str(attempts_folder(site)),
            "srun": f"{site.slurm.bin_dir.rstrip('/')}/srun" if site.slurm.bin_dir else "srun",
            "step": " ".join(map(quoted, options)),
            "step_mb": kind.memory_mb,
            "idle_s": math.ceil(idle_s),
            "life_s": math.ceil(life_s),
            "end_s": math.ceil(END_S),
            "last_s": math.ceil(beyond_s(site.start_s)),
        },
    }
    return _rendered(values, site, templates)


def _usual(
    site: Site, gpu: GpuType, name: str, directory: PurePath, harness: PurePath, supervisor: str
) -> dict[str, Any]:
    """What every job's script is told."""
    return {
        "site": site,
        "gpu": gpu,
        "job_name": name,
        "directory": str(directory),
        "harness": str(harness),
        "supervisor": ShellText(supervisor),
        "image": site.image_of(gpu),
    }


def _rendered(values: Mapping[str, Any], site: Site, templates: Path) -> str:
    try:
        text = _environment(templates).get_template(site.template).render(values)
    except jinja2.TemplateNotFound as error:
        raise Misconfigured(f"there is no template {error.name} in {templates}", fix="Correct `template`.") from None
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        raise Misconfigured(f"{error.message}", file=templates / site.template, line=line, fix="Correct it.") from None
    _check(text, site, templates)
    return text


def shell_quoted(value: object) -> str:
    """One value as one shell word. None and line breaks are errors in the template."""
    if isinstance(value, ShellText):
        return value
    if value is None or isinstance(value, jinja2.Undefined):
        raise jinja2.TemplateError("the template uses a value that is missing")
    if isinstance(value, bool) or not isinstance(value, str | int | float | PurePath):
        raise jinja2.TemplateError(f"a {type(value).__name__} can't be written into a script")
    text = str(value)
    if _FORBIDDEN.search(text):
        raise jinja2.TemplateError("a value with a line break can't be written into a script")
    return quoted_plain(text)


def quoted_plain(text: str) -> str:
    """Shell-quoted; bare if that is also safe in `#SBATCH` lines."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def node_text(path: str) -> str:
    """A path containing the job's variables, as shell text: the variables are expanded, the rest is quoted.

    A variable that isn't set is empty there, also under `set -u`: the script looks for that itself."""
    parts = _VARIABLE.split(path)
    texts = [quoted_plain(part) if part else "" for part in parts[::2]]
    names = [f'"${{{name}-}}"' for name in parts[1::2]]
    return "".join(text + name for text, name in zip(texts, [*names, ""], strict=True))


def _container(site: Site) -> str:
    """How the container program is called, as shell text; nothing where there is none."""
    if site.container.runtime == "none":
        return ""
    return " ".join(map(quoted, hardened(site.container.executable, site.container.network, site.container.options)))


def charging(site: Site, gpu: GpuType, charged: Charged | None) -> GpuType:
    """The GPU type with the account that pays for this job; Misconfigured if that is a person's who has none."""
    if not gpu.charges_people:
        return gpu
    if charged is None or not charged.account:
        who = charged.person if charged is not None else "the person"
        raise Misconfigured(
            f"{who} has no cluster account, and jobs on {gpu.name} at {site.name} are charged to each person's own",
            fix=f"A host sets it: kbslurm user account {charged.person if charged is not None else 'NAME'} ACCOUNT",
        )
    return replace(gpu, account=gpu.account.replace(PERSON_ACCOUNT, charged.account))


def _minutes(site: Site, gpu: GpuType, limit_s: int, mode: Mode | None) -> int:
    minutes = math.ceil((limit_s + MARGIN_S) / 60)
    most = [limit for limit in (gpu.max_time_s, site.max_time_s) if limit is not None]
    if most and minutes * 60 > min(most):
        raise Misconfigured(
            f"the problem needs {minutes} minutes, but {site.name} allows {min(most) / 60:.0f} on {gpu.name}",
            fix="Lower the problem's limits, or raise max_time in the site's file if the partition allows it.",
        )
    least_s = site.min_time_s if gpu.min_time_s is None else gpu.min_time_s
    return minutes if least_s is None or mode == "test" else max(minutes, math.ceil(least_s / 60))


def _several(site: Site, gpu: GpuType, count: int) -> GpuType:
    """The request for `count` GPUs on one node, with processors and memory multiplied accordingly."""
    if gpu.per_node and gpu.per_node < count:
        raise Misconfigured(
            f"the problem needs {count} GPUs on one node, and {site.name} has {gpu.per_node} of type {gpu.name}",
            fix=f"Use another GPU type for the board, or correct per_node below [gpus.{gpu.name}] of the site's file.",
        )
    if gpu.vendor != "none" and not gpu.multi:
        raise Misconfigured(
            f"{site.name} doesn't say how to request {count} GPUs of type {gpu.name}, which the problem needs",
            fix=f'Add multi, like "--gres=gpu:TYPE:{{n}}", and per_node below [gpus.{gpu.name}] of the site\'s file.',
        )
    request = gpu.multi.replace("{n}", str(count)) if gpu.multi else gpu.request
    memory_mb = None if gpu.memory_mb is None else gpu.memory_mb * count
    return replace(gpu, request=request, cpus=gpu.cpus * count, memory_mb=memory_mb)


def needed_mb(site: Site, memory_bytes: int, gpus: int = 1) -> int:
    """What a job needs on this many GPUs if its problem's submissions may use this much memory on each: theirs, and the
    judge's, plus a runner's scratch, which is memory too."""
    scratch_mb = 0 if site.container.runtime == "none" else site.paths.scratch_mb
    return math.ceil((memory_bytes + JUDGE_MEMORY_BYTES) * gpus / MIB) + scratch_mb


def short_of_memory(site: Site, gpu: str, memory_bytes: int, gpus: int = 1) -> str | None:
    """Why a problem that allows this much memory can't run on this GPU type: jobs there are given less than it needs,
    so a submission could be killed below its limit. None if it can."""
    fixed_mb = site.gpus[gpu].memory_mb
    needs_mb = needed_mb(site, memory_bytes, gpus)
    if fixed_mb is None or fixed_mb * gpus >= needs_mb:
        return None
    return (
        f"{site.name} gives a job on {gpu} {fixed_mb * gpus} MB of memory, and the problem needs {needs_mb} MB"
        f" (its runners may use {memory_bytes * gpus // MIB} MB, and judge and scratch take some, too)"
    )


def more_memory(gpu: str) -> str:
    """What to do about it."""
    return f"Raise memory below [gpus.{gpu}] of the site's file, or leave it out to request what each problem needs."


def _memory_mb(site: Site, gpu: GpuType, memory_bytes: int, gpus: int) -> int:
    """The value from the site's file, else what is needed. Where the file gives less than is needed, boards are refused
    before any run (`short_of_memory`), and a job that is killed for its memory use isn't the submission's fault."""
    return gpu.memory_mb or needed_mb(site, memory_bytes, gpus)


@lru_cache(maxsize=8)
def _environment(templates: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        finalize=shell_quoted,
        autoescape=False,  # noqa: S701 - it is no HTML; `finalize` quotes every value for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_MUST: Mapping[str, str] = {
    "#SBATCH --no-requeue": "Slurm's own requeue must be off",
    "#SBATCH --job-name=": "jobs are found by their name",
    "--export=NIL": "the submitting environment must not reach the job",
    'mkdir "$DIR/claim"': "the claim is what makes an attempt run at most once",
    'eval "$SUPERVISOR"': "the supervisor is what ends a job and says how it ended",
}


def _check(text: str, site: Site, templates: Path) -> None:
    """What no template may leave out: one that overrides too much is refused before it can run anything."""
    for needed, why in _MUST.items():
        if needed not in text:
            raise Misconfigured(
                f"its script lacks `{needed}`: {why}",
                file=templates / site.template,
                fix="Extend base.sbatch.j2 and override its blocks only.",
            )
