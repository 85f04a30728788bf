"""site-configs/*.toml → domain.site.Site. Every error names file, line, key and the next step.

A key is named like the field of `domain.site` that it fills; amounts drop the field's unit suffix and may carry a unit
themselves: `max_time = "2h"` fills `max_time_s`, `memory = "16G"` fills `memory_mb`. A plain number means seconds or
MiB.

A file may extend another: site_families reads them as one table.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import urlsplit

from kbslurm.config import site_families
from kbslurm.config.site_families import Family
from kbslurm.domain.amounts import counted, span
from kbslurm.domain.keepers import (
    CLOCKS_S,
    END_S,
    LEAST_IDLE_S,
    LEAST_RUN_S,
    LONGEST_IDLE_S,
    LONGEST_LIFE_S,
    Warm,
    beyond_s,
    check_hours,
)
from kbslurm.domain.site import PERSON_ACCOUNT, GpuType, Site
from kbslurm.errors import Invalid, Misconfigured, NotFound

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_UNSAFE_PATH = re.compile(r"[:,\\@'\"`\s\0]")
_GPU_FREQ = re.compile(r"(?:(V)(?:,memory=(V))?|memory=(V))".replace("V", r"low|medium|highm1|high|[1-9]\d{1,4}"))
_VARIABLE = re.compile(r"\$\{?([A-Z_][A-Z0-9_]*)\}?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MEBIBYTES = {"M": 1, "G": 1024, "T": 1024 * 1024}
_SUFFIXES = {"_s": "", "_mb": ""}


def load(path: Path) -> Site:
    """The site in this file, with what it inherits, or Misconfigured."""
    return read(path)[0]


def read(path: Path) -> tuple[Site, Family]:
    """The site, and the files that it is made of."""
    family = site_families.read(path)
    if family.abstract:
        named = ", ".join(site_families.heirs(path))
        family.wrong(
            ("abstract",),
            "this file is a base for other sites, not a site",
            f"Name one that extends it: {named}." if named else f'Write a file with extends = "{path.stem}".',
        )
    return _SiteParser(family=family).site(dict(family.data)), family


def file_named(folder: Path, used: Sequence[str], name: str) -> Path | None:
    """The file of the site with this name: one of those in use, else one of the folder."""
    paths = [Path(one) if one.endswith(".toml") else folder / f"{one}.toml" for one in used]
    for path in [*(path for path in paths if path.is_file()), *files_in(folder)]:
        with contextlib.suppress(Misconfigured):
            if load(path).name == name:
                return path
    return None


def load_all(folder: Path, names: Sequence[str]) -> tuple[Site, ...]:
    """The named sites of a folder. A name that ends in .toml is a path."""
    found = [load(file_of(folder, name)) for name in names]
    twins = {site.name for site in found if sum(other.name == site.name for other in found) > 1}
    if twins:
        raise Misconfigured(f"two sites are named {min(twins)}", file=folder, fix="Give each site its own `name`.")
    return tuple(found)


def files_in(folder: Path) -> list[Path]:
    """The files of sites in a folder, without those that are only a base for others."""
    return [file for file in sorted(folder.glob("*.toml")) if not site_families.is_base(file)]


def file_of(folder: Path, name: str) -> Path:
    """The file of the site with this name in a folder, or NotFound with those that are there."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.is_file():
        known = [file.stem for file in files_in(folder)]
        near = difflib.get_close_matches(name, known, n=1)
        raise NotFound("site", name, known=known, hint=f"Did you mean {near[0]}?" if near else None)
    return path


