"""What changes just while a submission is stored is decided on again, and is never a bug."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kbslurm.errors import BackendTrouble, QuotaSpent
from kbslurm.store.intake import TRIES, Intake
from tests.flow.stage import Stage


class Raced(Intake):
    """The same, and somebody else's statements are committed between its check and its insert."""

    url = ""
    statements: tuple[str, ...] = ()

    def _check_again(self, *told: Any) -> None:
        super()._check_again(*told)
        if self.statements:
            first, *rest = self.statements
            self.statements = tuple(rest)
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(first.encode())


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url)
    try:
        built.store.limits.set_rate("board", "test", 5, by="root", now=built.clock.now())
        yield built
    finally:
        built.close()


def raced(stage: Stage, *statements: str) -> Stage:
    store = stage.store
    intake = Raced(store.intake._pool, store.boards, store.problems)
    intake.url, intake.statements = stage.url, statements
    store.intake = intake
    return stage


MORE = "UPDATE rate_limit SET most_per_hour = most_per_hour + 1"


@pytest.mark.parametrize("times", [1, 3, TRIES - 1])
def test_a_limit_that_changes_meanwhile_is_read_again(stage: Stage, times: int) -> None:
    receipt = raced(stage, *[MORE] * times).submit()
    assert [row["id"] for row in stage.rows("SELECT id FROM submission")] == [receipt.submission_id]


def test_a_run_that_ends_meanwhile_is_no_bug(stage: Stage) -> None:
    stage.submit()
    over = "UPDATE run SET state = 'cancelled', ended_at = queued_at"
    receipt = raced(stage, over).submit()
    assert stage.open_runs() == stage.open_runs(receipt.submission_id) == 1


def test_a_limit_that_is_reached_meanwhile_refuses(stage: Stage) -> None:
    with pytest.raises(QuotaSpent):
        raced(stage, "UPDATE rate_limit SET most_per_hour = 0").submit()
    assert stage.rows("SELECT id FROM submission") == []


def test_what_never_stays_the_same_is_the_databases_trouble(stage: Stage) -> None:
    with pytest.raises(BackendTrouble):
        raced(stage, *[MORE] * TRIES).submit()
    assert stage.rows("SELECT id FROM submission") == []
