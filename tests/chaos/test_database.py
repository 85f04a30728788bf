"""The database under attack in mid-walk: stopped at once, and its connections cut. Same invariants as for kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.errors import BackendTrouble
from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from tests.chaos.history import check
from tests.chaos.killing import Killer, killer
from tests.flow.stage import Stage

RUNS, RESTARTS, CUTS = 40, 2, 6


@pytest.fixture
def arena(own_postgres: Embedded, tmp_path: Path, root: Path) -> Iterator[tuple[Stage, Killer]]:
    migrate.upgrade(own_postgres.url)
    stage = Stage.build(own_postgres.url, clock=WallClock())
    stage.person("ada")
    try:
        with killer(own_postgres.url, tmp_path, 4, root) as made:
            yield stage, made
    finally:
        stage.close()


def submit_some(stage: Stage, count: int) -> set[int]:
    """Those that were acknowledged; the others may or may not be there, as whoever asked was told."""
    acknowledged: set[int] = set()
    for _ in range(count):
        try:
            acknowledged.add(stage.submit("# passed\n", mode="leaderboard").submission_id)
        except BackendTrouble:
            continue
    return acknowledged


def scored(stage: Stage) -> int:
    (row,) = stage.rows("SELECT count(*) AS n FROM verdict")
    return int(row["n"])


def come_to(stage: Stage, verdicts: int) -> None:
    stage.wait_until(lambda: scored(stage) >= verdicts)


def patiently(stage: Stage) -> bool:
    """Whether all has ended; a connection that was cut is no answer."""
    try:
        return stage.open_runs() == 0
    except psycopg.OperationalError:
        return False


def finish(stage: Stage, hand: Killer, acknowledged: set[int]) -> None:
    stage.wait_until(lambda: patiently(stage))
    assert hand.end(signal.SIGTERM) == 0, hand.log()[-3000:]
    assert "Traceback" not in hand.log()
    assert "a bug" not in hand.log()
    check(stage, hand.root / "attempts")
    runs = stage.runs()
    assert acknowledged <= {run["submission_id"] for run in runs}
    assert {run["verdict"] for run in runs} == {"passed"}


def test_an_immediate_shutdown_in_mid_walk_loses_nothing(arena: tuple[Stage, Killer], own_postgres: Embedded) -> None:
    stage, hand = arena
    acknowledged = submit_some(stage, RUNS)
    assert len(acknowledged) == RUNS
    hand.start()
    server = own_postgres
    for n in range(1, RESTARTS + 1):
        come_to(stage, n * RUNS // 4)
        server.stop(immediate=True)
        server = Embedded.start(server.data_dir, fast=True)
        assert server.url == stage.url
        acknowledged |= submit_some(stage, 3)
    finish(stage, hand, acknowledged)


def test_connections_cut_in_mid_walk_lose_nothing(arena: tuple[Stage, Killer]) -> None:
    stage, hand = arena
    acknowledged = submit_some(stage, RUNS)
    hand.start()
    for n in range(1, CUTS + 1):
        come_to(stage, n * RUNS // (CUTS + 2))
        cut = stage.rows(
            "SELECT pg_terminate_backend(pid) AS cut FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert any(row["cut"] for row in cut)
        acknowledged |= submit_some(stage, 3)
    finish(stage, hand, acknowledged)
