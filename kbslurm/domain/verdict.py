"""What a run came to, in the one vocabulary of the house, and in the words of those who have others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kbslurm_eval.wire import Report, VerdictName

FOLDERS: dict[VerdictName, str] = {
    "passed": "accepted",
    "wrong": "wrong_answer",
    "error": "crash",
    "timeout": "timeout",
    "memory": "memory",
    "violation": "cheat",
}
POPCORN: dict[VerdictName, Literal["succeeded", "failed", "timed_out", "hacked"]] = {
    "passed": "succeeded",
    "wrong": "failed",
    "error": "failed",
    "timeout": "timed_out",
    "memory": "failed",
    "violation": "hacked",
    "infrastructure": "failed",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The one answer to a run, for ever. `detail` is the report as JSON, when there is one."""

    name: VerdictName
    reason: str
    score_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    isolation: int | None = None
    ranked: bool = False
    detail: dict[str, Any] | None = None


def of_report(report: Report, detail: dict[str, Any], *, min_isolation: int) -> Verdict:
    """The verdict that an accepted report carries. It ranks only from a leaderboard run at the isolation asked for."""
    low, high = report.interval_s or (None, None)
    ranked = (
        report.verdict == "passed"
        and report.mode == "leaderboard"
        and report.score_s is not None
        and report.isolation.level >= min_isolation
    )
    return Verdict(
        name=report.verdict,
        reason=report.reason,
        score_s=report.score_s,
        low_s=low,
        high_s=high,
        isolation=report.isolation.level,
        ranked=ranked,
        detail=detail,
    )
