"""A work log as a table: a line for each run of each submission. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbslurm.domain import spreadsheet

_OF_SUBMISSION = (
    "submission", "person", "at", "mode", "file_name", "via", "late_s", "deleted", "compared_with", "lines_added",
    "lines_removed",
)  # fmt: skip
_OF_RUN = (
    "gpu", "state", "verdict", "reason", "score_s", "low_s", "high_s", "ranked", "ended_at", "waited_s", "ran_s",
    "profile",
)  # fmt: skip
COLUMNS = (*_OF_SUBMISSION, *_OF_RUN)


def as_csv(log: Mapping[str, Any]) -> str:
    """The table as CSV; the changed lines are only on the page."""
    return spreadsheet.as_csv(COLUMNS, _rows(log))


def _rows(log: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in log["submissions"]:
        told = {name: one[name] for name in _OF_SUBMISSION}
        for run in one["runs"] or [{}]:
            yield {**told, **{name: run.get(name) for name in _OF_RUN}, "profile": "; ".join(run.get("profile") or ())}
