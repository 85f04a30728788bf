"""Verdicts, in our own vocabulary and in those of other systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kbslurm.domain.gpu_models import is_another_model
from kbslurm_eval.shared.timing import UNRESOLVED, RankingBy, that_count
from kbslurm_eval.shared.wire import Report, VerdictName

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
    """A run's single, final verdict. `detail` is the report as JSON, if there is one."""

    name: VerdictName
    reason: str
    score_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    isolation: int | None = None
    ranked: bool = False
    detail: dict[str, Any] | None = None


def of_report(
    report: Report, detail: dict[str, Any], *, min_isolation: int, ranking_by: RankingBy = "geom", gpu: str = ""
) -> Verdict:
    """The verdict of an accepted report. It ranks only for a leaderboard run, at the required isolation, on a device
    that can be the GPU type it ran for, and with times that are measurable above the cost of a call: otherwise there is
    only an upper bound, which isn't a score."""
    low, high = report.interval_s or (None, None)
    could_rank = report.verdict == "passed" and report.mode == "leaderboard" and report.score_s is not None
    barred = too_short(report, ranking_by)
    if could_rank and barred is None and report.isolation.level < min_isolation:
        barred = (
            f"passed, but at isolation level {report.isolation.level}, and runs rank from level {min_isolation} on here"
        )
    device = _device(report)
    if could_rank and barred is None and is_another_model(gpu, device):
        barred = f"passed, but the place gave it a {device} instead of the {gpu} that this board ranks"
    ranked = could_rank and barred is None
    return Verdict(
        name=report.verdict,
        reason=report.reason if barred is None else barred,
        score_s=report.score_s,
        low_s=low,
        high_s=high,
        isolation=report.isolation.level,
        ranked=ranked,
        detail=detail,
    )


def _device(report: Report) -> str:
    """The name of the GPU that the judge itself used; empty if it used none."""
    told = report.host.get("device")
    name = told.get("name") if isinstance(told, dict) else None
    return name[:100] if isinstance(name, str) else ""


def why_unranked(found: Verdict | None, mode: str) -> str | None:
    """Why a run that passed on a leaderboard doesn't rank; None if it does, failed, or was never meant to."""
    if found is None or found.name != "passed" or found.ranked or mode != "leaderboard":
        return None
    return found.reason or "its time doesn't count on the board"


def too_short(report: Report, ranking_by: RankingBy) -> str | None:
    """The message if a passed leaderboard run is too short to be measured and so can't rank; None if it can."""
    if report.verdict != "passed" or report.mode != "leaderboard":
        return None
    short = [b for b in that_count(report.benchmarks, "ranked", ranking_by) if UNRESOLVED in b.flags]
    if not short:
        return None
    which = f"benchmark {short[0].index + 1} ({short[0].spec})"
    if len(short) > 1:
        which += f" and {len(short) - 1} more"
    return f"passed, but {which} is too short to be timed there, so it isn't ranked; ask a host for larger cases"
