"""What came of a run, in one sentence that stands at the top of its page, and what to do next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kbslurm.api.pages.rendering import isolated
from kbslurm.domain import access, first_difference, next_steps, places
from kbslurm.domain.amounts import counted, ordinal, score, seconds
from kbslurm.domain.verdict import Verdict, why_unranked
from kbslurm.store.views import RunView

Kind = Literal["good", "bad", "warn", "busy"]

LONGEST = 200  # of a message in the sentence; all of it stands below
_BEGINS = {
    "wrong": "Wrong",
    "error": "Error",
    "timeout": "Out of time",
    "memory": "Out of memory",
    "violation": "Not allowed",
    "infrastructure": "No verdict",
}
_OPEN = {
    "queued": "Waiting for {gpu}",
    "launching": "Starting on {gpu}",
    "running": "Running on {gpu}",
    "confirming": "Being measured again on {gpu}",
    "calibrating": "Waiting for the board's reference times on {gpu}",
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`begins` is its first words, `says` the rest of the sentence, without its full stop; `more` are further ones."""

    kind: Kind
    begins: str
    says: str
    more: tuple[str, ...]
    next: str

    @property
    def colon(self) -> str:
        """Between the two: nothing where the sentence just goes on."""
        return ":" if self.says and not self.says.startswith("on ") else ""


def outcome(run: RunView, mode: str, place: Mapping[str, Any] | None) -> Outcome:
    """`place`: what it came to among the others, as its author is told it; None if it didn't rank."""
    verdict = run.verdict
    if verdict is None:
        return _without_verdict(run)
    not_ranked = why_unranked(verdict, mode)
    if verdict.name == "passed":
        after = next_steps.after("passed", mode, not_ranked=not_ranked)
        if mode == "profile":
            after = "The profile below says what limits the kernel and what to try."
        if place is not None and not place["stands"]:
            after = "" if place["place"] is None else "Your earlier score counts, since this one isn't faster for sure."
        says, more = _passed(run, verdict, mode, place)
        return Outcome(kind="good", begins="Passed", says=says, more=more, next="" if not_ranked else after)
    kind: Kind = "warn" if verdict.name == "infrastructure" else "bad"
    return Outcome(
        kind=kind,
        begins=_BEGINS[verdict.name],
        says=_failed(run, verdict),
        more=(),
        next=next_steps.after(verdict.name, mode),
    )


def _without_verdict(run: RunView) -> Outcome:
    if run.ended_at is None:
        begins = _OPEN[run.shown_state].format(gpu=run.gpu)
        return Outcome(kind="busy", begins=begins, says="", more=(), next="")
    if run.state.value == "cancelled":
        return Outcome(
            kind="warn", begins="Cancelled", says=f"on {run.gpu}", more=(), next=next_steps.after("cancelled", "")
        )
    why = f"{run.reason} on {run.gpu}" if run.reason else f"no report came from {run.gpu}"
    return Outcome(kind="warn", begins="No verdict", says=why, more=(), next=next_steps.after("infrastructure", ""))


def _passed(run: RunView, verdict: Verdict, mode: str, place: Mapping[str, Any] | None) -> tuple[str, tuple[str, ...]]:
    if verdict.score_s is None:
        tests = len(access.shown_cases(verdict.detail or {}, "tests"))
        return (f"all {counted(tests, 'test')} on {run.gpu}" if tests else f"on {run.gpu}"), ()
    took = score(verdict.score_s, verdict.low_s, verdict.high_s, ranked=verdict.ranked)
    if place is None:
        return f"{took} on {run.gpu}", ()
    more = [f"{place['remark'][:1].upper()}{place['remark'][1:]}"] if place["remark"] else []
    if (before := place["before"]) is not None:
        best = f"your best before it, #{before['submission_id']} ({score(before['score'])})"
        compared = places.compared_in_words(before, best)
        more.append(f"{compared[:1].upper()}{compared[1:]}")
    return ", ".join([took, *_rank(run.gpu, place), *_gap(verdict.score_s, place)]), tuple(more)


def _rank(gpu: str, told: Mapping[str, Any]) -> list[str]:
    place = told["place"]
    if place is None:
        return [f"on {gpu}"]
    rank = f"{ordinal(place['rank'])} of {place['of']} on {gpu}"
    if told["stands"]:
        return [rank]
    by = "" if place["submission_id"] is None else f" with #{place['submission_id']}"
    return [f"and you stay {rank}{by}"]


def _gap(score_s: float, told: Mapping[str, Any]) -> list[str]:
    """How far it is behind the leader, or the second behind it."""
    place, leader = told["place"], told["leader"]
    if leader is not None:
        return [_behind(score_s, leader, f"{isolated(leader['shown_as'])}, who leads")]
    if place is None or not told["stands"] or place["rank"] != 1:
        return []
    second = next((row for row in place["neighbours"] if row["rank"] == 2), None)
    if second is None:
        return []
    whom = isolated(second["shown_as"])
    if not second["separated"]:
        return [f"within measurement error of {whom}"]
    return [f"{seconds(abs(second['score'] - score_s))} ahead of {whom}"]


def _behind(score_s: float, row: Mapping[str, Any], whom: str) -> str:
    if not row["separated"]:
        return f"within measurement error of {whom}"
    return f"{seconds(abs(score_s - row['score']))} {'behind' if score_s > row['score'] else 'ahead of'} {whom}"


def _failed(run: RunView, verdict: Verdict) -> str:
    detail = verdict.detail or {}
    kinds: tuple[access.CaseList, ...] = ("tests", "benchmarks")
    for which in kinds:
        rows = access.shown_cases(detail, which)
        failed = [row for row in rows if row["status"] not in ("pass", "skipped")]
        if failed and verdict.name in ("wrong", "error", "timeout", "memory"):
            return f"{_first(failed, 'test' if which == 'tests' else 'benchmark')} on {run.gpu}"
    return f"{_short(verdict.reason)} on {run.gpu}" if verdict.reason else f"on {run.gpu}"


def _first(failed: Sequence[Mapping[str, Any]], kind: str) -> str:
    row = failed[0]
    which = f"{kind} {int(row['index']) + 1} ({row['spec']})"
    found = first_difference.of_message(str(row.get("message") or ""))
    if found is not None:
        which += f" differs at {found.where}"
    elif row.get("message"):
        which += f": {_short(str(row['message']))}"
    others = len(failed) - 1
    return f"{which}, and {counted(others, 'other')} failed" if others else which


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1].rstrip()}…"
