"""Judging again: nothing counts until it is applied, then all of it does, in one act; or none ever does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kbslurm.domain.run import RunState
from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.flow.place import Place
from kbslurm.flow.rejudge import Filter, parsed, rows
from kbslurm.flow.score import score
from kbslurm.store.rejudgings import Wanted
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import PROBLEM, Stage


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url)
    yield built
    built.close()


PLACE = Place(backend=Puppet(slots={"A100": 9}))


def judge(stage: Stage, verdicts: list[str], scores: list[float] | None = None) -> None:
    """Give every waiting run in its order a verdict."""
    for n, verdict in enumerate(verdicts):
        attempt = stage.claim(PLACE)
        work = stage.store.attempts.work(attempt.id)
        value = (scores or [0.5] * len(verdicts))[n]
        told: dict[str, object] = {"score_s": value, "interval_s": [value * 0.9, value * 1.1]}
        if verdict != "passed":
            told = {"verdict": verdict, "reason": "so", "score_s": None, "interval_s": None, "phases": []}
        score(stage.store, attempt, sealed_report(work, **told), stage.clock.now())


def board(stage: Stage) -> list[tuple[str, float]]:
    return [(entry.person, round(entry.score_s, 6)) for entry in stage.store.standings.scored("board", "A100")]


def test_new_verdicts_are_hidden_until_they_are_applied_together(stage: Stage) -> None:
    ada = stage.submit(by="ada", mode="leaderboard").submission_id
    bob = stage.submit(by="bob", mode="leaderboard").submission_id
    judge(stage, ["passed", "wrong"], [0.5, 0.0])
    assert board(stage) == [("ada", 0.5)]
    version = stage.store.problems.add(dataclasses.replace(PROBLEM, tests=({"seed": 9},)))
    ordered = stage.store.rejudgings.order("board", Wanted(), version, by="host", now=stage.clock.now())
    assert ordered.matrix == {("passed", "open"): 1, ("wrong", "open"): 1} and ordered.open_runs == 2
    # Its runs wait behind everybody's own, and hold nobody up.
    own = stage.submit(by="ada", mode="test").submission_id
    assert stage.claim(PLACE).run_id == stage.store.submissions.get(own).runs[0].id
    with pytest.raises(Refused):
        stage.store.rejudgings.apply("board", by="host")
    judge(stage, ["wrong", "passed"], [0.0, 0.25])
    before = stage.store.rejudgings.open("board")
    assert before is not None and before.changed == 2 and before.open_runs == 0
    assert before.matrix == {("passed", "wrong"): 1, ("wrong", "passed"): 1}
    assert board(stage) == [("ada", 0.5)]
    for number, verdict in ((ada, "passed"), (bob, "wrong")):
        (run,) = stage.store.submissions.get(number).runs
        assert run.verdict is not None and run.verdict.name == verdict
    stage.store.rejudgings.apply("board", by="host")
    assert board(stage) == [("bob", 0.25)]
    for number, verdict in ((ada, "wrong"), (bob, "passed")):
        (run,) = stage.store.submissions.get(number).runs
        assert run.verdict is not None and run.verdict.name == verdict and run.problem_version_id == version
    live = stage.store.boards.find("board")
    assert live is not None and live.problem_version_id == version
    assert stage.store.rejudgings.open("board") is None
    acts = [event.kind for event in stage.store.events.audit_log()]
    assert acts == ["staff.rejudge_applied", "staff.rejudge"]
    hidden = [e.data["counts"] for e in stage.store.events.after(0) if e.kind == "run.scored"]  # type: ignore[arg-type]
    assert hidden == [True, True, False, False]


def test_the_same_version_can_be_judged_again_and_again(stage: Stage) -> None:
    stage.submit(mode="leaderboard")
    judge(stage, ["passed"], [0.5])
    for value in (0.4, 0.6):
        stage.store.rejudgings.order("board", Wanted(verdict="passed"), None, by="host", now=stage.clock.now())
        judge(stage, ["passed"], [value])
        stage.store.rejudgings.apply("board", by="host")
        assert board(stage) == [("ada", value)]


def test_cancelling_changes_nothing_and_ends_what_runs(stage: Stage) -> None:
    stage.submit(by="ada", mode="leaderboard")
    stage.submit(by="bob", mode="leaderboard")
    judge(stage, ["passed", "passed"], [0.5, 0.6])
    before = board(stage)
    stage.store.rejudgings.order("board", Wanted(), None, by="host", now=stage.clock.now())
    running = stage.claim(PLACE)
    stage.store.rejudgings.cancel("board", by="host", now=stage.clock.now())
    assert [a.id for a in stage.store.attempts.open() if a.cancel_at is not None] == [running.id]
    assert stage.rows("SELECT count(*) AS n FROM run WHERE state = 'queued'") == [{"n": 0}]
    assert stage.store.attempts.end_cancelled(running, stage.clock.now())
    assert board(stage) == before
    for call in (stage.store.rejudgings.apply, stage.store.rejudgings.cancel):
        with pytest.raises(NotFound):
            call("board", by="host")
    assert all(run["state"] in (RunState.SCORED, RunState.CANCELLED) for run in stage.runs())


def test_what_cannot_be_ordered_is_refused(stage: Stage) -> None:
    with pytest.raises(Invalid, match="no matching runs"):
        stage.store.rejudgings.order("board", Wanted(), None, by="host")
    assert stage.store.rejudgings.open("board") is None
    stage.submit(by="ada", mode="leaderboard")
    judge(stage, ["passed"])
    with pytest.raises(NotFound):
        stage.store.rejudgings.order("board", Wanted(), 99, by="host")
    for wanted in (Wanted(gpu="H100"), Wanted(verdict="wrong"), Wanted(person=99), Wanted(submission=99)):
        with pytest.raises(Invalid):
            stage.store.rejudgings.order("board", wanted, None, by="host")
    stage.store.rejudgings.order("board", Wanted(gpu="a100", mode="leaderboard"), None, by="host")
    with pytest.raises(Invalid, match="already"):
        stage.store.rejudgings.order("board", Wanted(), None, by="host")


def test_filters() -> None:
    assert parsed([]) == Filter()
    assert parsed(["gpu=H100", "verdict=wrong", "submission=7"]) == Filter(gpu="H100", verdict="wrong", submission=7)
    for words in (["gpu"], ["gpu="], ["colour=red"], ["gpu=a", "gpu=b"], ["verdict=bad"], ["mode=x"], ["submission=x"]):
        with pytest.raises(Invalid):
            parsed(words)
    assert rows({("wrong", "passed"): 2, ("wrong", "open"): 1, ("passed", "passed"): 3}) == (
        ["was", "→ passed", "→ open"],
        [["passed", "3", ""], ["wrong", "2", "1"]],
    )


def test_the_command(stage: Stage, database_url: str, tmp_path: object) -> None:
    from pathlib import Path

    kbslurm = CommandLine(cwd=Path(str(tmp_path)), env={"DATABASE_URL": database_url})
    stage.submit(mode="leaderboard")
    judge(stage, ["passed"])
    assert kbslurm("rejudge", "board").code == 2
    assert kbslurm("rejudge", "board", "--apply").code == 2
    told = kbslurm("rejudge", "board", "person=ada", "--preview", "--json").json()
    assert (told["open"], told["matrix"]) == (1, [{"before": "passed", "after": "open", "runs": 1}])
    assert kbslurm("rejudge", "board", "gpu=A100", "--preview").code == 2
    assert kbslurm("rejudge", "board", "--apply").code == 5
    assert "1 open" in kbslurm("rejudge", "board", "--preview").out
    judge(stage, ["passed"], [0.4])
    assert kbslurm("rejudge", "board", "--apply").code == 0
    assert board(stage) == [("ada", 0.4)]
