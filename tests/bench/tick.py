"""One tick of the daemon over many open attempts: linear in them, under a second, in little memory."""

from __future__ import annotations

import os
import statistics
import threading
from contextlib import closing
from pathlib import Path
from time import perf_counter

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.lane import Lane
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.timing import Timing
from kbslurm.flow.place import Place
from kbslurm.store import migrate
from tests import databases
from tests.bench import Row, scaled
from tests.flow.puppet import RUNNING, Puppet
from tests.flow.stage import Stage

MANY, TICKS = 10_000, 5
MIB = 1 << 20
# One run stands for all: the tick looks at attempts, and what they are attempts at makes no difference to it.
FILL = """
WITH s AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    SELECT person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at
    FROM submission CROSS JOIN generate_series(2, %s) RETURNING *
)
INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff, secret_seed)
SELECT s.id, run.problem_version_id, s.person_id, run.gpu, now(), now(), 1, false, 'seed' FROM s CROSS JOIN run
RETURNING id
"""
OPEN = """
INSERT INTO attempt (run_id, number, name, backend, gpu, state, handle, key, nonce, opened_at, deadline_at,
    submitted_at, started_at, seen_at, node)
SELECT id, 1, 'kb-' || id, 'puppet', gpu, 'running', id::text, 'key', 'nonce', now(), now() + interval '1 day', now(),
    now(), now(), 'node1'
FROM run RETURNING id
"""


def run() -> list[Row]:
    count = scaled(MANY, least=100)
    with databases.server() as server:
        tenth_s, _ = _tick_s(server, count // 10)
        all_s, resident = _tick_s(server, count)
    return [
        Row(name=f"tick, {count:,} open attempts", value=all_s, unit="s", at_most=1.0),
        Row(
            name="tick, ten times the attempts",
            value=all_s,
            unit="s",
            against=f"{tenth_s * 1000:.0f} ms at {count // 10:,}",
            ratio=all_s / tenth_s,
            at_most=15.0,
        ),
        Row(name="daemon's memory", value=resident / MIB, unit="MiB", at_most=200.0),
    ]


def _tick_s(server: databases.Server, count: int) -> tuple[float, int]:
    """The median tick, its lane's turn included, and how much memory this process has then."""
    url = server.create()
    migrate.upgrade(url)
    stage = Stage.build(url, clock=WallClock())
    with closing(stage):
        stage.submit()
        stage.rows(FILL, count)
        stage.rows("UPDATE run SET state = 'launching', attempts = 1 RETURNING id")
        stage.rows("UPDATE run SET state = 'running' RETURNING id")
        stage.rows(OPEN)
        puppet = Puppet(default=RUNNING, slots={"A100": count})
        daemon = Daemon(stage.store, [Place(backend=puppet)], timing=Timing(lease_s=600))
        (lane,) = daemon.lanes.values()
        took = [_one(daemon, lane) for _ in range(TICKS)]
        assert puppet.calls == ["poll"] * TICKS
        lane.close(60)
    server.drop(url)
    return statistics.median(took), _resident()


def _one(daemon: Daemon, lane: Lane) -> float:
    lane.rung = True
    began = perf_counter()
    daemon.tick()
    while lane.busy:
        threading.Event().wait(0.001)
    return perf_counter() - began


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
