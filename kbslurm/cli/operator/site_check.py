"""`kbslurm site check`: a cluster's file, or all of them, read and rendered for each GPU type. No cluster is asked."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.lookup import site_named, sites_folder
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.domain.finding import Finding, Grade, caution, failed, passed, worst
from kbslurm.errors import EXIT_BUG, EXIT_OK, Invalid, KbslurmError, Misconfigured

if TYPE_CHECKING:
    from kbslurm.config.site_families import Family
    from kbslurm.domain.site import Site

# What every job has, whatever the site's file says.
_COMMON = ("--job-name", "--output", "--error", "--chdir", "--no-requeue", "--export", "--open-mode", "--signal")


def check(
    site: Annotated[str, typer.Argument(help="A name, or a .toml file.")] = "",
    all_: Annotated[
        bool, typer.Option("--all", help="Check every file in the folder of cluster files, and every GPU type.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Check a cluster file, or all, and render a job for each GPU type. Doesn't contact the cluster.

    Shows what each job would request; kbslurm site render prints the whole script. With --all each finding is PASS,
    CAUTION or FAIL, and the exit code is 1 on a FAIL.
    """
    if all_ == bool(site):
        raise Invalid(
            "--all checks every site, so it takes no name" if all_ else "no site is named",
            hint="kbslurm site check NAME, or kbslurm site check --all.",
        )
    return _check_all(as_json) if all_ else _check_one(site, as_json)


def _check_one(name: str, as_json: bool) -> int:
    from kbslurm.cli.operator.doctor_site import memory_findings

    found = site_named(name)
    scripts = _scripts(found)
    memory = memory_findings(configuration(), found)
    if short := next((one for one in memory if one.grade is Grade.FAIL), None):
        raise Misconfigured(short.text, fix=short.remedy)
    for one in memory:
        printing.caution(f"{one.text}. {one.remedy}")
    if as_json:
        printing.as_json({"site": found.name, "gpus": sorted(found.gpus), "scripts": scripts})
        return EXIT_OK
    valid = f"{found.name} is valid: {', '.join(found.gpus)}; jobs go {_way(found)}"
    printing.say(f"{valid}; kbslurm doctor --site checks the cluster itself")
    for gpu, script in scripts.items():
        printing.say(f"a job on {gpu} (kbslurm site render {name} {gpu} prints all of it):")
        for line in script.splitlines():
            if line.startswith("#SBATCH"):
                printing.say(f"  {line}")
    return EXIT_OK


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """One file, checked. Without a site it can't be read."""

    file: Path
    site: Site | None = None
    bases: tuple[Path, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Finding] = ()


def _check_all(as_json: bool) -> int:
    from kbslurm.config import site_families, sites

    folder = sites_folder()
    used = [Path(name) for name in configuration().sites.use if name.endswith(".toml")]
    files = [*sites.files_in(folder), *(file for file in used if file.parent.resolve() != folder.resolve())]
    if not files:
        raise Invalid(f"{folder} has no cluster files", hint="kbslurm site init --out FILE writes a first one.")
    checked = []
    with printing.progress(as_json) as tell:
        for done, file in enumerate(files):
            tell({"phase": file.name, "done": done, "of": len(files)})
            checked.append(_checked(file))
    extended = {base.resolve() for one in checked for base in one.bases}
    findings = [finding for one in checked for finding in one.findings]
    findings += _twins(checked)
    findings += [
        caution("base", "no site that can be read extends it", "Extend it, or remove the file.", where=base.name)
        for base in sorted(folder.glob("*.toml"))
        if site_families.is_base(base) and base.resolve() not in extended
    ]
    if not as_json:
        return print_findings(findings, as_json, summed=True)
    rows = [
        {
            "site": one.site.name if one.site else None,
            "file": str(one.file),
            "bases": [str(base) for base in one.bases],
            "scripts": one.scripts,
        }
        for one in checked
    ]
    printing.as_json({"worst": worst(findings).value, "sites": rows, "findings": [asdict(one) for one in findings]})
    return EXIT_BUG if worst(findings) is Grade.FAIL else EXIT_OK


def _checked(file: Path) -> _Checked:
    """What is to be said about one file; what is wrong with it is a finding."""
    from kbslurm.cli.operator.doctor_site import memory_findings
    from kbslurm.config import sites

    try:
        site, family = sites.read(file)
    except KbslurmError as error:
        return _Checked(file=file, findings=[_finding(error, file.name)])
    try:
        scripts = _scripts(site)
    except KbslurmError as error:
        return _Checked(file=file, site=site, bases=family.bases, findings=[_finding(error, file.name)])
    memory = [replace(one, where=f"{site.name} {one.where}") for one in memory_findings(configuration(), site)]
    rendered = [passed(gpu, _request(script), where=site.name) for gpu, script in scripts.items()]
    findings = [*_read_findings(site, family), *rendered, *memory]
    return _Checked(file=file, site=site, bases=family.bases, scripts=scripts, findings=findings)


def _finding(error: KbslurmError, where: str) -> Finding:
    return failed("file", error.message, error.hint or "Correct it.", where=where)


def _read_findings(site: Site, family: Family) -> Iterator[Finding]:
    from kbslurm.config.toml_file import dotted

    told = f"valid; jobs go {_way(site)}"
    if family.bases:
        told += f"; extends {', '.join(base.name for base in family.bases)}"
    yield passed("file", told, where=site.name)
    for where, spot in family.repeated.items():
        yield caution(
            dotted(where), f"says again what {spot} says", f"Remove it from {family.file.name}.", where=site.name
        )


def _request(script: str) -> str:
    """What a job asks for, on one line."""
    told = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]
    return " ".join(line for line in told if not line.startswith(_COMMON))


def _twins(checked: Sequence[_Checked]) -> Iterator[Finding]:
    files = defaultdict(list)
    for one in checked:
        if one.site is not None:
            files[one.site.name].append(one.file.name)
    for name, there in files.items():
        if len(there) > 1:
            yield failed("name", f"{', '.join(there)} are all named {name}", "Give each its own `name`.", where=name)


def _scripts(site: Site) -> dict[str, str]:
    """By GPU type, the job script, once it is one that a shell and the site's way to Slurm can read."""
    from kbslurm.cli.operator.site_render import script_of

    scripts = {gpu: script_of(site, gpu, "leaderboard", fitting=True) for gpu in site.gpus}
    _check_request(site, scripts)
    for gpu, script in scripts.items():
        said = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
        if said.returncode:
            raise Misconfigured(
                f"a shell can't read the job script of {site.name}'s {gpu}: {said.stderr.strip()}",
                fix=f"Correct {site.template}; kbslurm site render {site.name} {gpu} prints the script.",
            )
    return scripts


def _way(site: Site) -> str:
    far = site.submit
    return {
        "local": "through sbatch on this machine",
        "ssh": f"through sbatch on {far.host}",
        "rest": f"through slurmrestd at {far.url} ({far.api or 'the newest API that both know'})",
    }[far.via]


def _check_request(site: Site, scripts: Mapping[str, str]) -> None:
    """Refuse options that slurmrestd couldn't be told: it reads no `#SBATCH` lines."""
    if site.submit.via != "rest":
        return
    from kbslurm.backends.slurm.rest.job_fields import Untold, fields_of

    for gpu, script in scripts.items():
        try:
            fields_of(script)
        except Untold as why:
            raise Misconfigured(str(why), key=f"gpus.{gpu}", fix="Correct the options of this GPU type.") from None
