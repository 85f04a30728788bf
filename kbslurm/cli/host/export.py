"""`kbslurm export`: a board's standings as CSV, JSON or Parquet, for grades and papers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from kbslurm.api import parquet
from kbslurm.cli.arguments import BoardName
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import places
from kbslurm.domain.places import FORMATS
from kbslurm.errors import EXIT_OK, Invalid


def export(
    name: BoardName,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: standard output).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also what others can't see, by people's own names: don't hand it on.")
    ] = False,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="csv, json or parquet (default: csv).", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> int:
    """Export a board's standings: each person's best score per GPU type, unrounded."""
    wanted = form or ("json" if as_json else "csv")
    if wanted not in FORMATS or (as_json and wanted != "json"):
        raise Invalid(
            f"{wanted!r} isn't a format of exports" if wanted not in FORMATS else f"--json isn't --format {wanted}",
            hint=f"Choose one of: {', '.join(FORMATS)}.",
        )
    if wanted == "parquet":
        parquet.check()
        if out is None:
            raise Invalid("Parquet isn't text", hint="Name a file: --out FILE.")
    with host() as hosts:
        rows = hosts.places(name, live=live)
    if out is None:
        _write(sys.stdout, rows, wanted)
        return EXIT_OK
    try:
        if wanted == "parquet":
            with parquet.ParquetFile(out, places.KINDS) as table:
                for row in rows:
                    table.add(row)
        else:
            with out.open("w", newline="", encoding="utf-8") as file:
                _write(file, rows, wanted)
    except OSError as error:
        raise Invalid(f"can't write the export ({error.strerror})", file=out) from None
    printing.say(f"{len(rows)} places written to {printing.path(out)}")
    return EXIT_OK


def _write(file: IO[str], rows: Sequence[Mapping[str, Any]], form: str) -> None:
    file.write(places.as_json(rows) if form == "json" else places.as_csv(rows))
