"""`kbslurm site …`: the files that describe clusters: check, list, show."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.lookup import site_named, sites_folder
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, KbslurmError, Misconfigured

if TYPE_CHECKING:
    from kbslurm.domain.site import Site


def check(site: Annotated[str, typer.Argument(help="A name, or a .toml file.")], as_json: Json = False) -> int:
    """Check a cluster file and render a job for each of its GPU types. Doesn't contact the cluster.

    Shows what each job would request; kbslurm site render prints the whole script.
    """
    from kbslurm.cli.operator.doctor_site import memory_findings
    from kbslurm.cli.operator.site_render import script_of

    found = site_named(site)
    scripts = {gpu: script_of(found, gpu, "leaderboard", fitting=True) for gpu in found.gpus}
    _check_request(found, scripts)
    memory = memory_findings(configuration(), found)
    if short := next((one for one in memory if one.grade == "FAIL"), None):
        raise Misconfigured(short.text, fix=short.remedy)
    for one in memory:
        printing.caution(f"{one.text}. {one.remedy}")
    if as_json:
        printing.as_json({"site": found.name, "gpus": sorted(found.gpus), "scripts": scripts})
        return EXIT_OK
    valid = f"{found.name} is valid: {', '.join(found.gpus)}; jobs go {_way(found)}"
    printing.say(f"{valid}; kbslurm doctor --site checks the cluster itself")
    for gpu, script in scripts.items():
        printing.say(f"a job on {gpu} (kbslurm site render {site} {gpu} prints all of it):")
        for line in script.splitlines():
            if line.startswith("#SBATCH"):
                printing.say(f"  {line}")
    return EXIT_OK


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


def list_(as_json: Json = False) -> int:
    """List the cluster files found here and which of them are in use."""
    rows = _listed()
    if as_json:
        printing.as_json(rows)
    else:
        lines = [
            (
                printing.escape(row["name"]),
                "[green]yes[/]" if row["used"] else "",
                printing.escape(", ".join(row["gpus"])),
                printing.escape(row["verified"] or f"[red]{row['trouble']}[/]"),
            )
            for row in rows
        ]
        printing.table(("site", "used", "GPUs", "verified"), lines, wrap=2)
    return EXIT_OK


def show_(site: Annotated[str, typer.Argument(help="A name, or a .toml file.")], as_json: Json = False) -> int:
    """Show all settings of a cluster, including defaults."""
    found = site_named(site)
    values = dataclasses.asdict(found)
    if as_json:
        printing.as_json(values)
    else:
        rows = [(printing.escape(key), printing.escape(text)) for key, text in _leaves(values)]
        printing.table(("setting", "value"), rows, wrap=1)
    return EXIT_OK


def schema(as_json: Json = False) -> int:
    """Print the JSON schema of a cluster file, for editors."""
    from kbslurm.config import sites

    print(json.dumps(sites.schema(), indent=2, sort_keys=True))
    return EXIT_OK


def _listed() -> list[dict[str, Any]]:
    from kbslurm.config import sites

    used = configuration().sites.use
    files = {path.stem: path for path in sorted(sites_folder().glob("*.toml"))}
    files |= {name: Path(name) for name in used if name.endswith(".toml")}
    rows = []
    for name, file in files.items():
        row: dict[str, Any] = {"name": name, "used": name in used, "gpus": [], "verified": "", "trouble": ""}
        try:
            found = sites.load(file)
        except KbslurmError as error:
            row["trouble"] = error.message
        else:
            row |= {"name": found.name, "gpus": list(found.gpus), "verified": found.verified, "file": str(file)}
        rows.append(row)
    return rows


def _leaves(values: Any, at: str = "") -> list[tuple[str, str]]:
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in _leaves(value, f"{at}.{key}" if at else str(key))]
    if isinstance(values, list | tuple):
        return [(at, ", ".join(map(str, values)))] if values else []
    return [] if values in (None, "") else [(at, str(values))]
