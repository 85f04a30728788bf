"""A board's standings as a table, for grades and papers: each person's best per GPU type, with unrounded scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.domain import spreadsheet
from kbslurm.domain.archive import Kind
from kbslurm.domain.board import Standing

COLUMNS = (
    "board", "gpu", "rank", "best_rank", "worst_rank", "person", "person_id", "team", "submission", "run", "score_s",
    "low_s", "high_s", "paired", "submitted_at", "file_name",
)  # fmt: skip
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("rank", "best_rank", "worst_rank", "person_id", "submission", "run"), "int"),
    **dict.fromkeys(("score_s", "low_s", "high_s"), "float"),
    "paired": "bool",
}
KINDS: Mapping[str, Kind] = {name: _KINDS.get(name, "text") for name in COLUMNS}
FORMATS = ("csv", "json", "parquet")
NAMES = ("shown_as", "person", "person_id", "team")


def row(board: str, gpu: str, one: Standing, *, paired: bool) -> dict[str, Any]:
    """One line. `paired`: scores are in units of a baseline's times."""
    entry = one.entry
    values = (
        board, gpu, one.rank, one.best_rank, one.worst_rank, entry.person, entry.person_id, entry.team,
        entry.submission_id, entry.run_id, entry.score_s, entry.low_s, entry.high_s, paired, entry.at.isoformat(),
        entry.file_name,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def own_row(gpu: str, one: Standing, of: int) -> dict[str, Any]:
    """Somebody's own place among so many, as they are told it."""
    entry = one.entry
    return {
        "gpu_type": gpu,
        "rank": one.rank,
        "of": of,
        "best_rank": one.best_rank,
        "worst_rank": one.worst_rank,
        "score": entry.score_s,
        "interval": [entry.low_s, entry.high_s],
        "shown_as": entry.person,
    }


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV, with a header."""
    return spreadsheet.as_csv(COLUMNS, rows)


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as a JSON list."""
    return json.dumps(list(rows), indent=2) + "\n"


def names_as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Who is who on a board, as CSV."""
    return spreadsheet.as_csv(NAMES, rows)