def schema() -> dict[str, Any]:
    """The JSON schema of a site's file, made from the same fields that `load` reads."""
    described = _schema_of(Site)
    described["properties"] |= {
        "abstract": {"type": "boolean"},
        "extends": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"},
        "remove": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kbslurm site",
        **described,
        # A file that extends another has what it needs from there, and a base leaves it to those that extend it.
        "if": {
            "anyOf": [
                {"required": ["extends"]},
                {"required": ["abstract"], "properties": {"abstract": {"const": True}}},
            ]
        },
        "else": _needs_of(Site),
    }


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, kw_only=True)
class _SiteParser:
    family: Family

    def site(self, raw: dict[str, Any]) -> Site:
        site = self.table(Site, raw, ())
        self._check(site, raw)
        return site

    def wrong(self, where: tuple[str, ...], message: str, fix: str) -> NoReturn:
        self.family.wrong(where, message, fix)

    def table(self, kind: type[T], raw: Any, where: tuple[str, ...], **given: Any) -> T:
        if not isinstance(raw, dict):
            self.wrong(where, "must be a table", f"Write [{'.'.join(where)}] above its keys.")
        fields = {key_of(f.name): f for f in dataclasses.fields(kind) if f.name not in given}  # type: ignore[arg-type]
        hints = typing.get_type_hints(kind)
        for key in raw:
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                fix = f"Did you mean {near[0]}?" if near else f"Known keys here: {', '.join(sorted(fields))}."
                self.wrong((*where, key), "unknown key", fix)
        built = dict(given)
        for key, field in fields.items():
            if key in raw:
                built[field.name] = self.value(field.name, hints[field.name], raw[key], (*where, key))
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                self.wrong((*where, key), "is missing", "Every site needs it; see site-configs/example.toml.")
        return kind(**built)

    def value(self, name: str, hint: Any, raw: Any, where: tuple[str, ...]) -> Any:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            return self.value(name, next(h for h in inner if h is not type(None)), raw, where)
        if origin is Literal:
            if raw not in inner:
                self.wrong(where, f"{raw!r} isn't one of {', '.join(inner)}", "Choose one of them.")
            return raw
        if origin is tuple:
            if not isinstance(raw, list):
                self.wrong(where, "must be a list", 'Write ["…", "…"].')
            return tuple(self.value(name, inner[0], item, where) for item in raw)
        if hint == Mapping[str, GpuType]:
            if not isinstance(raw, dict) or not raw:
                self.wrong(where, "no GPU type is described", "Add a table like [gpus.H100].")
            return {
                gpu: self.table(GpuType, told, (*where, gpu), name=self.gpu_name(gpu, (*where, gpu)))
                for gpu, told in raw.items()
            }
        if origin is not None and issubclass(origin, Mapping):
            if not isinstance(raw, dict):
                self.wrong(where, "must be a table", 'Write { NAME = "value" }.')
            return {str(k): self.value(name, str, v, (*where, k)) for k, v in raw.items()}
        if dataclasses.is_dataclass(hint):
            return self.table(typing.cast("type[Any]", hint), raw, where)
        return self.scalar(name, hint, raw, where)

    def scalar(self, name: str, hint: Any, raw: Any, where: tuple[str, ...]) -> Any:
        if name.endswith("_s") and hint is float:
            return self.seconds(raw, where)
        if name.endswith("_mb") and hint is int:
            return self.mebibytes(raw, where)
        if hint is PurePosixPath:
            return PurePosixPath(self.path(raw, where))
        if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
            raw = float(raw)
        if type(raw) is not hint:
            wanted = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}[hint]
            self.wrong(where, f"{raw!r} isn't {wanted}", f"Write {wanted}.")
        if isinstance(raw, str) and re.search(r"[\n\r\0]", raw):
            self.wrong(where, "contains a line break", "Write it on one line.")
        if isinstance(raw, int | float) and not isinstance(raw, bool) and raw < 0:
            self.wrong(where, f"{raw} is negative", "Write 0 or more.")
        return raw

    def gpu_name(self, name: str, where: tuple[str, ...]) -> str:
        if not NAME.fullmatch(name):
            self.wrong(where, f"{name!r} isn't a valid GPU type name", "Use letters, digits, dot, dash, underscore.")
        return name

    def path(self, raw: Any, where: tuple[str, ...]) -> str:
        if not isinstance(raw, str) or not raw.startswith("/"):
            self.wrong(where, f"{raw!r} isn't an absolute path", "Write a path that begins with /.")
        if _UNSAFE_PATH.search(raw) or "$" in raw:
            why = f"{raw!r} contains a character that would change the meaning of --bind or the job script"
            self.wrong(where, why, _PATH_HINT)
        return raw

    def seconds(self, raw: Any, where: tuple[str, ...]) -> float:
        if isinstance(raw, int | float) and not isinstance(raw, bool) and raw >= 0:
            return float(raw)
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", raw) if isinstance(raw, str) else None
        if found is None:
            self.wrong(where, f"{raw!r} isn't a valid duration", 'Write seconds, or "90s", "15m", "2h", "7d".')
        return float(found[1]) * _SECONDS[found[2]]

    def mebibytes(self, raw: Any, where: tuple[str, ...]) -> int:
        if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0:
            return raw
        found = re.fullmatch(r"0*([1-9]\d*)([MGT])", raw) if isinstance(raw, str) else None
        if found is None:
            self.wrong(where, f"{raw!r} isn't a valid amount of memory", 'Write MiB, or "16G".')
        return int(found[1]) * _MEBIBYTES[found[2]]

    # ---------------------------------------------------------------------------------------- what must fit together

    def _check(self, site: Site, raw: Mapping[str, Any]) -> None:
        if not NAME.fullmatch(site.name):
            self.wrong(
                ("name",), f"{site.name!r} isn't a valid site name", "Use letters, digits, dot, dash, underscore."
            )
        if not re.fullmatch(r"[A-Za-z0-9_.-]+\.sbatch\.j2", site.template):
            self.wrong(("template",), f"{site.template!r} isn't a template file name", "It must end in .sbatch.j2.")
        if site.submit.via == "ssh" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", site.submit.host):
            self.wrong(("submit", "host"), "submission by ssh needs a host", 'Add host = "login.example.edu".')
        if site.submit.by_hand and not (site.submit.via == "ssh" and site.submit.control_path):
            self.wrong(
                ("submit", "by_hand"),
                'a connection that is opened by hand is found by its control_path, with via = "ssh"',
                'Add control_path = "/run/user/1000/kb-%C".',
            )
        if site.submit.host.startswith("-") or site.submit.user.startswith("-"):
            self.wrong(("submit",), "begins with a dash", "Write plain host and user names.")
        self._check_rest(site)
        self._check_isolation(site, raw)
        self._check_texts(site)
        for name, gpu in site.gpus.items():
            self._check_gpu(site, gpu, ("gpus", name))

    def _check_rest(self, site: Site) -> None:
        told = site.submit
        if told.via != "rest":
            for key in ("url", "api", "ca_file", "token_file", "token_command"):
                if getattr(told, key):
                    self.wrong(("submit", key), "is for slurmrestd only", 'Write via = "rest", or remove it.')
            return
        parts = urlsplit(told.url)
        if told.url.startswith("unix:"):
            self.path(told.url.removeprefix("unix:"), ("submit", "url"))
        elif parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            self.wrong(
                ("submit", "url"), "submission by slurmrestd needs its address",
                'Write url = "https://slurm.example.edu:6820", or "unix:/run/slurmrestd/slurmrestd.sock".',
            )  # fmt: skip
        elif told.exposes_token:
            self.wrong(
                ("submit", "url"), "the token would travel in clear text", "Write https://, or use a unix socket."
            )
        if told.api and not re.fullmatch(r"v0\.0\.\d\d", told.api):
            self.wrong(("submit", "api"), f"{told.api!r} isn't a version of the API", 'Write it like "v0.0.42".')
        if re.search(r"eyJ[A-Za-z0-9_-]{8,}\.", f"{told.token_command} {told.token_file} {told.url}"):
            self.wrong(("submit",), "contains a token, and this file is no secret", "Name a file or a command.")

    def _check_isolation(self, site: Site, raw: Mapping[str, Any]) -> None:
        if site.container.runtime != "none":
            if site.container.network == "shared" and "untrusted" not in raw:
                self.wrong(
                    ("container", "network"),
                    "submissions could reach this site's network, and the file doesn't say whether that is acceptable",
                    "Write untrusted = false (then only staff's submissions run here) or untrusted = true.",
                )
            return
        told = raw.get("untrusted"), raw.get("ranked_min_isolation")
        if told != (False, 0):
            self.wrong(
                ("container", "runtime"),
                "without containers nothing protects the service's own files on this site from submissions",
                "Choose apptainer or singularity, or accept this explicitly: untrusted = false and"
                " ranked_min_isolation = 0 (then only staff's submissions run here).",
            )

    def _check_texts(self, site: Site) -> None:
        paths: tuple[tuple[tuple[str, ...], str], ...] = (
            (("slurm", "bin_dir"), site.slurm.bin_dir),
            (("slurm", "conf"), site.slurm.conf),
            (("container", "program"), site.container.program),
            (("module_init",), site.module_init),
            (("submit", "identity"), site.submit.identity),
            (("submit", "known_hosts"), site.submit.known_hosts),
            (("submit", "ca_file"), site.submit.ca_file),
            (("submit", "token_file"), site.submit.token_file),
        )
        for where, text in paths:
            if text:
                self.path(text, where)
        for folder, where in ((site.paths.node_scratch, ("paths", "node_scratch")),):
            bare = _VARIABLE.sub("x", folder)
            if folder and (_UNSAFE_PATH.search(bare) or "$" in bare or not folder.startswith(("/", "$"))):
                self.wrong(where, f"{folder!r} isn't a valid folder on a node", "Write a path; $NAME is a variable.")
        if site.slurm.cluster and not NAME.fullmatch(site.slurm.cluster):
            self.wrong(
                ("slurm", "cluster"),
                f"{site.slurm.cluster!r} isn't a valid cluster name",
                "Run sacctmgr show cluster to see it.",
            )
        for name in site.exports:
            ours = name.startswith(("SLURM_", "KB_")) or name in _SCRIPTS
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or ours:
                self.wrong(
                    ("exports", name),
                    "can't be set in the job",
                    "Choose a variable that neither Slurm nor kbslurm uses.",
                )
        if re.search(r"//[^/]*@", site.proxy):
            self.wrong(
                ("proxy",),
                "contains a user name or password, and Slurm shows scripts to others",
                "Ask the admins for a proxy without a password, or set it in a module or `module_init`.",
            )
        if site.mail and not re.fullmatch(r"[^\s,@'\"]+@[^\s,@'\"]+", site.mail):
            self.wrong(("mail",), f"{site.mail!r} isn't an e-mail address", 'Write one, like "contest@example.edu".')
        if site.poll.calls_per_minute < 1:
            self.wrong(
                ("poll", "calls_per_minute"), "with less than one call nothing can be monitored", "Write 1 or more."
            )
        if not 1 <= site.submit.port <= 65535:
            self.wrong(("submit", "port"), f"{site.submit.port} isn't a valid port", "ssh's is 22.")
        for module in site.modules:
            if not re.fullmatch(r"[A-Za-z0-9_+./-]+", module):
                self.wrong(("modules",), f"{module!r} isn't a valid module name", "Write it as for module load.")

    def _check_gpu(self, site: Site, gpu: GpuType, where: tuple[str, ...]) -> None:
        if gpu.request and not re.fullmatch(r"--[a-z-]+=\S+", gpu.request):
            self.wrong(
                (*where, "request"), f"{gpu.request!r} isn't one sbatch option", 'Write it like "--gres=gpu:h100:1".'
            )
        if gpu.multi and not re.fullmatch(r"--[a-z-]+=[^\s{}]*\{n\}[^\s{}]*", gpu.multi):
            self.wrong(
                (*where, "multi"), f"{gpu.multi!r} doesn't say where the number of GPUs goes",
                'Write it like "--gres=gpu:h100:{n}".',
            )  # fmt: skip
        if gpu.gpu_freq and not _GPU_FREQ.fullmatch(gpu.gpu_freq):
            self.wrong(
                (*where, "gpu_freq"), f"{gpu.gpu_freq!r} isn't what --gpu-freq takes",
                'Write low, medium, highm1, high or MHz, and ",memory=" with one of these for the memory.',
            )  # fmt: skip
        if gpu.gpu_freq and gpu.vendor == "none":
            self.wrong((*where, "gpu_freq"), "there is no GPU whose clocks could be set", "Remove it.")
        if gpu.gpu_freq and any("--gpu-freq".startswith(option.split("=")[0]) for option in gpu.options):
            self.wrong((*where, "options"), "sets --gpu-freq, as gpu_freq does", "Remove one of them.")
        told = [("options", option) for option in gpu.options]
        told += [("multi", gpu.multi)] if gpu.multi else []
        for key, option in [*told, *([("request", gpu.request)] if gpu.request else [])]:
            word = option.split("=")[0]
            # sbatch accepts abbreviated option names
            if not re.fullmatch(r"--[a-z][a-z0-9_-]+", word) or any(ours.startswith(word) for ours in _OURS):
                self.wrong(
                    (*where, key),
                    f"{option!r} isn't allowed here",
                    f"Write one --option=value each, but not {', '.join(_OURS)}.",
                )
        if site.container.runtime != "none" and not gpu.image:
            self.wrong(
                (*where, "image"),
                "no image is configured",
                'Add image = "cuda.sif" (a file below image_dir, or a path).',
            )
        if gpu.image:
            self.path(gpu.image if gpu.image.startswith("/") else f"/{gpu.image}", (*where, "image"))
        if gpu.image_tag and not gpu.image:
            self.wrong((*where, "image_tag"), "there is no image whose version it could be", 'Add image = "cuda.sif".')
        if gpu.image_tag and not _TAG.fullmatch(gpu.image_tag):
            self.wrong(
                (*where, "image_tag"),
                f"{gpu.image_tag!r} isn't a valid tag",
                "Use letters, digits, dot, dash, underscore.",
            )
        if gpu.cpus < 1:
            self.wrong((*where, "cpus"), "a job needs a processor", "The judge and the runner need two.")
        self._check_charge(gpu, where)
        self._check_times(site, gpu, where)
        if gpu.warm is not None:
            self._check_warm(site, gpu, gpu.warm, (*where, "warm"))

    def _check_warm(self, site: Site, gpu: GpuType, warm: Warm, where: tuple[str, ...]) -> None:
        """Keepers hold what others may need: what the file allows has bounds of its own."""
        if not LEAST_IDLE_S <= warm.idle_s <= LONGEST_IDLE_S:
            self.wrong(
                (*where, "idle"),
                f"a warm worker may wait for work between {span(LEAST_IDLE_S)} and {span(LONGEST_IDLE_S)}, not"
                f" {span(warm.idle_s)}",
                'Write it like "5m"; there is no way to hold a GPU for good.',
            )
        limits = [limit for limit in (gpu.max_time_s, site.max_time_s, LONGEST_LIFE_S) if limit is not None]
        least_s = beyond_s(site.start_s) + LEAST_RUN_S
        if not 2 * warm.idle_s <= warm.life_s <= min(limits):
            self.wrong(
                (*where, "life"),
                f"a warm worker's life is between twice its idle time and {span(min(limits))} here,"
                f" not {span(warm.life_s)}",
                f'Write life = "{min(limits) / 60:.0f}m" or less, or raise max_time if the partition allows it.'
                if warm.life_s > min(limits)
                else f'Write life = "{2 * warm.idle_s / 60:.0f}m" or more, or a shorter idle.',
            )
        elif warm.life_s < least_s:
            self.wrong(
                (*where, "life"),
                f"in {span(warm.life_s)} a warm worker could serve no run of a minute: runs may take"
                f" {span(site.start_s)} to start here, and the end takes {span(END_S + CLOCKS_S)}",
                f'Write life = "{math.ceil(least_s / 60)}m" or more, or a shorter start.',
            )
        for period in warm.hours:
            try:
                check_hours(period)
            except Invalid as error:
                self.wrong((*where, "hours"), error.message, error.hint or "")
        if warm.max >= gpu.slots:
            self.wrong(
                (*where, "max"),
                f"{counted(warm.max, 'warm worker')} would take all {counted(gpu.slots, 'job')} that may be open, and"
                " some runs need one of their own",
                f"{f'Write at most {gpu.slots - 1}' if gpu.slots > 1 else 'Leave this table out'}, or raise max_open"
                f" below [{'.'.join(where[:-1])}].",
            )
        if gpu.memory_mb is None:
            self.wrong(
                where, "a warm worker starts before it is known which problem it will run, so its memory must be given",
                f'Add memory = "64G", enough for the largest problem, below [{".".join(where[:-1])}].',
            )  # fmt: skip
        if gpu.charges_people:
            self.wrong(
                where, "runs of several people go into one warm worker, so no person's own account can pay for it",
                f"Name one account below [{'.'.join(where[:-1])}], or remove warm.",
            )  # fmt: skip
        if gpu.vendor == "amd":
            self.wrong(
                where, "there is no look yet at whether an AMD device is clean between two runs",
                "Remove warm; runs on this GPU type are jobs of their own.",
            )  # fmt: skip
        if not warm.give_back and not gpu.reservation:
            self.wrong(
                (*where, "give_back"), "only GPUs that are reserved for us may be kept while others wait",
                "Name the reservation of these GPUs, or remove give_back.",
            )  # fmt: skip

    def _check_charge(self, gpu: GpuType, where: tuple[str, ...]) -> None:
        if re.search(r"[{}]", gpu.account.replace(PERSON_ACCOUNT, "")):
            self.wrong(
                (*where, "account"),
                f"{gpu.account!r} has braces around something unknown",
                f'Write an account, or "{PERSON_ACCOUNT}" for each person\'s own.',
            )
        if gpu.licenses and not re.fullmatch(r"[A-Za-z0-9_.@:,=+-]+", gpu.licenses):
            self.wrong((*where, "licenses"), f"{gpu.licenses!r} isn't a list of licences", 'Write it like "matlab:1".')

    def _check_times(self, site: Site, gpu: GpuType, where: tuple[str, ...]) -> None:
        limits = [limit for limit in (gpu.max_time_s, site.max_time_s) if limit is not None]
        if limits and min(limits) < 60:
            self.wrong((*where, "max_time"), "is below a minute", "Slurm's limits are in minutes.")
        least_s = site.min_time_s if gpu.min_time_s is None else gpu.min_time_s
        if limits and least_s is not None and least_s > min(limits):
            at = ("min_time",) if gpu.min_time_s is None else (*where, "min_time")
            self.wrong(
                at, f"a job of {gpu.name} must request at least {least_s:.0f} s and at most {min(limits):.0f} s",
                "Lower min_time, or raise max_time.",
            )  # fmt: skip


