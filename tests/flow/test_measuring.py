"""Reference times, second measurements and the charts of nodes, on real Postgres: what a ranked score is made of."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest

from kbslurm.api import popcorn_submission
from kbslurm.api.pages.people import submission_runs
from kbslurm.api.server import context_of
from kbslurm.config.settings import Config
from kbslurm.contract.rankings import FinalTold
from kbslurm.domain import board as boards
from kbslurm.domain import measure
from kbslurm.domain.run import Ending, OpenAttempt, RunState, SubmissionId, Work
from kbslurm.domain.verdict import Verdict
from kbslurm.flow.place import Place
from kbslurm.flow.remove import remove
from kbslurm.flow.score import Scored, give_up, score
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.rejudgings import Wanted
from kbslurm.store.scores import Scores
from kbslurm.store.second_measurements import TEND_LOCK
from kbslurm_eval.shared import timing, wire
from kbslurm_eval.shared.wire import seal, unseal
from tests import demo_stage
from tests.command_line import CommandLine
from tests.flow.puppet import RUNNING, Puppet, sealed_report
from tests.flow.stage import PROBLEM, Stage
from tests.popcorn.served_api import serving

PLACE = Place(backend=Puppet(slots={"A100": 9}))
PAIRED = dataclasses.replace(PROBLEM, config={"baseline": "def custom_kernel(data):\n    return data\n"})


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, problem=PAIRED, confirm=True)
    yield built
    built.close()


@pytest.fixture
def plain(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, confirm=True)
    yield built
    built.close()


def next_attempt(stage: Stage) -> OpenAttempt:
    stage.store.calibrations.tend(stage.clock.now())
    attempt = stage.claim(PLACE)
    assert stage.store.attempts.note_seen(attempt, RUNNING, stage.clock.now())
    return next(a for a in stage.store.attempts.open() if a.id == attempt.id)


def judge(stage: Stage, score_s: float, *, baseline_s: float = 0.5, verdict: str = "passed") -> Scored:
    """The fairest waiting run took this long."""
    attempt = next_attempt(stage)
    told: dict[str, object] = {"score_s": score_s, "baseline_s": baseline_s, "interval_s": [0, score_s * 1.02]}
    if verdict != "passed":
        told = {"verdict": verdict, "phases": [], "reason": "so"}
    return score(stage.store, attempt, sealed_report(stage.store.attempts.work(attempt.id), **told), stage.clock.now())


def board(stage: Stage) -> list[tuple[str, float]]:
    return [(entry.person, round(entry.score_s, 4)) for entry in stage.store.standings.scored("board", "A100")]


def state(stage: Stage) -> str:
    held = stage.store.boards.find("board")
    assert held is not None
    return stage.store.calibrations.of_board(held)["A100"].state


def standing(stage: Stage, submission: SubmissionId) -> str:
    (run,) = stage.store.submissions.get(submission).runs
    return run.shown_state


def test_ranked_runs_wait_for_the_reference_times_and_are_scored_in_them(stage: Stage) -> None:
    ours = stage.submit(by="ada", mode="leaderboard").submission_id
    assert state(stage) == "calibrating" and standing(stage, ours) == "calibrating"
    quick = stage.submit(by="bob", mode="test").submission_id
    assert judge(stage, 0.5, baseline_s=0.25) is Scored.VERDICT  # the service's own, first of all
    assert state(stage) == "calibrated" and board(stage) == []
    assert standing(stage, ours) == "queued", "the same statement lets go of what waited"
    judge(stage, 0.5)
    assert standing(stage, quick) == "scored" or standing(stage, ours) != "queued"
    # On a node that is twice as slow, four times the baseline's time there is four times the reference time.
    while stage.open_runs():
        judge(stage, 2.0, baseline_s=0.5)
    assert board(stage) == [("ada", 1.0)]
    held = stage.store.boards.find("board")
    assert held is not None and held.submissions == 2, "the service's own submission is on no list"
    assert [round(one, 6) for one in stage.store.calibrations.of_board(held)["A100"].b_ref_s or ()] == [0.25]
    assert stage.store.calibrations.tend(stage.clock.now()) == 0


def test_reference_times_are_never_changed_and_each_version_has_its_own(stage: Stage) -> None:
    judge(stage, 0.5, baseline_s=0.25)
    with pytest.raises(Exception, match="never changed"):
        stage.rows("UPDATE calibration SET b_ref_s = '{1}'")
    stage.submit(by="ada", mode="leaderboard")
    while stage.open_runs():
        judge(stage, 0.25, baseline_s=0.25)
    version = stage.store.problems.add(dataclasses.replace(PAIRED, tests=({"seed": 9},)))
    stage.store.rejudgings.order("board", Wanted(), version, by="host", now=stage.clock.now())
    assert [run["held"] for run in stage.runs() if run["ended_at"] is None] == [True]
    judge(stage, 0.5, baseline_s=0.75)
    judge(stage, 0.5, baseline_s=0.5)
    assert stage.open_runs() == 0, "what hosts order again isn't measured twice"
    stage.store.rejudgings.apply("board", by="host")
    assert board(stage) == [("ada", 0.75)]


def test_a_calibration_that_fails_is_ordered_again_later_and_the_board_says_so(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    stage.submit(by="ada", mode="leaderboard")
    assert judge(stage, 0.5, verdict="wrong") is Scored.VERDICT
    assert state(stage) == "failed"
    assert stage.store.calibrations.tend(stage.clock.now()) == 0, "not at once again"
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    told = kbslurm("board", "board", "--json").json()
    assert told["paired"] and told["calibration"]["A100"]["state"] == "failed"
    assert "calibrating: the last attempt failed" in kbslurm("board", "board").out
    stage.clock.go(measure.AGAIN_AFTER_S + 1)  # type: ignore[attr-defined]
    judge(stage, 0.5)
    assert state(stage) == "calibrated"


def test_an_improvement_is_measured_once_more_and_the_second_score_counts(plain: Stage) -> None:
    first = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.4)
    assert board(plain) == [] and standing(plain, first) == "confirming"
    view = plain.store.submissions.get(first)
    assert not view.is_done and view.runs[0].first_score_s == pytest.approx(0.4, rel=1e-4)
    judge(plain, 0.6)
    assert board(plain) == [("ada", 0.6)] and plain.store.submissions.get(first).is_done
    slower = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.7)
    assert plain.open_runs() == 0 and standing(plain, slower) == "scored", "what improves nothing isn't confirmed"
    near = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.595)
    (run,) = plain.store.submissions.get(near).runs
    assert run.verdict is not None and not run.verdict.ranked and "your previous score stands" in run.verdict.reason
    plain.submit(by="ada", mode="leaderboard")
    judge(plain, 0.5)  # lucky
    judge(plain, 0.65)  # and not again
    judge(plain, 0.66)  # once more, since 0.6 had been 0.4 at first
    assert board(plain)[0] == ("ada", 0.6)
    counts = [(run["second"], run["counts"]) for run in plain.runs()]
    firsts = [(False, False), (True, True), (False, True), (False, True), (False, False)]
    assert counts == [*firsts, (True, False), (True, True)]


def test_where_teams_count_together_it_is_the_teams_score_that_is_improved(plain: Stage) -> None:
    plain.rows("UPDATE leaderboard SET teams = true RETURNING id")
    for name in ("ada", "bea"):
        plain.store.people.set_team(plain.person(name), "red", by="host", now=plain.clock.now())
    plain.submit(by="ada", mode="leaderboard")
    judge(plain, 0.4)
    judge(plain, 0.6)
    assert board(plain) == [("red", 0.6)]
    plain.submit(by="bea", mode="leaderboard")
    judge(plain, 0.7)
    assert plain.open_runs() == 0, "her first one improves nothing for her team"
    near = plain.submit(by="bea", mode="leaderboard").submission_id
    judge(plain, 0.595)
    (run,) = plain.store.submissions.get(near).runs
    assert run.verdict is not None and not run.verdict.ranked, "nor does what is as fast as ada's"
    plain.store.people.set_team(plain.person("ada"), "blue", by="host", now=plain.clock.now())
    plain.submit(by="ada", mode="leaderboard")
    judge(plain, 0.598)
    assert plain.open_runs() == 1, "what she did for another team isn't this one's"
    judge(plain, 0.61)
    assert board(plain) == [("red", 0.6), ("blue", 0.61), ("red", 0.7)]


@pytest.mark.parametrize("fate", ["wrong", "timeout", "infrastructure", "cancelled"])
def test_a_second_measurement_that_does_not_pass_leaves_no_score(plain: Stage, fate: str) -> None:
    number = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.4)
    if fate == "cancelled":
        plain.store.submissions.cancel(number, None, plain.clock.now())
    elif fate == "infrastructure":
        for _ in range(3):
            give_up(
                plain.store.attempts, next_attempt(plain), Ending.NODE_FAILURE, "the node failed", plain.clock.now()
            )
    else:
        judge(plain, 0.4, verdict=fate)
    assert board(plain) == [] and plain.open_runs() == 0 and plain.store.submissions.get(number).is_done
    (run,) = plain.store.submissions.get(number).runs
    assert (run.verdict.name if run.verdict else run.state) == fate


def test_many_at_once_are_confirmed_one_after_the_other_and_the_needless_not_at_all(plain: Stage) -> None:
    numbers = [plain.submit(by="ada", mode="leaderboard").submission_id for _ in range(4)]
    attempts = [next_attempt(plain) for _ in numbers]
    for attempt, took in zip(attempts, (0.5, 0.42, 0.4, 0.44), strict=True):
        report = sealed_report(plain.store.attempts.work(attempt.id), score_s=took, interval_s=[0, took * 1.02])
        score(plain.store, attempt, report, plain.clock.now())
    waiting = [run for run in plain.runs() if run["ended_at"] is None]
    assert [run["held"] for run in waiting] == [False, True, True, True]
    judge(plain, 0.51)
    judge(plain, 0.43)  # the second of the best first one, 0.4
    assert board(plain) == [("ada", 0.43), ("ada", 0.51)]
    plain.store.calibrations.tend(plain.clock.now())
    assert plain.open_runs() == 0, "0.42 and 0.44 are no improvement that could be told"
    assert {standing(plain, number) for number in numbers} == {"scored"}
    assert board(plain) == [("ada", 0.43), ("ada", 0.51)]
    demo = demo_stage.Stage(plain.store, "board", quiet=True)
    assert demo_stage.settled(numbers)(demo.runs()), "a demo waits for no verdict of what isn't measured at all"


def together(stage: Stage, times: list[float]) -> None:
    """These first measurements of one person are scored at the same instant, each over a connection of its own."""
    for _ in times:
        stage.submit(by="ada", mode="leaderboard")
    attempts = [next_attempt(stage) for _ in times]
    works = [stage.store.attempts.work(attempt.id) for attempt in attempts]
    reports = [
        sealed_report(work, score_s=took, interval_s=[0, took * 1.02]) for work, took in zip(works, times, strict=True)
    ]
    with psycopg.connect(stage.url, autocommit=True) as gate, ThreadPoolExecutor(len(times)) as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", (TEND_LOCK,))
        told = [
            pool.submit(score, stage.store, attempt, report, stage.clock.now())
            for attempt, report in zip(attempts, reports, strict=True)
        ]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while (found := gate.execute(waiting).fetchone()) != (len(times),):
            assert not any(one.done() for one in told), f"nobody waits for anybody: {found}"
        gate.execute("SELECT pg_advisory_unlock(%s)", (TEND_LOCK,))
        assert [one.result() for one in told] == [Scored.VERDICT] * len(times)


def test_two_first_scores_at_the_same_instant_are_confirmed_one_after_the_other(plain: Stage) -> None:
    together(plain, [0.4, 0.402])
    seconds = [run for run in plain.runs() if run["second"]]
    assert sorted(run["held"] for run in seconds) == [False, True], "each saw that no other was there, and both go"
    judge(plain, 0.395)
    plain.store.calibrations.tend(plain.clock.now())
    assert plain.open_runs() == 0 and board(plain) == [("ada", 0.395)], "and the other is no improvement any more"


def test_what_was_decided_by_a_standing_score_that_is_out_of_date_is_not_measured(plain: Stage) -> None:
    plain.submit(by="ada", mode="leaderboard")
    plain.submit(by="ada", mode="leaderboard")
    late, early = next_attempt(plain), next_attempt(plain)
    work = plain.store.attempts.work(late.id)
    report = sealed_report(work, score_s=0.5, interval_s=[0, 0.51])

    class Dawdling(Scores):
        """Between its look at what stands and its verdict the other one is measured, twice."""

        def yardstick(self, attempt: OpenAttempt, node: str, harness: str) -> measure.Yardstick:
            seen = super().yardstick(attempt, node, harness)
            theirs = sealed_report(plain.store.attempts.work(early.id), score_s=0.4, interval_s=[0, 0.41])
            score(plain.store, early, theirs, plain.clock.now())
            judge(plain, 0.4)
            return seen

    with PostgresStore(plain.url) as dawdling:
        dawdling.scores = Dawdling(dawdling._pool)
        score(dawdling, late, report, plain.clock.now())
    plain.store.calibrations.tend(plain.clock.now())
    assert plain.open_runs() == 0 and board(plain) == [("ada", 0.4)]


def test_taking_back_what_was_unlucky_buys_no_other_draw(plain: Stage) -> None:
    unlucky = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.4)
    judge(plain, 0.405)
    assert board(plain) == [("ada", 0.405)]
    ada = plain.person("ada")
    remove(plain.store.submissions, unlucky, ada, "ada", plain.clock.now())
    assert board(plain) == []
    again = plain.submit(by="ada", mode="leaderboard").submission_id
    judge(plain, 0.4)
    judge(plain, 0.4)
    assert board(plain) == [("ada", 0.405)], "the same, as far as can be told: the score that was drawn stays"
    (run,) = plain.store.submissions.get(again).runs
    assert run.verdict is not None and run.verdict.reason == measure.AS_TAKEN_BACK
    remove(plain.store.submissions, again, ada, "ada", plain.clock.now())
    for took in (0.3, 0.31):
        if took == 0.3:
            plain.submit(by="ada", mode="leaderboard")
        judge(plain, took)
    assert board(plain) == [("ada", 0.31)], "what is faster beyond doubt counts"
    plain.store.submissions.take_back(
        SubmissionId(plain.store.standings.scored("board", "A100")[0].submission_id), "host", plain.clock.now()
    )
    plain.submit(by="ada", mode="leaderboard")
    judge(plain, 0.306)
    judge(plain, 0.306)
    assert board(plain) == [("ada", 0.306)], "what staff removed is no measure of anything"


def test_a_board_may_do_without_and_others_are_not_held_up(plain: Stage) -> None:
    plain.submit(by="ada", mode="leaderboard")
    plain.submit(by="bob", mode="leaderboard")
    judge(plain, 0.4)
    judge(plain, 0.5)
    assert [run["held"] for run in plain.runs() if run["second"]] == [False, False]
    plain.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    plain.submit(by="eve", mode="leaderboard")
    for took in (0.4, 0.5, 0.3):
        judge(plain, took)
    assert board(plain) == [("eve", 0.3), ("ada", 0.4), ("bob", 0.5)]


def test_a_node_that_is_not_itself_is_trouble_of_the_house_and_no_persons_doing(stage: Stage) -> None:
    stage.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    judge(stage, 0.5, baseline_s=0.5)
    for n in range(12):
        stage.submit(by=f"p{n % 4}", mode="leaderboard")
        assert judge(stage, 0.5, baseline_s=0.5 * (1 + 0.001 * (n % 3))) is Scored.VERDICT
    stage.submit(by="ada", mode="leaderboard")
    assert judge(stage, 0.1, baseline_s=0.8) is Scored.RETRY_OR_FAILED
    (open_run,) = [run for run in stage.runs() if run["ended_at"] is None]
    assert open_run["state"] == RunState.QUEUED and "the baseline's time was off" in open_run["reason"]
    work = stage.store.attempts.work(stage.claim(PLACE).id)
    assert work.avoid_nodes == ("node1",), "it is tried again elsewhere"
    assert "unsteady" in {found.kind for found in stage.store.overview.attention(now=stage.clock.now())}
    # One person's runs are a fifth of the chart at most: they can't make it follow them.
    for _ in range(30):
        stage.rows(
            "INSERT INTO baseline_point (attempt_id, person_id, backend, node, gpu, problem_version_id, level, inside,"
            " at, harness) SELECT a.id, %s, p.backend, p.node, p.gpu, p.problem_version_id, 99, false, p.at, p.harness"
            " FROM baseline_point p, attempt a WHERE a.id NOT IN (SELECT attempt_id FROM baseline_point) LIMIT 1"
            " RETURNING id",
            stage.person("eve"),
        )
    yard = stage.store.scores.yardstick(work.attempt, "node1", "h")
    assert len(yard.chart) > 10 and sum(level == 99 for level in yard.chart) <= measure.CHART_PER_PERSON


def test_another_harness_has_charts_of_its_own(stage: Stage) -> None:
    """After an update in which a baseline took longer every run on every node was measured three times and failed."""
    judge(stage, 0.5, baseline_s=0.5)
    for n in range(12):
        stage.submit(by=f"p{n % 4}", mode="leaderboard")
        assert judge(stage, 0.5, baseline_s=0.5 * (1 + 0.001 * (n % 3))) is Scored.VERDICT

    def by(harness: str) -> Scored:
        stage.submit(by="ada", mode="leaderboard")
        attempt = next_attempt(stage)
        work = stage.store.attempts.work(attempt.id)
        report = sealed_report(work, score_s=0.7, baseline_s=0.9, harness_digest=harness)
        return score(stage.store, attempt, report, stage.clock.now())

    assert by("another") is Scored.VERDICT
    assert by("h") is Scored.RETRY_OR_FAILED


def disturbed(sealed_for: Work, **changes: object) -> bytes:
    """A report of 10 ms, in which one call took little more than a null call of 1.3 ms."""
    report = unseal(sealed_report(sealed_for, score_s=0.01, **changes).decode(), sealed_for.key)
    for one in report.samples:
        if (one.phase, one.index, one.launch) == ("ranked", 0, 0):
            one.own.calls_ns[0] = 1_300_050
        one.own.trusted_null_ns[:] = [1_300_000] * 8
    results = [
        dataclasses.replace(one, **timing.figures(timing.nets(report.samples, one.phase, one.index)))
        for one in report.benchmarks
    ]
    nets = [timing.nets(report.samples, "ranked", one.index) for one in results if one.phase == "ranked"]
    found = timing.combined(nets, sealed_for.problem.ranking_by)
    interval_s = [found.low / 1e9, found.high / 1e9]
    told = dataclasses.replace(report, benchmarks=results, score_s=found.value / 1e9, interval_s=interval_s)
    return seal(told, sealed_for.key).encode()


def test_a_run_with_a_sample_that_is_mostly_null_call_is_measured_once_more_and_marked(plain: Stage) -> None:
    plain.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    number = plain.submit(by="ada", mode="leaderboard").submission_id
    now = plain.clock.now()
    for _ in range(2):
        attempt = next_attempt(plain)
        assert score(plain.store, attempt, disturbed(plain.store.attempts.work(attempt.id)), now) is Scored.VERDICT
    first, second = plain.runs()
    assert (first["counts"], second["counts"], second["second"]) == (False, True, True)
    assert len(board(plain)) == 1, "the second counts: the median isn't touched by one sample"
    (run,) = plain.store.submissions.get(number).runs
    assert run.verdict is not None and run.verdict.ranked
    shown = popcorn_submission.result(run.verdict.detail or {}, "ranked")
    assert "benchmark.0.best" not in shown and "benchmark.0.mean" in shown
    page = [row for row in submission_runs.timed(run.verdict.detail or {}, ()) if row["phase"] == "ranked"]
    assert page[0]["best"] is None and page[0]["null"] == pytest.approx(1.3e-3)


def test_a_disturbed_run_that_would_not_count_is_not_repeated(plain: Stage) -> None:
    plain.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    plain.submit(by="ada", mode="leaderboard")
    assert judge(plain, 0.001) is Scored.VERDICT
    plain.submit(by="ada", mode="leaderboard")
    attempt = next_attempt(plain)
    score(plain.store, attempt, disturbed(plain.store.attempts.work(attempt.id)), plain.clock.now())
    assert len(plain.runs()) == 2 and not any(run["second"] for run in plain.runs())


@pytest.mark.parametrize(
    ("best", "median", "null", "is_marked", "is_disturbed"),
    [
        (50.0, 1e7, 1.3e6, True, True),
        (9e6, 1e7, 1.3e6, False, False),
        (50.0, 60.0, 1e5, True, False),
        (1.1e5, 1.2e5, 1e5, False, False),
        (0.9e5, 1.2e5, 1e5, True, False),
        (0.9e5, 2e5, 1e5, True, True),
    ],
)
def test_what_a_null_call_makes_of_a_sample(
    best: float, median: float, null: float, is_marked: bool, is_disturbed: bool
) -> None:
    row = wire.BenchmarkResult(
        phase="ranked", index=0, spec="", status="pass", best_ns=best, median_ns=median, null_ns=null
    )
    assert (measure.shown_best_ns(best, null) is None) == is_marked
    assert measure.is_disturbed(row) == is_disturbed


def test_the_chart_says_nothing_early_and_lets_the_usual_pass() -> None:
    source = random.Random(5)
    assert measure.drift([0.0] * 9, 5.0) is None
    outside = 0
    for _ in range(2000):
        history = [source.gauss(0, 0.05) for _ in range(50)]
        outside += measure.drift(history, source.gauss(0, 0.05)) is not None
    assert outside / 2000 < 0.012  # 0.27 % were the spread known; it is estimated from fifty
    assert measure.drift([0.0] * 50, math.log(1.02)) is None
    said = measure.drift([0.0] * 50, math.log(1.2))
    assert said is not None and "+20.0%" in said


def test_a_final_measures_the_leaders_together_and_counts_when_a_host_says_so(
    stage: Stage, database_url: str, tmp_path: Path
) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    stage.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    judge(stage, 0.5, baseline_s=0.5)
    assert kbslurm("final", "board").code == 2, "nobody ranks yet"
    for name, took in (("ada", 0.40), ("bob", 0.41), ("eve", 0.42), ("dan", 0.9)):
        stage.submit(by=name, mode="leaderboard")
        judge(stage, took)
    ordered = kbslurm("final", "board", "--top", "3", "--json").json()
    assert [row["person"] for row in ordered["rivals"]] == ["ada", "bob", "eve"] and not ordered["measured"]
    assert kbslurm("final", "board", "--top", "3").code == 2 and kbslurm("final", "board", "--apply").code == 5
    attempt = next_attempt(stage)
    work = stage.store.attempts.work(attempt.id)
    assert len(work.problem.config["rivals"]) == 3 and not work.by_staff, "it runs only where others' code may"
    assert work.source == PAIRED.baseline
    assert work.problem.limits.ranked_s == 5 * PAIRED.limits.ranked_s
    # On a node at half speed bob is ahead of ada there, and eve gave a wrong answer.
    report = sealed_report(work, score_s=1.0, baseline_s=1.0, rivals=(0.9, 0.78, None))
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    before = board(stage)
    assert [name for name, _ in before] == ["ada", "bob", "eve", "dan"], "nothing counts yet"
    shown = kbslurm("final", "board", "--json").json()
    assert [row["verdict"] for row in shown["rivals"]] == ["passed", "passed", "wrong"]
    assert [row["score_s"] and round(row["score_s"], 2) for row in shown["rivals"]] == [0.45, 0.39, None]
    (gap,) = shown["gaps"]
    assert (gap["ahead"], gap["behind"], gap["separated"]) == ("bob", "ada", True)
    said = kbslurm("final", "board").out
    assert "a clear difference" in said and "eve failed: the slow end of the earlier interval counts once" in said
    assert kbslurm("final", "board", "--apply").code == 0
    assert [(name, round(took, 2)) for name, took in board(stage)] == [
        ("bob", 0.39),
        ("eve", 0.43),
        ("ada", 0.45),
        ("dan", 0.9),
    ]
    assert [event.kind for event in stage.store.events.audit_log()][:2] == ["staff.final_applied", "staff.final"]
    assert kbslurm("final", "board", "--apply").code == 2, "there is none any more"
    shown_to_all(stage)
    kbslurm("final", "board", "--top", "2")
    assert kbslurm("final", "board", "--forget").code == 0
    assert stage.open_runs() == 0 and stage.store.finals.open("board", "A100") is None
    assert [name for name, _ in board(stage)] == ["bob", "eve", "ada", "dan"]


def test_a_final_whose_lead_failed_counts_for_the_others(stage: Stage, database_url: str, tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    stage.rows("UPDATE leaderboard SET confirm = false RETURNING id")
    judge(stage, 0.5, baseline_s=0.5)
    for name, took in (("ada", 0.40), ("bob", 0.41), ("eve", 0.42)):
        stage.submit(by=name, mode="leaderboard")
        judge(stage, took)
    assert kbslurm("final", "board", "--top", "3").code == 0
    attempt = next_attempt(stage)
    work = stage.store.attempts.work(attempt.id)
    report = led_by_a_failure(sealed_report(work, score_s=1.0, baseline_s=1.0, rivals=(None, 0.9, 0.78)), work)
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    shown = kbslurm("final", "board", "--json").json()
    assert [row["verdict"] for row in shown["rivals"]] == ["wrong", "passed", "passed"]
    assert kbslurm("final", "board", "--apply").code == 0
    assert [name for name, _ in board(stage)] == ["eve", "ada", "bob"]


def led_by_a_failure(sealed: bytes, work: Work) -> bytes:
    """The same report of a final whose lead failed in the ranked phase."""
    whole = unseal(sealed, work.key)
    lead = [dataclasses.replace(b, status="error") if b.phase == "ranked" else b for b in whole.benchmarks]
    phases = [dataclasses.replace(p, passed=p.name != "ranked") for p in whole.phases if p.name != "hidden"]
    failed = dataclasses.replace(
        whole, verdict="error", reason="ranked phase: it failed", score_s=None, interval_s=None, benchmarks=lead,
        phases=phases, samples=[one for one in whole.samples if one.phase != "ranked" or one.rival],
    )  # fmt: skip
    return seal(failed, work.key).encode()


def shown_to_all(stage: Stage) -> None:
    """By the HTTP API and by the board's page: what came of it, in the order of the places before."""
    context = context_of(Config(), stage.store, clock=stage.clock)
    with serving(context, stage.url) as found, httpx.Client(base_url=found.url, timeout=60) as client:
        told = client.get("/final/board/A100")
        page = client.get("/board/board/A100", headers={"Accept": "text/html"}).text
    assert told.status_code == 200, told.text
    rows = FinalTold.model_validate(told.json()).rivals
    assert [(row.place, row.user_name, row.verdict) for row in rows] == [
        (1, "ada", "passed"),
        (2, "bob", "passed"),
        (3, "eve", "wrong"),
    ]
    rows_of_it = page.partition("The final")[2].partition("</table>")[0]
    assert [rows_of_it.index(f">{name}<") for name in ("ada", "bob", "eve")] == sorted(
        rows_of_it.index(f">{name}<") for name in ("ada", "bob", "eve")
    )
    assert ">wrong</td>" in rows_of_it


