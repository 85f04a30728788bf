"""`kbslurm site …`: the files that describe clusters: list, show, schema."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.lookup import site_file, sites_folder
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.site_families import Family


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
                printing.escape(", ".join(row["bases"])),
                printing.escape(row["verified"] or f"[red]{row['trouble']}[/]"),
            )
            for row in rows
        ]
        printing.table(("site", "used", "GPUs", "extends", "verified"), lines, wrap=2)
    return EXIT_OK


def show_(site: Annotated[str, typer.Argument(help="A name, or a .toml file.")], as_json: Json = False) -> int:
    """Show all settings of a cluster, and where each comes from.

    That is a file and line of its own or of a file that it extends, or the default.
    """
    from kbslurm.config import sites

    found, family = sites.read(site_file(site))
    values = dataclasses.asdict(found)
    leaves = [(key, text, _from(family, key)) for key, text in _leaves(values)]
    if as_json:
        told = {".".join(key): where for key, _, where in leaves if where}
        printing.as_json({**values, "file": family.file, "bases": list(family.bases), "from": told})
    else:
        rows = [
            (printing.escape(".".join(key)), printing.escape(text), printing.escape(where or "default"))
            for key, text, where in leaves
        ]
        printing.table(("setting", "value", "from"), rows, wrap=1)
    return EXIT_OK


def _from(family: Family, key: tuple[str, ...]) -> str:
    """The file and line that say so; empty for a default."""
    from kbslurm.config.sites import key_of

    where = key if key[0] == "exports" else (*key[:-1], key_of(key[-1]))
    if key[0] == "gpus" and key[-1] == "name":
        where = key[:2]  # its table's header says it
    spot = family.spots.get(where)
    return "" if spot is None else str(spot)


def schema(as_json: Json = False) -> int:
    """Print the JSON schema of a cluster file, for editors."""
    from kbslurm.config import sites

    print(json.dumps(sites.schema(), indent=2, sort_keys=True))
    return EXIT_OK


def _listed() -> list[dict[str, Any]]:
    from kbslurm.config import sites

    used = configuration().sites.use
    files = {path.stem: path for path in sites.files_in(sites_folder())}
    files |= {name: Path(name) for name in used if name.endswith(".toml")}
    rows = []
    for name, file in files.items():
        row: dict[str, Any] = {"name": name, "used": name in used, "gpus": [], "verified": "", "trouble": ""}
        row["bases"] = []
        try:
            found, family = sites.read(file)
        except KbslurmError as error:
            row["trouble"] = error.message
        else:
            row |= {"name": found.name, "gpus": list(found.gpus), "verified": found.verified, "file": str(file)}
            row["bases"] = [base.stem for base in family.bases]
        rows.append(row)
    return rows


def _leaves(values: Any, at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in _leaves(value, (*at, str(key)))]
    if isinstance(values, list | tuple):
        return [(at, ", ".join(map(str, values)))] if values else []
    return [] if values in (None, "") else [(at, str(values))]