_PATH_HINT = "Use only letters, digits and . _ - / + = ~ in the path."
# The job script's own variables.
# What a job script sets, and what eval/supervise.sh does; a test holds this to both.
_SCRIPTS = frozenset(
    "APPTAINER_CACHEDIR APPTAINER_CONFIGDIR APPTAINER_TMPDIR ATTEMPTS CAN CLEARS CONTAINER DIGEST DIR ENDING_S ENTER"
    " EVAL GPU_OPTION HOME IDLE_S IFS IMAGE IN_ROOM JOB KB_KEEPER KB_STEP KNOWN KNOWN_ROOT LAST_S LC_ALL LIFE_S LIMIT_S"
    " LOOK MARK MIN_ISOLATION N NODE PATH PINNED PROFILE PROFILER PYTHON ROOM RUNTIME SCRATCH SCRATCH_MB"
    " SCRATCH_NEEDS SCRATCH_ROOT SEEN SHM SHM_ROOT SINGULARITY_CACHEDIR SINGULARITY_TMPDIR SRUN STEP STEP_MB"
    " SUPERVISOR VENDOR WATCH WHOLE".split()
)
_OURS = ("--job-name", "--output", "--error", "--time", "--requeue", "--no-requeue", "--export", "--array", "--wrap")


def key_of(field: str) -> str:
    """A field's key in the file: without its unit."""
    for suffix in _SUFFIXES:
        if field.endswith(suffix):
            return field.removesuffix(suffix)
    return field