@pytest.mark.parametrize("between", [0.0, 0.005])
def test_resubmitting_for_luck_gains_next_to_nothing(between: float) -> None:
    """Forty submissions of the same kernel, launches 1 % apart: the plain best of them is 1 % better than the truth.

    `between`: what whole runs differ by beside that, and their intervals don't know of.
    """
    source, rounds = random.Random(9), 200

    def run() -> Verdict:
        level = source.gauss(0, between)
        found = timing.interval([math.exp(level + source.gauss(0, 0.01)) for _ in range(5)])
        told = {"score_s": found.value, "low_s": found.low, "high_s": found.high}
        return Verdict(name="passed", reason="", ranked=True, **told)  # type: ignore[arg-type]

    plain_gain = confirmed_gain = 0.0
    for _ in range(rounds):
        best, stands = math.inf, None
        for _ in range(40):
            first = run()
            best = min(best, first.score_s or math.inf)
            yard = measure.Yardstick(calibrates=False, may_repeat=True, may_confirm=True, b_ref_s=None, previous=stands)
            if measure.settled(first, yard)[1]:
                second = run()
                if stands is None or (second.score_s or math.inf) < stands.score_s:
                    stands = boards.Measured(**{k: getattr(second, k) for k in ("score_s", "low_s", "high_s")})
        assert stands is not None
        plain_gain -= math.log(best) / rounds
        confirmed_gain -= math.log(stands.score_s) / rounds
    assert plain_gain > 0.009
    assert confirmed_gain < (0.15 if between == 0 else 0.35) * plain_gain, (plain_gain, confirmed_gain)


def test_a_teams_second_measurements_wait_for_one_another(plain: Stage) -> None:
    """A team's members with the same kernel had as many second measurements side by side, and the best of them."""
    members = ("ada", "bob", "cyd", "dan")
    plain.rows("UPDATE leaderboard SET teams = true RETURNING id")
    for name in members:
        plain.submit(by=name, mode="leaderboard")
        plain.store.people.set_team(plain.person(name), "red", by="host", now=plain.clock.now())
    while plain.open_runs():
        judge(plain, 0.5, verdict="wrong")
    for name in members:
        plain.submit(by=name, mode="leaderboard")
    for took in (0.400, 0.401, 0.402, 0.403):
        judge(plain, took)
    assert sorted(run["held"] for run in plain.runs() if run["second"]) == [False, True, True, True]
    judge(plain, 0.410)
    plain.store.calibrations.tend(plain.clock.now())
    assert [score_s for _, score_s in board(plain)] == [0.41]
    assert all(run["ended_at"] is not None for run in plain.runs() if run["second"]), "the rest is as fast as that"
