"""The served API under requests of every kind from everybody: no bug, no odd answer, no secret told.

`KBSLURM_TEST_FUZZ_REQUESTS=200000` looks longer, and with `KBSLURM_TEST_FUZZ_SEED` elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.api.app import create_app
from tests.flow.stage import HandClock
from tests.fuzz import calls, driving
from tests.fuzz.driving import Tally
from tests.fuzz.world import BOT, World
from tests.popcorn.served_api import served
from tests.services import GIT, needs, sized

COUNT = int(os.environ.get("KBSLURM_TEST_FUZZ_REQUESTS", sized(10_000, 2_000)))
SEED = int(os.environ.get("KBSLURM_TEST_FUZZ_SEED", "19"))


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    with served(database_url, tmp_path / "served", clock=HandClock(), boards=False, bot=BOT) as api:
        found = World(api=api, folder=tmp_path)
        found.settle()
        yield found


@needs(GIT)
def test_no_request_finds_a_bug_or_a_secret(world: World) -> None:
    table = calls.of_app(create_app(world.api.context))
    tally = driving.fuzzed(world, table, seed=SEED, count=COUNT)
    print(f"seed {SEED}: {tally.sent:,} requests, {tally.accepted:,} accepted uploads, {dict(tally.manners)}")
    assert not tally.found, "\n\n".join(driving.told(one, SEED) for one in tally.found)
    check_reach(tally, table)
    check_still_well(world)


def check_reach(tally: Tally, table: list[calls.Call]) -> None:
    """It came everywhere: otherwise finding nothing would say nothing."""
    assert tally.sent == COUNT
    assert tally.accepted >= COUNT // 100
    missed = {call.name for call in table} - set(tally.calls)
    assert len(missed) <= (0 if COUNT >= 10_000 else len(table) // 10), missed
    statuses = {status for _, status in tally.statuses}
    assert {200, 202, 303, 400, 401, 403, 404, 405, 413, 422, 431} <= statuses, statuses
    assert tally.statuses["host", 200] and not tally.statuses["mallory, banned", 202]


def check_still_well(world: World) -> None:
    """Nothing is left of whoever hung up, and nothing was counted as a bug."""
    client = world.api.client(None)
    assert client.call("GET", "/health").json() == {"status": "ok"}
    metrics = world.api.context.metrics.text().decode()
    trouble = [line for line in metrics.splitlines() if line.startswith("kbslurm_api_trouble_total")]
    assert trouble and all(line.endswith(" 0.0") for line in trouble), trouble
