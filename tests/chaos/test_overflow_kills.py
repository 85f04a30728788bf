"""kill -9 where runs change places: home goes down, the others take over, home comes back; each run ends once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.observe.crash_points import OVERFLOW_CRASH_POINTS
from tests.chaos.history import check
from tests.chaos.killing import Killer, end_all_jobs
from tests.databases import Server
from tests.flow.stage import Stage

SLOTS = 3


@pytest.fixture(scope="module")
def arena(
    postgres_server: Server, template_database: str, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> Iterator[tuple[Stage, Killer]]:
    """One database and one process that forks daemons, for all the deaths of this file."""
    url = postgres_server.create(template_database)
    stage = Stage.build(url, clock=WallClock())
    at = tmp_path_factory.mktemp("places")
    hand = Killer("tests.chaos.zygote_places", url, str(at), str(SLOTS), root=at, checkout=root)
    try:
        yield stage, hand
    finally:
        hand.close()
        end_all_jobs(at, SLOTS)
        stage.close()
        postgres_server.drop(url)


@pytest.mark.parametrize("place_of_death", OVERFLOW_CRASH_POINTS)
def test_a_daemon_killed_where_runs_change_places_moves_each_once(
    arena: tuple[Stage, Killer], place_of_death: str
) -> None:
    stage, hand = arena
    down, queue = hand.root / "cluster.down", hand.root / "queue"
    down.touch()
    if place_of_death.endswith("_wish"):
        queue.touch()
    for n in range(4):
        stage.submit("# passed\n", by=f"p{n}", mode="leaderboard")
    hand.start(place_of_death)
    if place_of_death.endswith("_wish"):
        stage.wait_until(lambda: {a.backend for a in stage.store.attempts.open() if a.handle} >= {"github"})
        down.unlink()
        stage.submit("# passed\n", by="eve")
    assert hand.died_at_its_crash_point(), hand.log()[-3000:]
    hand.start()
    if queue.exists():
        stage.wait_until(lambda: stage.open_runs() == 0)
        queue.unlink()
    else:
        stage.wait_until(lambda: stage.open_runs() <= SLOTS)  # what home perhaps has waits until home can tell
        down.unlink()
        stage.wait_until(lambda: stage.open_runs() == 0)
    status = hand.end(signal.SIGTERM)
    assert status == 0, hand.log()[-3000:]
    check(stage, hand.root / "attempts")
    assert {run["verdict"] for run in stage.runs()} == {"passed"}
