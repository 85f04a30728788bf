"""`kbslurm export`: a board's standings as CSV or JSON, for grades and papers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import places
from kbslurm.errors import EXIT_OK, Invalid


def export(
    name: BoardName,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: standard output).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of CSV.")] = False,
) -> int:
    """Export a board's standings: each person's best score per GPU type, unrounded."""
    with host() as hosts:
        rows = hosts.places(name)
    if out is None:
        _write(sys.stdout, rows, as_json)
        return EXIT_OK
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            _write(file, rows, as_json)
    except OSError as error:
        raise Invalid(f"can't write the export ({error.strerror})", file=out) from None
    printing.say(f"{len(rows)} places written to {printing.path(out)}")
    return EXIT_OK


def _write(file: IO[str], rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        json.dump(list(rows), file, indent=2)
        file.write("\n")
        return
    file.write(places.as_csv(rows))
