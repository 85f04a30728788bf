"""kill -9 of a daemon at every crash point of a keeper's life and of a hand-over, and a storm in which keepers, their
scripts and their steps die, too: each run has one verdict, none ran twice, and no keeper was sent twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.domain.keepers import KeeperEnding
from kbslurm.flow.cancel import cancel
from kbslurm.observe.crash_points import SLURM_CRASH_POINTS, SLURM_KEEPER_CRASH_POINTS
from tests.chaos.warm_arena import WarmArena, warm_arena
from tests.databases import Server
from tests.services import sized

OPENED = ("keeper.before_submit", *SLURM_KEEPER_CRASH_POINTS, "keeper.after_submit", "keeper.after_note")
LET_GO = ("keeper.before_end",)
HANDED_OVER = (
    "queue.before_claim",
    "queue.after_claim",
    "launch.before_submit",
    *SLURM_CRASH_POINTS,
    "launch.after_submit",
    "launch.after_note",
    "collect.before_poll",
    "collect.after_poll",
    "collect.after_read",
    "score.before_commit",
    "score.after_commit",
)
RECOVERED = ("recover.before_find", "recover.after_find", "recover.after_resend")
CANCELLED = ("cancel.before_effect", "cancel.after_effect", "cancel.after_commit")
STORM_RUNS, STORM_DEATHS, VICTIMS = sized(120, 40), sized(24, 10), ("job", "srun", "script")


@pytest.fixture(scope="module")
def arena(
    postgres_server: Server, template_database: str, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> Iterator[WarmArena]:
    """One database, one folder of jobs and one process that forks daemons, for all the deaths of this file."""
    url = postgres_server.create(template_database)
    try:
        with warm_arena(url, tmp_path_factory.mktemp("warm"), root) as made:
            yield made
    finally:
        postgres_server.drop(url)


@pytest.mark.parametrize("place_of_death", [*OPENED, *LET_GO])
def test_a_daemon_killed_over_a_keeper_sends_it_once_and_lets_it_go(arena: WarmArena, place_of_death: str) -> None:
    with_all_gone(arena)
    arena.order()
    if place_of_death in OPENED:
        arena.die(place_of_death)
    arena.hand.start()
    arena.wait_holding(1)
    arena.hand.end()
    (one,) = arena.holding()
    arena.stage.store.keepers.drain(one.id, KeeperEnding.DRAINED, "a test", arena.stage.clock.now())
    if place_of_death in LET_GO:
        arena.die(place_of_death)
    arena.hand.start()
    arena.stage.wait_until(lambda: not arena.stage.store.keepers.open())
    arena.finish()


@pytest.mark.parametrize("place_of_death", [*HANDED_OVER, *RECOVERED, *CANCELLED])
def test_a_daemon_killed_over_a_hand_over_loses_nothing_and_repeats_nothing(
    arena: WarmArena, place_of_death: str
) -> None:
    stage = arena.stage
    with_one_keeper(arena)
    before = len(arena.attempts())
    one = arena.submit("slow" if place_of_death in CANCELLED else "passed")
    if place_of_death in RECOVERED:
        arena.die("launch.before_submit")
    arena.hand.start(place_of_death)
    if place_of_death in CANCELLED:
        stage.wait_until(lambda: [row["state"] for row in arena.attempts()[before:]] == ["running"])
        cancel(stage.store.submissions, one, None, stage.clock.now())  # type: ignore[arg-type]
    assert arena.hand.died_at_its_crash_point(), arena.hand.log()[-3000:]
    arena.hand.start()
    arena.finish()
    (attempt,) = arena.attempts()[before:]
    assert attempt["keeper_id"] is not None, "it was a job of its own"
    assert attempt["state"] == ("cancelled" if place_of_death in CANCELLED else "reported"), attempt
    assert len(arena.holding()) == 1, "an attempt's end isn't its keeper's"


def test_a_storm_of_kills_over_runs_in_keepers(arena: WarmArena) -> None:
    dice, stage, victims = random.Random(20261126), arena.stage, list(VICTIMS)
    before, warm = len(stage.runs()), arena.warm_runs()
    for number in range(STORM_RUNS):
        arena.submit("wrong" if number % 9 == 8 else "passed", by=f"p{number % 5}")
    points = [*HANDED_OVER, *OPENED]
    for death in range(STORM_DEATHS):
        if len(stage.store.keepers.open()) < 2:
            arena.order()
        arena.hand.start(f"{dice.choice(points)}:{dice.randint(1, 6)}")
        if arena.hand.wait(dice.uniform(0.5, 1.5)) is None:
            arena.hand.end()
        holding = arena.holding()
        if death % 3 == 2 and victims and holding:
            _kill(arena, victims.pop(), str(dice.choice(holding).handle))
    arena.hand.start()
    arena.finish()
    runs = stage.runs()[before:]
    verdicts = [run["verdict"] for run in runs]
    assert (len(runs), verdicts.count("wrong"), verdicts.count("passed")) == (
        STORM_RUNS,
        STORM_RUNS // 9,
        STORM_RUNS - STORM_RUNS // 9,
    )
    assert arena.warm_runs() - warm >= STORM_RUNS // 20, "it was a storm over other runs"
    assert len(victims) < len(VICTIMS), "no keeper was killed"


def _kill(arena: WarmArena, what: str, job: str) -> None:
    match what:
        case "job":
            arena.scancel(job)
        case "script":
            arena.kill_script(job)
        case _:
            arena.kill_srun(job)


def with_one_keeper(arena: WarmArena) -> None:
    """A keeper holds, and no daemon lives."""
    if len(arena.holding()) == 1:
        return
    arena.order()
    arena.hand.start()
    arena.wait_holding(1)
    arena.hand.end()


def with_all_gone(arena: WarmArena) -> None:
    """No keeper is left of the test before."""
    now = arena.stage.clock.now()
    for one in arena.stage.store.keepers.open():
        arena.stage.store.keepers.drain(one.id, KeeperEnding.DRAINED, "a test", now)
    if arena.stage.store.keepers.open():
        arena.hand.start()
        arena.stage.wait_until(lambda: not arena.stage.store.keepers.open())
        arena.hand.end()
