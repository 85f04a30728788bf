"""Work logs: how much of one is told at once, and one as a table with a line for each run of each submission. Pure."""

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

AT_ONCE = 200  # submissions
MOST_LINES = 4_000  # of a source that is compared
LINES_AT_ONCE = 200_000  # of all that are: some seconds
DIFF_CAP = 50_000  # characters
DIFFS_CAP = 2_000_000  # of all together
FEW = 200  # characters that are told in any case


def told(text: str, so_far: int) -> str:
    """Changed lines as they are told, if those before them have so many characters: cut where they are too many."""
    left = min(DIFF_CAP, DIFFS_CAP - so_far)
    if len(text) <= max(left, FEW):
        return text
    kept = text[: max(0, left)].rpartition("\n")[0]
    more = text.count("\n", len(kept)) if kept else text.count("\n") + 1
    return f"{kept}\n(more lines, which aren't shown: {more:,})".lstrip("\n")


def part_in_words(log: Mapping[str, Any]) -> str:
    """Which of their submissions these are; empty if they are all."""
    here, first = len(log["submissions"]), log["earlier"] + 1
    if here == log["of"]:
        return ""
    which = f"{first:,} to {first + here - 1:,}" if here else "none"
    said = f"Not everything is here, but {which} of {log['of']:,} submissions."
    return f"{said} The next ones come after #{log['next_after']}." if log["next_after"] else said


def as_csv(log: Mapping[str, Any]) -> str:
    """The table as CSV; the changed lines are only on the page. The last line says if it isn't all of them."""
    return spreadsheet.as_csv(COLUMNS, _rows(log))


def _rows(log: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in log["submissions"]:
        shared = {name: one[name] for name in _OF_SUBMISSION}
        for run in one["runs"] or [{}]:
            yield {
                **shared,
                **{name: run.get(name) for name in _OF_RUN},
                "profile": "; ".join(run.get("profile") or ()),
            }
    if said := part_in_words(log):
        yield {**dict.fromkeys(COLUMNS), "submission": said}
