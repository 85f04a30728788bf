"""What the store reads where there is much: counted in rows that Postgres touched, on boards beside larger ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from kbslurm.store.postgres import PostgresStore
from kbslurm.store.rows import Rows
from tests.contract.store_rig import HELLO, Rig

EACH, ELSEWHERE = 100, 8_000
FILL = b"""
WITH made AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    SELECT %(person)s, %(board)s, 'leaderboard', 'x.py', 'x', '', 'test', false, %(now)s + n * interval '1 second'
    FROM generate_series(1, %(many)s::int) n RETURNING id, person_id
), ran AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, state, came_from, fair_at, queued_at, cost_s,
        by_staff, secret_seed, ended_at, attempts)
    SELECT id, %(version)s, person_id, 'H100', 'scored', 'running', %(now)s, %(now)s, 60, false, '', %(now)s, 1
    FROM made RETURNING id
), tried AS (
    INSERT INTO attempt (run_id, number, name, backend, gpu, state, key, nonce, opened_at, ended_at, ending)
    SELECT id, 1, 'kb-' || id, 'local', 'H100', 'reported', 'key', 'nonce', %(now)s, %(now)s, 'reported'
    FROM ran RETURNING id, run_id
)
INSERT INTO verdict (run_id, attempt_id, name, score_s, low_s, high_s, isolation, ranked, at)
SELECT run_id, id, 'passed', 1 + run_id * 0.001, 1, 2, 2, true, %(now)s FROM tried
"""


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    """Ten people with `EACH` submissions each on `main`, beside a much larger board."""
    with closing(PostgresStore(database_url)) as store:
        built = Rig.on(store, gpus=("H100",))
        large = store.boards.add("large", HELLO, gpus=("H100",), confirm=False, now=built.now)
        told = {"version": built.board.problem_version_id, "now": built.now}
        with store._pool.transaction() as connection:
            for n in range(10):
                who = {"person": built.person(f"p{n}"), "board": built.board.id, "many": EACH}
                connection.execute(FILL, {**told, **who})
            connection.execute(FILL, {**told, "person": built.person("other"), "board": large.id, "many": ELSEWHERE})
            connection.execute(b"ANALYZE")
        yield built


def touched(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], object]) -> int:
    """How many rows the scans of its statements gave or threw away, in all their loops."""
    plans: list[Mapping[str, Any]] = []
    read = Rows._all

    def explained(self: Rows, statement: str, told: Mapping[str, Any] | None = None) -> list[Any]:
        with self._pool.statement() as connection:
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), told).fetchone()
        assert row is not None
        plans.append(row["QUERY PLAN"][0]["Plan"])
        return read(self, statement, told)

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "_all", explained)
        ask()
    assert plans
    return sum(map(_rows, plans))


def _rows(plan: Mapping[str, Any]) -> int:
    own = 0
    if "Scan" in plan["Node Type"] and "Relation Name" in plan:
        each = plan["Actual Rows"] + sum(plan[name] for name in plan if name.startswith("Rows Removed by"))
        own = round(each * plan["Actual Loops"])
    return own + sum(map(_rows, plan.get("Plans", ())))


def test_a_board_that_ranks_by_the_latest_is_read_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.rows("UPDATE leaderboard SET ranking = 'last' WHERE name = 'main' RETURNING id")
    found = rig.store.standings.best("main", "H100")
    newest = rig.rows("SELECT max(id) AS id FROM submission WHERE board_id = 1 GROUP BY person_id")
    assert {one.submission_id for one in found} == {row["id"] for row in newest} and len(found) == 10
    everything = 3 * (10 * EACH + ELSEWHERE)
    for ask in (rig.store.standings.best, rig.store.standings.records):
        assert touched(monkeypatch, lambda ask=ask: ask("main", "H100")) < 3 * everything  # type: ignore[misc]


def test_a_rare_verdict_is_looked_for_on_its_board_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        assert rig.store.submissions.newest(board="main", verdict="memory") == []

    assert touched(monkeypatch, ask) < 5 * 10 * EACH < ELSEWHERE