# -------------------------------------------------------------------------------------------------------------- schema


def _schema_of(kind: type[Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.name not in without]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key_of(f.name): _schema_value(f.name, hints[f.name]) for f in fields},
    }


def _needs_of(kind: type[Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What a table can't do without, and those below it, as a schema."""
    hints = typing.get_type_hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.name not in without]
    required = [
        key_of(f.name) for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    below: dict[str, Any] = {}
    for field in fields:
        hint = hints[field.name]
        if hint == Mapping[str, GpuType]:
            each = _needs_of(GpuType, without=frozenset({"name"}))
            below[key_of(field.name)] = {"minProperties": 1, "additionalProperties": each}
            continue
        named = next((h for h in typing.get_args(hint) if h is not type(None)), hint)
        if dataclasses.is_dataclass(named) and (needs := _needs_of(typing.cast("type[Any]", named))):
            below[key_of(field.name)] = needs
    return {**({"required": required} if required else {}), **({"properties": below} if below else {})}


def _schema_value(name: str, hint: Any) -> dict[str, Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _schema_value(name, next(h for h in inner if h is not type(None)))
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema_value(name, inner[0])}
    if hint == Mapping[str, GpuType]:
        return {
            "type": "object",
            "additionalProperties": _schema_of(GpuType, without=frozenset({"name"})),
        }
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if dataclasses.is_dataclass(hint):
        return _schema_of(typing.cast("type[Any]", hint))
    if hint is float and name.endswith("_s"):
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?[smhd]$"}]}
    if hint is int and name.endswith("_mb"):
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+[MGT]$"}]}
    if hint is PurePosixPath:
        return {"type": "string", "pattern": "^/"}
    by_type: dict[Any, dict[str, Any]] = {
        str: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer", "minimum": 0},
        float: {"type": "number", "minimum": 0},
    }
    return by_type[hint]
