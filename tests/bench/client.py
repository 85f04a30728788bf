"""`Client.evaluate` against what the service's two slots do with what is stored in the
database directly. The harness is over at once, so what is compared is the way there and back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import closing
from itertools import count
from time import perf_counter

from kbslurm.client import Client
from kbslurm.daemon.clock import WallClock
from kbslurm.store import migrate
from tests import databases
from tests.bench import Row, scaled
from tests.flow.stage import Stage

EVALUATIONS, TURNS = 1000, 4
AIM = 0.9


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="kbbench-") as folder, databases.server() as server:
        url = server.create()
        migrate.upgrade(url)
        with closing(Stage.build(url, clock=WallClock())) as stage:
            command = [sys.executable, "-m", "tests.bench._client_served", url, folder]
            serving = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert serving.stdin is not None and serving.stdout is not None
            try:
                return _rows(stage, serving.stdout.readline().strip())
            finally:
                serving.stdin.close()
                serving.wait(60)


def _rows(stage: Stage, address: str) -> list[Row]:
    store, numbers, each = stage.store, count(), max(5, scaled(EVALUATIONS) // TURNS)
    token = store.tokens.issue(stage.person("programmer"), kind="service")
    by_client, by_slots = 0.0, 0.0
    with Client(address, token=token) as client:
        _passed(client, numbers, 5)  # pays for connections and caches
        for _ in range(TURNS):
            by_client += _passed(client, numbers, each)
            by_slots += _queued(stage, numbers, each)
    done = each * TURNS
    return [
        Row(
            name=f"{done:,} evaluations by the client, 2 slots",
            value=done / by_client,
            unit="/s",
            against=f"{done / by_slots:.3g} /s stored directly",
            ratio=by_slots / by_client,
            at_least=AIM,
        )
    ]


def _passed(client: Client, numbers: count[int], each: int) -> float:
    sources = [f"# passed {next(numbers)}\n" for _ in range(each)]
    began = perf_counter()
    found = list(client.evaluate("board", sources))
    took = perf_counter() - began
    assert len(found) == each and all(one.passed for one in found)
    return took


def _queued(stage: Stage, numbers: count[int], each: int) -> float:
    """The same without a client: stored by this process, as fast as the database takes them, while the slots work."""
    began = perf_counter()
    for _ in range(each):
        stage.submit(f"# passed {next(numbers)}\n", mode="benchmark")
    stage.wait_until(lambda: stage.open_runs() == 0)
    return perf_counter() - began
