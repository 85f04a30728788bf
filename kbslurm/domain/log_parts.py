"""A run's log by case: what each test and benchmark wrote, as the harness marks it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbslurm.domain import access

_OUTSIDE = {"test": "tests, outside of their cases", "benchmark": "benchmarks, outside of their cases"}


@dataclass(frozen=True, kw_only=True)
class CaseLog:
    """What one case wrote, in all launches. `index` is None for what was written outside of cases, and `phase` too in
    a report from before logs had marks: its whole log."""

    phase: str | None
    index: int | None
    title: str
    status: str | None
    text: str

    @property
    def failed(self) -> bool:
        """Whether this is the log of a case that didn't pass."""
        return self.status not in (None, "pass", "skipped")


def by_case(detail: Mapping[str, Any]) -> list[CaseLog]:
    """The log of a verdict's detail, in the order of each case's first words; nothing where nothing was written."""
    log = str(detail.get("log", ""))
    parts = detail.get("log_parts") or ()
    if not log.strip():
        return []
    if not parts or sum(int(one["size"]) for one in parts) != len(log):
        return [CaseLog(phase=None, index=None, title="", status=None, text=log)]
    rows = [*access.shown_cases(detail, "tests"), *access.shown_cases(detail, "benchmarks")]
    cases = {(row["phase"], row["index"]): row for row in rows}
    texts: dict[tuple[str, int | None], str] = {}
    at = 0
    for one in parts:
        key = one["phase"], one["index"]
        texts[key] = texts.get(key, "") + log[at : at + int(one["size"])]
        at += int(one["size"])
    return [_case_log(phase, index, cases.get((phase, index)), text) for (phase, index), text in texts.items()]


def _case_log(phase: str, index: int | None, row: Mapping[str, Any] | None, text: str) -> CaseLog:
    title = _OUTSIDE.get(phase, phase) if index is None else f"{phase} {index + 1}"
    if row is not None:
        title += f" ({row['spec']})"
    return CaseLog(phase=phase, index=index, title=title, status=None if row is None else str(row["status"]), text=text)
