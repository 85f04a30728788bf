"""What changed between two submissions to one board: verdicts, scores, and each timed case. Pure; the command line and
the pages say it alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbslurm.domain import access
from kbslurm.domain import board as boards
from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.domain.verdict import Verdict
    from kbslurm.store.views import RunView, SubmissionView

Interval = tuple[float, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One GPU type, or one timed case of it, before and after. `separated`: whether the difference exceeds measurement
    error; None if unknown. `ratio` over one: the newer is faster."""

    gpu: str
    case: str | None
    before: str | None
    after: str | None
    before_s: Interval | None
    after_s: Interval | None

    @property
    def ratio(self) -> float | None:
        return self.before_s[0] / self.after_s[0] if self.before_s and self.after_s and self.after_s[0] > 0 else None

    @property
    def separated(self) -> bool | None:
        one, other = measured(self.before_s), measured(self.after_s)
        return None if one is None or other is None else boards.separated(one, other)


def check_one_board(first: SubmissionView, last: SubmissionView) -> None:
    """Invalid if they are of two boards."""
    if first.board_id != last.board_id:
        raise Invalid(
            f"#{first.id} was submitted to {first.board} and #{last.id} to {last.board}: two boards can't be compared",
            hint="Give two submissions to the same board.",
        )


def pairs(first: SubmissionView, last: SubmissionView) -> Iterator[Pair]:
    """Each GPU type of either, followed by its timed cases, without hidden ones."""
    for gpu in dict.fromkeys(run.gpu for view in (first, last) for run in view.runs):
        old, new = _run_on(first, gpu), _run_on(last, gpu)
        yield Pair(
            gpu=gpu,
            case=None,
            before=_word(old),
            after=_word(new),
            before_s=_score(old.verdict if old else None),
            after_s=_score(new.verdict if new else None),
        )
        before, after = cases_of(old), cases_of(new)
        for case in dict.fromkeys((*before, *after)):
            yield Pair(gpu=gpu, case=case, before=None, after=None, before_s=before.get(case), after_s=after.get(case))


def measured(told: Interval | None) -> boards.Measured | None:
    """A score whose interval is known."""
    if told is None or told[1] is None or told[2] is None or told[0] <= 0 or told[2] <= 0:
        return None
    return boards.Measured(score_s=told[0], low_s=told[1], high_s=told[2])


def change(ratio: float | None, separated: bool | None) -> str:
    """`1.31× faster`, `within measurement error`, or nothing where one of the two is missing."""
    if ratio is None:
        return ""
    if separated is False:
        return "within measurement error"
    return f"{max(ratio, 1 / ratio):.3g}× {'faster' if ratio >= 1 else 'slower'}"


def _run_on(view: SubmissionView, gpu: str) -> RunView | None:
    return next((run for run in view.runs if run.gpu == gpu), None)


def _word(run: RunView | None) -> str | None:
    return None if run is None else run.verdict.name if run.verdict else run.shown_state


def _score(verdict: Verdict | None) -> Interval | None:
    return None if verdict is None or verdict.score_s is None else (verdict.score_s, verdict.low_s, verdict.high_s)


def cases_of(run: RunView | None) -> dict[str, Interval]:
    """The visible timed cases by their spec, from the ranked phase if there is one."""
    detail: Mapping[str, Any] = (run.verdict.detail if run and run.verdict else None) or {}
    rows = access.shown_cases(detail, "benchmarks")
    phase = "ranked" if any(row["phase"] == "ranked" for row in rows) else "benchmark"
    found: dict[str, Interval] = {}
    for row in rows:
        if row["phase"] == phase and row.get("median_ns") is not None:
            low, high = (None if row.get(f"{end}_ns") is None else row[f"{end}_ns"] / 1e9 for end in ("low", "high"))
            found[str(row["spec"])] = (row["median_ns"] / 1e9, low, high)
    return found
