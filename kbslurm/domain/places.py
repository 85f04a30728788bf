"""A board's standings as a table, for grades and papers: each person's best per GPU type, with unrounded scores."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.domain.board import Standing

COLUMNS = (
    "board", "gpu", "rank", "best_rank", "worst_rank", "person", "person_id", "submission", "run", "score_s", "low_s",
    "high_s", "paired", "submitted_at", "file_name",
)  # fmt: skip


def row(board: str, gpu: str, one: Standing, *, paired: bool) -> dict[str, Any]:
    """One line. `paired`: scores are in units of a baseline's times."""
    entry = one.entry
    values = (
        board, gpu, one.rank, one.best_rank, one.worst_rank, entry.person, entry.person_id,
        entry.submission_id, entry.run_id, entry.score_s, entry.low_s, entry.high_s, paired, entry.at.isoformat(),
        entry.file_name,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in rows:
        writer.writerow({name: _inert(value) for name, value in one.items()})
    return text.getvalue()


def _inert(value: Any) -> Any:
    """People choose their own names and file names: a spreadsheet must not treat one as a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
