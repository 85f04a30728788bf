"""`kbslurm export`: a board's standings as CSV or JSON, for grades and papers."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.board import Name, board_of
from kbslurm.cli.frame import app, opened_store
from kbslurm.domain import board as boards
from kbslurm.errors import EXIT_OK, Invalid

if TYPE_CHECKING:
    from kbslurm.store.views import Board

COLUMNS = (
    "board", "gpu", "rank", "best_rank", "worst_rank", "person", "person_id", "submission", "run", "score_s", "low_s",
    "high_s", "paired", "submitted_at", "file_name",
)  # fmt: skip


@app.command()
def export(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; by default here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of CSV.")] = False,
) -> int:
    """Every place of a board, each person's best per GPU type, with the scores unrounded."""
    with opened_store() as store:
        board = board_of(store, name)
        rows = [
            _row(board, gpu, standing) for gpu in board.gpus for standing in boards.ranked(store.best(board.name, gpu))
        ]
    if out is None:
        _write(sys.stdout, rows, as_json)
        return EXIT_OK
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            _write(file, rows, as_json)
    except OSError as error:
        raise Invalid(f"it can't be written ({error.strerror})", file=out) from None
    show.say(f"{len(rows)} places written to {show.path(out)}")
    return EXIT_OK


def _row(board: Board, gpu: str, row: boards.Standing) -> dict[str, Any]:
    entry = row.entry
    values = (
        board.name, gpu, row.rank, row.best_rank, row.worst_rank, entry.person, entry.person_id, entry.submission_id,
        entry.run_id, entry.score_s, entry.low_s, entry.high_s,
        board.problem.baseline is not None, entry.at.isoformat(), entry.file_name,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _write(file: IO[str], rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        json.dump(rows, file, indent=2)
        file.write("\n")
        return
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _inert(value) for name, value in row.items()})


def _inert(value: Any) -> Any:
    """People choose their names and those of their files: a spreadsheet must not take one for a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
