"""The history checker: what must be true of the rows and folders after any storm, whatever was killed in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.flow.stage import Stage

ENDS = {"run.scored": "scored", "run.failed": "failed", "run.cancelled": "cancelled"}
ONCE_PER_ATTEMPT = {"run.launching", "attempt.submitted", "run.running", "run.requeued"}


def check(stage: Stage, attempts: Path | None = None) -> None:
    """Every law that a history can show to be broken, for all runs of this database."""
    runs = {run["id"]: run for run in stage.runs()}
    tries: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for attempt in stage.rows("SELECT * FROM attempt ORDER BY run_id, number"):
        tries[attempt["run_id"]].append(attempt)
    told: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in stage.rows("SELECT * FROM event WHERE subject LIKE 'run:%%' ORDER BY id"):
        told[int(event["subject"].removeprefix("run:"))].append(event)
    assert set(told) == set(runs)
    for run in runs.values():
        _one_end(run, told[run["id"]])
        _fenced_attempts(run, tries[run["id"]])
        _no_event_twice(told[run["id"]])
        _moves_in_order(run, told[run["id"]])
    names = Counter(attempt["name"] for some in tries.values() for attempt in some)
    assert max(names.values(), default=1) == 1
    if attempts is not None:
        for some in tries.values():
            for attempt in some:
                _ran_at_most_once(attempt, attempts)


def _one_end(run: dict[str, Any], events: list[dict[str, Any]]) -> None:
    ends = [ENDS[event["kind"]] for event in events if event["kind"] in ENDS]
    assert ends == [run["state"]], (run, ends)
    assert (run["verdict"] is None) == (run["state"] == "cancelled"), run
    assert (run["verdict"] == "infrastructure") == (run["state"] == "failed"), run


def _fenced_attempts(run: dict[str, Any], attempts: list[dict[str, Any]]) -> None:
    assert [attempt["number"] for attempt in attempts] == list(range(1, run["attempts"] + 1))
    assert all(attempt["ended_at"] is not None for attempt in attempts), attempts
    assert sum(attempt["ending"] != "withdrawn" for attempt in attempts) <= 3


def _no_event_twice(events: list[dict[str, Any]]) -> None:
    seen = Counter((event["kind"], event["data"].get("attempt")) for event in events)
    twice = {key: n for key, n in seen.items() if n > 1 and key[0] in ONCE_PER_ATTEMPT | {"run.queued"}}
    assert not twice, (twice, events)


def _moves_in_order(run: dict[str, Any], events: list[dict[str, Any]]) -> None:
    assert events[0]["kind"] == "run.queued"
    kinds = [event["kind"] for event in events]
    end = next(n for n, kind in enumerate(kinds) if kind in ENDS)
    assert set(kinds[end + 1 :]) <= {"report.stale"}, kinds
    launches = [event["data"]["attempt"] for event in events if event["kind"] == "run.launching"]
    assert launches == list(range(1, run["attempts"] + 1))


def _ran_at_most_once(attempt: dict[str, Any], attempts: Path) -> None:
    ran = len(list((attempts / attempt["name"]).glob("ran-*")))
    assert ran <= 1, (attempt, ran)
    if attempt["state"] == "reported":
        assert ran == 1, attempt
