"""Ranked runs that break off, on real Postgres: which do, what their authors and hosts are told, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm.api import full_submission
from kbslurm.domain.run import Ending, OpenAttempt, SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.flow.collect import end_cancelled
from kbslurm.flow.score import Scored, give_up, score, score_own_fault
from kbslurm.store import migrate
from kbslurm.store.rejudgings import Wanted
from kbslurm.store.views import RunView
from kbslurm_eval.shared.wire import PhaseResult
from tests.command_line import CommandLine
from tests.flow import test_submission_page as pages
from tests.flow.puppet import ended, sealed_report
from tests.flow.stage import HandClock, Stage
from tests.flow.test_measuring import PAIRED, board, disturbed, judge, next_attempt
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import GOOD, served

FAILS = ("wrong", "error", "timeout", "memory", "violation")


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, confirm=True)
    yield built
    built.close()


def phases(*passed: str, failed: str) -> list[PhaseResult]:
    told = [*((name, True) for name in passed), (failed, False)]
    return [PhaseResult(name=name, passed=ok, started_at_ns=1, ended_at_ns=2) for name, ok in told]  # type: ignore[arg-type]


def break_off(stage: Stage, verdict: str = "error", *, at: str = "ranked") -> OpenAttempt:
    """The fairest waiting run fails in this phase."""
    stage.clock.go(1)  # type: ignore[attr-defined]
    order = ("test", "benchmark", "ranked", "hidden")
    attempt = next_attempt(stage)
    told: dict[str, Any] = {"verdict": verdict, "reason": f"{at} phase: it ended"}
    told["phases"] = phases(*order[: order.index(at)], failed=at)
    report = sealed_report(stage.store.attempts.work(attempt.id), **told)
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    return attempt


def measured(stage: Stage, *took: float) -> None:
    for one in took:
        stage.clock.go(1)  # type: ignore[attr-defined]
        assert judge(stage, one) is Scored.VERDICT


def submitted(stage: Stage, by: str = "ada") -> SubmissionId:
    return stage.submit(by=by, mode="leaderboard").submission_id


def shown(stage: Stage, number: SubmissionId) -> RunView:
    (run,) = stage.store.submissions.get(number).runs
    return run


def broken(stage: Stage) -> list[bool]:
    return [run["broke_off"] for run in stage.runs()]


@pytest.mark.parametrize("verdict", FAILS)
def test_who_fails_while_being_ranked_is_measured_once_more_and_the_slower_counts(stage: Stage, verdict: str) -> None:
    gone = submitted(stage)
    break_off(stage, verdict)
    assert broken(stage) == [True] and shown(stage, gone).broke_off
    number = submitted(stage)
    measured(stage, 0.400, 0.402)
    assert stage.open_runs() == 1 and board(stage) == [], "one more, for the one that broke off"
    assert shown(stage, number).shown_state == "confirming" and shown(stage, number).measurements == 3
    measured(stage, 0.401)
    assert stage.open_runs() == 0 and board(stage) == [("ada", 0.402)], "the slower of the second and the third"
    run = shown(stage, number)
    assert run.verdict is not None and run.verdict.ranked and run.verdict.score_s == pytest.approx(0.402, rel=1e-4)
    assert "it was measured 3 times" in " ".join(run.remarks) and not run.broke_off
    assert [one["counts"] for one in stage.runs()] == [True, False, True, False]
    assert stage.store.submissions.get(number).is_done


def test_the_last_one_counts_if_it_is_the_slowest(stage: Stage) -> None:
    submitted(stage)
    break_off(stage, at="hidden")
    submitted(stage)
    measured(stage, 0.400, 0.401, 0.403)
    assert board(stage) == [("ada", 0.403)] and [one["counts"] for one in stage.runs()][1:] == [False, False, True]


def test_who_sleeps_instead_is_measured_once_more_too(stage: Stage) -> None:
    """A second measurement that is bad beyond doubt would otherwise be drawn anew by submitting again."""
    submitted(stage)
    measured(stage, 0.400, 0.500)
    assert board(stage) == [("ada", 0.5)]
    submitted(stage)
    measured(stage, 0.400, 0.398)
    assert stage.open_runs() == 1, "0.5 came out slower than 0.4, although it had been as fast at first"
    measured(stage, 0.403)
    assert board(stage)[0] == ("ada", 0.403)
    submitted(stage)
    measured(stage, 0.300, 0.301)
    assert board(stage)[0] == ("ada", 0.301) and stage.open_runs() == 0, "which says nothing of a faster kernel"


def test_a_second_measurement_that_is_faster_beyond_doubt_is_no_draw(stage: Stage) -> None:
    number = submitted(stage)
    measured(stage, 0.500, 0.400)
    assert board(stage) == [("ada", 0.5)] and stage.open_runs() == 0
    assert [one["counts"] for one in stage.runs()] == [True, False]
    (line,) = shown(stage, number).remarks
    assert line.startswith("measured again, it was faster beyond measurement error")


def test_several_add_several_and_never_more_than_five(stage: Stage) -> None:
    for _ in range(7):
        submitted(stage)
        break_off(stage)
    submitted(stage)
    measured(stage, 0.400, *(0.401 + n / 1000 for n in range(5)))
    assert board(stage) == [] and stage.open_runs() == 1
    measured(stage, 0.4)
    assert board(stage) == [("ada", 0.405)] and stage.open_runs() == 0
    assert len(stage.runs()) == 7 + 7


def test_what_fails_in_public_or_by_no_fault_of_its_own_costs_nothing(stage: Stage) -> None:
    for at in ("test", "benchmark"):
        submitted(stage)
        break_off(stage, "wrong", at=at)
    submitted(stage)
    for _ in range(3):
        give_up(stage.store.attempts, next_attempt(stage), Ending.NODE_FAILURE, "the node failed", stage.clock.now())
    stage.submit(mode="benchmark")
    break_off(stage, at="benchmark")
    assert broken(stage) == [False] * 4
    submitted(stage)
    measured(stage, 0.400, 0.401)
    assert board(stage) == [("ada", 0.401)] and stage.open_runs() == 0


def test_a_second_measurement_that_fails_anywhere_leaves_a_trace(stage: Stage) -> None:
    number = submitted(stage)
    measured(stage, 0.4)
    break_off(stage, "wrong", at="test")
    assert board(stage) == [] and stage.open_runs() == 0 and broken(stage) == [False, True]
    run = shown(stage, number)
    assert run.broke_off and "although its first measurement had passed" in run.remarks[0]
    told = full_submission.as_json(stage.store.submissions.get(number))
    assert told["runs"][0]["broke_off"] is True
    assert full_submission.from_json(told).runs[0].remarks == run.remarks
    events = [event.data for event in stage.store.events.after(0) if event.kind == "run.scored"]  # type: ignore[arg-type]
    assert [data.get("broke_off") for data in events] == [None, True]
    submitted(stage)
    measured(stage, 0.400, 0.410, 0.400)
    assert board(stage) == [("ada", 0.41)]


def running(stage: Stage, phase: str | None) -> OpenAttempt:
    attempt = next_attempt(stage)
    if phase is not None:
        stage.store.attempts.note_told({attempt.id: {"progress": {"phase": phase}}})
    return next(a for a in stage.store.attempts.open() if a.id == attempt.id)


@pytest.mark.parametrize(
    ("by", "phase", "counts"),
    [
        ("ada", "ranked", True),
        ("ada", "hidden", True),
        ("ada", None, True),
        ("ada", "test", False),
        ("ada", "benchmark", False),
        ("host", "ranked", False),
    ],
)
def test_who_cancels_a_run_that_is_being_ranked_has_broken_it_off(
    stage: Stage, by: str, phase: str | None, counts: bool
) -> None:
    """A kernel that is unlucky could sleep, and its author see it."""
    stage.person("host", staff=True)
    number = submitted(stage)
    attempt = running(stage, phase)
    cancel(stage.store.submissions, number, stage.person(by), stage.clock.now())
    end_cancelled(stage.store.attempts, attempt, stage.clock.now())
    assert broken(stage) == [counts] and stage.run()["state"] == "cancelled"
    submitted(stage)
    measured(stage, 0.400, 0.402)
    assert stage.open_runs() == counts


def test_who_cancels_a_run_whose_node_then_fails_has_broken_it_off(stage: Stage) -> None:
    number = submitted(stage)
    attempt = running(stage, "ranked")
    cancel(stage.store.submissions, number, stage.person("ada"), stage.clock.now())
    give_up(stage.store.attempts, attempt, Ending.NODE_FAILURE, "the node failed", stage.clock.now())
    assert broken(stage) == [True] and stage.run()["state"] == "cancelled"


def test_who_cancels_a_queued_run_has_broken_off_nothing_but_a_second_measurement(stage: Stage) -> None:
    ada = stage.person("ada")
    cancel(stage.store.submissions, submitted(stage), ada, stage.clock.now())
    assert broken(stage) == [False]
    number = submitted(stage)
    measured(stage, 0.4)
    cancel(stage.store.submissions, number, ada, stage.clock.now())
    assert broken(stage) == [False, False, True] and shown(stage, number).broke_off


def test_a_second_measurement_that_the_service_drops_isnt_broken_off(stage: Stage) -> None:
    attempts = [(submitted(stage), next_attempt(stage))[1] for _ in range(2)]
    for attempt, took in zip(attempts, (0.400, 0.401), strict=True):
        report = sealed_report(stage.store.attempts.work(attempt.id), score_s=took, interval_s=[0, took * 1.02])
        score(stage.store, attempt, report, stage.clock.now())
    measured(stage, 0.400)
    stage.store.calibrations.tend(stage.clock.now())
    assert stage.open_runs() == 0 and broken(stage) == [False] * 4


@pytest.mark.parametrize(("phase", "counts"), [("ranked", True), ("hidden", True), ("test", False)])
def test_a_job_that_was_killed_at_its_own_limit_broke_off_where_it_was_then(
    stage: Stage, phase: str, counts: bool
) -> None:
    submitted(stage)
    attempt = running(stage, phase)
    score_own_fault(stage.store, attempt, ended(Ending.MEMORY), Ending.MEMORY, stage.clock.now())
    assert (stage.run()["verdict"], stage.run()["broke_off"]) == ("memory", counts)


def test_members_of_a_team_break_off_for_one_another_and_for_nobody_else(stage: Stage) -> None:
    stage.rows("UPDATE leaderboard SET teams = true RETURNING id")
    for name, team in (("ada", "red"), ("bea", "red"), ("cyd", "blue")):
        stage.store.people.set_team(stage.person(name), team, by="host", now=stage.clock.now())
    submitted(stage, "ada")
    break_off(stage)
    submitted(stage, "cyd")
    measured(stage, 0.300, 0.301)
    assert board(stage) == [("blue", 0.301)] and stage.open_runs() == 0
    submitted(stage, "bea")
    measured(stage, 0.400, 0.402)
    assert stage.open_runs() == 1
    break_off(stage, at="test")
    submitted(stage, "ada")
    measured(stage, 0.400, 0.401, 0.404)
    assert stage.open_runs() == 1, "bea's third measurement broke off, too"
    measured(stage, 0.402)
    assert board(stage) == [("blue", 0.301), ("red", 0.404)] and stage.open_runs() == 0


def test_what_was_done_for_another_team_stays_with_that_team(stage: Stage) -> None:
    stage.rows("UPDATE leaderboard SET teams = true RETURNING id")
    for name in ("ada", "bea"):
        stage.store.people.set_team(stage.person(name), "red", by="host", now=stage.clock.now())
    submitted(stage, "ada")
    break_off(stage)
    stage.store.people.set_team(stage.person("ada"), "blue", by="host", now=stage.clock.now())
    submitted(stage, "ada")
    measured(stage, 0.400, 0.401)
    assert stage.open_runs() == 0
    submitted(stage, "bea")
    measured(stage, 0.300, 0.301)
    assert stage.open_runs() == 1, "it was for bea's"


def test_another_gpu_type_and_other_people_are_not_concerned(database_url: str) -> None:
    stage = Stage.build(database_url, confirm=True, gpus=("A100", "H100"))
    stage.submit(mode="leaderboard", gpus=("H100",))
    stage.rows("UPDATE run SET gpu = 'A100' RETURNING id")
    break_off(stage)
    stage.rows("UPDATE run SET gpu = 'H100' RETURNING id")
    stage.submit(mode="leaderboard", gpus=("A100",))
    measured(stage, 0.400, 0.401)
    stage.submit(by="bob", mode="leaderboard", gpus=("A100",))
    measured(stage, 0.500, 0.501)
    assert stage.open_runs() == 0 and board(stage) == [("ada", 0.401), ("bob", 0.501)]
    stage.close()


@pytest.mark.parametrize(("more", "left"), [(15, 1), (16, 0)])
def test_it_is_forgotten_after_twenty_more_measurements(stage: Stage, more: int, left: int) -> None:
    submitted(stage)
    break_off(stage)
    submitted(stage)
    measured(stage, 0.400, 0.401, 0.402)
    for n in range(more):
        submitted(stage)
        measured(stage, 0.5 + n / 100)
    submitted(stage)
    measured(stage, 0.300, 0.301)
    assert stage.open_runs() == left


def test_a_board_without_confirmation_has_its_luck_and_hosts_are_told(stage: Stage) -> None:
    stage.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    for _ in range(4):
        submitted(stage)
        break_off(stage)
    submitted(stage)
    measured(stage, 0.4)
    assert board(stage) == [("ada", 0.4)] and stage.open_runs() == 0
    submitted(stage)
    attempt = next_attempt(stage)
    score(stage.store, attempt, disturbed(stage.store.attempts.work(attempt.id)), stage.clock.now())
    measured(stage, 0.01)
    assert stage.open_runs() == 0, "a disturbed run is measured again, but no more often"
    (found,) = [one for one in stage.store.overview.attention(now=stage.clock.now()) if one.kind == "broken_off"]
    assert "4 of the last 7 ranked measurements of ada on board (A100) broke off" in found.text
    assert "kbslurm submission code 1 2 3 4 --out DIR" in found.text


def test_hosts_are_told_once_it_is_more_than_chance_and_for_a_week(stage: Stage) -> None:
    def told() -> list[str]:
        return [
            one.subject for one in stage.store.overview.attention(now=stage.clock.now()) if one.kind == "broken_off"
        ]

    for _ in range(2):
        submitted(stage)
        break_off(stage)
    assert told() == [], "two may be chance"
    submitted(stage)
    measured(stage, 0.400)
    break_off(stage, at="test")
    assert told() == [f"person:{stage.person('ada')}"]
    stage.clock.go(8 * 86_400)  # type: ignore[attr-defined]
    assert told() == []


def test_status_says_so_and_what_next(stage: Stage, database_url: str, tmp_path: Path) -> None:
    for _ in range(3):
        submitted(stage)
        break_off(stage)
    stage.rows("UPDATE run SET ended_at = now() WHERE broke_off RETURNING id")
    said = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})("status", "--json").json()
    (row,) = [one for one in said["attention"] if one["kind"] == "broken_off"]
    assert "3 of the last 3 ranked measurements of ada" in row["text"] and "kbslurm submission code" in row["text"]


def test_its_author_and_hosts_see_it_on_their_pages(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path, clock=HandClock()) as api:
        told = {"verdict": "error", "reason": "ranked phase: it ended"}
        broken = phases("test", "benchmark", failed="ranked")
        numbers = [pages.submitted(api, "ada", GOOD, "leaderboard", **told, phases=broken) for _ in range(3)]
        early = pages.submitted(api, "ada", GOOD, "leaderboard", **told, phases=phases("test", failed="benchmark"))
        assert "It broke off while it was being ranked: for each such run" in pages.seen(api, "ada", f"/s/{numbers[0]}")
        assert "broke off" not in pages.seen(api, "ada", f"/s/{early}")
        with browsing(api, "hana", "owner") as hana:
            assert "it broke off while it was being ranked" in hana.get(f"/staff/submissions/{numbers[0]}").text
            overview = hana.get("/staff").text
        ada = api.store.people.ensure("ada").id
        assert "3 of the last 3 ranked measurements of ada on transpose (H100) broke off" in overview
        assert f'href="/staff/people/{ada}"' in overview and "ask its author" in overview


def test_a_database_before_this_keeps_two_measurements_of_each(stage: Stage) -> None:
    submitted(stage)
    break_off(stage)
    submitted(stage)
    measured(stage, 0.400, 0.402, 0.401)
    submitted(stage)
    measured(stage, 0.300, 0.301, 0.302)
    scores = board(stage)
    migrate.downgrade(stage.url, "0036")
    assert len(stage.rows("SELECT id FROM run")) == 1 + 2 + 2 and board(stage) == scores
    migrate.upgrade(stage.url)
    told = stage.rows("SELECT second, measurement, broke_off FROM run ORDER BY id")
    assert [(row["second"], row["measurement"]) for row in told] == [(False, 1), *[(False, 1), (True, 2)] * 2]
    assert board(stage) == scores and not any(row["broke_off"] for row in told)


def test_a_rejudge_counts_once_it_is_applied(stage: Stage) -> None:
    number = submitted(stage)
    measured(stage, 0.400, 0.401)
    stage.store.rejudgings.order("board", Wanted(), None, by="host", now=stage.clock.now())
    break_off(stage)
    submitted(stage)
    measured(stage, 0.300, 0.301)
    assert board(stage) == [("ada", 0.301), ("ada", 0.401)] and stage.open_runs() == 0, "nobody may know of it yet"
    stage.store.rejudgings.apply("board", by="host", now=stage.clock.now())
    assert board(stage) == [("ada", 0.301)] and shown(stage, number).broke_off
    submitted(stage)
    measured(stage, 0.200, 0.201)
    assert stage.open_runs() == 1
    measured(stage, 0.203)
    assert board(stage)[0] == ("ada", 0.203)


def test_what_was_taken_back_still_stands_among_several_measurements(stage: Stage) -> None:
    first = submitted(stage)
    measured(stage, 0.400, 0.410)
    stage.store.submissions.take_back(first, "ada", stage.clock.now(), stage.person("ada"))
    submitted(stage)
    break_off(stage)
    submitted(stage)
    measured(stage, 0.400, 0.404, 0.400)
    assert board(stage) == [("ada", 0.41)], "the score that was drawn stays"


def test_who_fails_in_a_final_keeps_the_slow_end_of_the_interval(database_url: str) -> None:
    stage = Stage.build(database_url, problem=PAIRED)
    assert judge(stage, 0.5, baseline_s=0.5) is Scored.VERDICT
    for name, took in (("ada", 0.40), ("bob", 0.401)):
        submitted(stage, name)
        measured(stage, took)
    stage.store.finals.order("board", "A100", 2, by="host", now=stage.clock.now())
    attempt = next_attempt(stage)
    report = sealed_report(stage.store.attempts.work(attempt.id), score_s=1.0, baseline_s=0.5, rivals=(None, 0.401))
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    stage.store.finals.apply("board", "A100", by="host", now=stage.clock.now())
    (bob, ada) = stage.store.standings.scored("board", "A100")
    assert (bob.person, ada.person) == ("bob", "ada") and ada.score_s == ada.high_s == pytest.approx(0.408, rel=1e-3)
    stage.close()
