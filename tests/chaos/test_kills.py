"""kill -9 at every crash point, and a storm of kills over hundreds of runs: nothing is lost, nothing happens twice."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.flow.cancel import cancel
from kbslurm.observe.crash_points import CRASH_POINTS
from tests.chaos.history import check
from tests.chaos.killing import Killer, killer
from tests.databases import Server
from tests.flow.stage import Stage
from tests.services import sized

OF_THE_DAEMON = [name for name in CRASH_POINTS if not name.startswith("accept.")]
STORM_RUNS, STORM_KILLS, LEAST_WAITING = sized(400, 150), sized(40, 20), 20


@pytest.fixture(scope="module")
def arena(
    postgres_server: Server, template_database: str, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> Iterator[tuple[Stage, Killer]]:
    """One database and one process that forks daemons, for all the deaths of this file."""
    url = postgres_server.create(template_database)
    stage = Stage.build(url, clock=WallClock())
    try:
        with killer(url, tmp_path_factory.mktemp("kills"), 6, root) as made:
            yield stage, made
    finally:
        stage.close()
        postgres_server.drop(url)


def submit(stage: Stage, words: str, by: str = "ada") -> int:
    return stage.submit(f"# {words}\n", by=by, mode="leaderboard").submission_id


@pytest.mark.parametrize("place_of_death", OF_THE_DAEMON)
def test_a_daemon_killed_at_this_crash_point_loses_nothing_and_does_nothing_twice(
    arena: tuple[Stage, Killer], place_of_death: str
) -> None:
    stage, hand = arena
    if place_of_death.startswith("recover."):
        submit(stage, "passed")
        hand.start("launch.before_submit")
        assert hand.died_at_its_crash_point()
    if place_of_death.startswith("give_up."):
        submit(stage, "no-report")
    for words in ("passed", "wrong"):
        submit(stage, words)
    slow = submit(stage, "slow", by="bob") if place_of_death.startswith("cancel.") else None
    hand.start(place_of_death)
    if slow is not None:
        stage.wait_until(lambda: state_of(stage, slow) == "running")
        cancel(stage.store.submissions, slow, stage.person("bob"), stage.clock.now())  # type: ignore[arg-type]
    assert hand.died_at_its_crash_point(), hand.log()[-3000:]
    hand.start()
    stage.wait_until(lambda: stage.open_runs() == 0)
    status = hand.end(signal.SIGTERM)
    assert status == 0, hand.log()[-3000:]
    check(stage, hand.root / "attempts")


def state_of(stage: Stage, submission: int) -> str:
    (run,) = stage.rows("SELECT state FROM run WHERE submission_id = %s", submission)
    return str(run["state"])


def test_a_storm_of_kills_over_hundreds_of_runs(arena: tuple[Stage, Killer]) -> None:
    stage, hand = arena
    dice = random.Random(20261122)
    before = len(stage.runs())
    expected: dict[int, str] = {}

    def submit_more(count: int) -> None:
        for words in dice.choices(["passed", "wrong", "no-report", "forged"], [90, 6, 2, 2], k=count):
            expected[submit(stage, words, by=f"person{len(expected) % 5}")] = words

    submit_more(STORM_RUNS)
    dropped = set(dice.sample(sorted(expected)[STORM_RUNS // 2 :], 8))
    for submission in dropped:
        cancel(stage.store.submissions, submission, None, stage.clock.now())  # type: ignore[arg-type]
    hand.kills, points = 0, [name for name in OF_THE_DAEMON if not name.startswith("cancel.")]
    while hand.kills < STORM_KILLS:
        if stage.open_runs() < LEAST_WAITING:  # a fast machine: there must be something to kill it over
            submit_more(LEAST_WAITING)
        hand.start(f"{dice.choice(points)}:{dice.randint(1, 6)}")
        if hand.wait(dice.uniform(0.3, 1.2)) is None:
            hand.end()
    hand.start()
    stage.wait_until(lambda: stage.open_runs() == 0)
    hand.end(signal.SIGTERM)
    check(stage, hand.root / "attempts")
    runs = {run["submission_id"]: run for run in stage.runs()[before:]}
    assert set(runs) == set(expected)
    wanted = {"passed": "passed", "wrong": "wrong", "no-report": "infrastructure", "forged": "infrastructure"}
    for submission, words in expected.items():
        assert runs[submission]["verdict"] == (None if submission in dropped else wanted[words]), runs[submission]
    assert Counter(run["state"] for run in runs.values())["cancelled"] == len(dropped)
