"""The database gone while runs are handed over to keepers: at once in the middle of a hand-over, between the mail and
its record, and by cut connections. A mail without a record is found in its keeper's mailbox, and never sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from tests.chaos.test_database import come_to, patiently, submit_some
from tests.chaos.warm_arena import WarmArena, warm_arena

RUNS, CUTS = 16, 4


@pytest.fixture
def arena(own_postgres: Embedded, tmp_path: Path, root: Path) -> Iterator[WarmArena]:
    """A keeper of it holds, and its daemon lives."""
    migrate.upgrade(own_postgres.url)
    with warm_arena(own_postgres.url, tmp_path, root) as made:
        made.stage.person("ada")
        made.order()
        made.hand.start()
        made.wait_holding(1)
        yield made


def finish(arena: WarmArena, acknowledged: set[int]) -> None:
    arena.stage.wait_until(lambda: patiently(arena.stage))
    arena.finish()
    runs = arena.stage.runs()
    assert acknowledged <= {run["submission_id"] for run in runs}
    assert {run["verdict"] for run in runs} == {"passed"}


def test_a_database_that_is_gone_between_mail_and_record_leaves_one_verdict(
    arena: WarmArena, own_postgres: Embedded
) -> None:
    (keeper,) = arena.holding()
    hold, here = arena.root / "hold-sent", arena.root / "at-sent"
    hold.touch()
    acknowledged = submit_some(arena.stage, 1)
    arena.stage.wait_until(here.exists)
    (attempt,) = arena.stage.store.attempts.open()
    assert attempt.handle is None, "its mail is posted, and nothing says so"
    own_postgres.stop(immediate=True)
    hold.unlink()
    # Its run is over before anybody can write down that it was handed over.
    done = arena.root / "keepers" / keeper.name / "done" / attempt.name
    arena.wait_file(done)
    server = Embedded.start(own_postgres.data_dir, fast=True)
    assert server.url == arena.stage.url
    finish(arena, acknowledged)
    (row,) = arena.attempts()
    assert (row["keeper_id"], row["number"], row["state"]) == (keeper.id, 1, "reported"), row


def test_a_database_that_is_gone_over_a_keeper_that_was_sent_leaves_one_keeper(
    arena: WarmArena, own_postgres: Embedded
) -> None:
    hold, here = arena.root / "hold-keeper_sent", arena.root / "at-keeper_sent"
    hold.touch()
    arena.order()
    arena.stage.wait_until(here.exists)
    own_postgres.stop(immediate=True)
    hold.unlink()
    Embedded.start(own_postgres.data_dir, fast=True)
    arena.wait_holding(2)
    finish(arena, submit_some(arena.stage, 4))


def test_connections_cut_while_runs_are_handed_over_lose_nothing(arena: WarmArena) -> None:
    arena.order()
    acknowledged = submit_some(arena.stage, RUNS)
    assert len(acknowledged) == RUNS
    for number in range(1, CUTS + 1):
        come_to(arena.stage, number * RUNS // (CUTS + 2))
        cut = arena.stage.rows(
            "SELECT pg_terminate_backend(pid) AS cut FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert any(row["cut"] for row in cut)
        acknowledged |= submit_some(arena.stage, 1)
    finish(arena, acknowledged)
    assert arena.warm_runs() >= RUNS // 4  # the others found it sooner to run alone
