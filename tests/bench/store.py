"""The store against what psycopg can do at best: bare INSERTs, and a bare UPDATE … SKIP LOCKED.

Postgres keeps its promise here (fsync is on), as it must where it counts.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kbslurm.flow.submit import accept
from kbslurm.ports import NewSubmission
from kbslurm.store import migrate
from kbslurm.store.connect import Connection, connect
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore
from tests.bench import Row, in_turns, percentile, scaled
from tests.contract.store_rig import Rig, slots
from tests.databases import Server

PEOPLE = 50
SOURCE = "def custom_kernel(data):\n    return data\n" * 50
BARE = """
CREATE TABLE bare_submission (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person_id bigint, file_name text,
    source text, at timestamptz);
CREATE TABLE bare_run (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gpu text, state text, fair_at timestamptz);
CREATE INDEX ON bare_run (gpu, fair_at, id) WHERE state = 'queued'
"""
BARE_ACCEPT = b"INSERT INTO bare_submission (person_id, file_name, source, at) VALUES (%s, %s, %s, now())"
BARE_CLAIM = b"""
UPDATE bare_run SET state = 'taken' WHERE id = (SELECT id FROM bare_run WHERE state = 'queued' AND gpu = %s
    ORDER BY gpu, fair_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id
"""
QUEUED, FINISHED = 100_000, 1_000_000


def run() -> list[Row]:
    with _server() as server:
        return [*_accept_and_claim(server), *_claim_when_full(server)]


@contextmanager
def _server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="kbbench-"))
    folder.chmod(0o711)
    try:
        started = Embedded.start(folder / "pg")
        try:
            yield Server(started.url)
        finally:
            started.stop(immediate=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _accept_and_claim(server: Server) -> list[Row]:
    url = server.create()
    migrate.upgrade(url)
    with closing(PostgresStore(url)) as store, closing(connect(url)) as bare:
        bare.execute(BARE)
        rig = Rig.on(store)
        return [*_accept(rig, bare), _claim(rig, bare)]


def _accept(rig: Rig, bare: Connection) -> list[Row]:
    """The act itself, by a look at person and board that was taken just before; and all of it, from the file on."""
    count = scaled(2_000, least=40)
    people = [rig.person(f"p{n}") for n in range(PEOPLE)]
    turns = itertools.count()

    ready: list[NewSubmission] = []

    def look() -> None:
        who = next(turns) % PEOPLE
        basis = rig.store.intake.admission(people[who], rig.board.name, "leaderboard").basis
        ready[:] = [rig.new(f"p{who}", source=SOURCE, basis=basis)]

    def act() -> None:
        rig.store.intake.accept(ready[0], rig.later(1))

    def whole() -> None:
        who = people[next(turns) % PEOPLE]
        accept(rig.store.intake, who, rig.board.name, "kernel.py", SOURCE, "leaderboard", ("H100",), rig.later(1))

    def by_hand() -> None:
        bare.execute(BARE_ACCEPT, (1, "kernel.py", SOURCE))

    rows = []
    for name, aim, acts in (
        ("accept", 0.25, in_turns(act, by_hand, count, prepare=look)),
        ("accept, from the file on", None, in_turns(whole, by_hand, count)),
    ):
        ours, theirs = (statistics.median(took) for took in acts)
        against = f"bare INSERT {1 / theirs:,.0f}/s"
        rows.append(Row(name=name, value=1 / ours, unit="/s", against=against, ratio=theirs / ours, at_least=aim))
    return rows


def _claim(rig: Rig, bare: Connection) -> Row:
    count = scaled(2_000, least=40)
    bare.execute("TRUNCATE bare_run")
    bare.execute(
        "INSERT INTO bare_run (gpu, state, fair_at) SELECT 'H100', 'queued', now() + n * interval '1 second'"
        " FROM generate_series(1, %s) n",
        (2 * count,),
    )
    bare.execute("VACUUM ANALYZE bare_run")
    _queue(rig, 2 * count)
    wanted = slots("H100")
    ours, theirs = in_turns(
        lambda: _must(rig.store.queue.claim(wanted, rig.now)),
        lambda: bare.execute(BARE_CLAIM, ("H100",)).fetchall(),
        count,
    )
    return Row(
        name="claim",
        value=1 / statistics.median(ours),
        unit="/s",
        against=f"bare UPDATE … SKIP LOCKED {1 / statistics.median(theirs):,.0f}/s",
        ratio=statistics.median(theirs) / statistics.median(ours),
        at_least=0.5,
    )


def _claim_when_full(server: Server) -> list[Row]:
    count = scaled(1_000, least=40)
    rigs = []
    for _ in range(2):
        url = server.create()
        migrate.upgrade(url)
        rigs.append(Rig.on(PostgresStore(url)))
    empty, full = rigs
    queued, finished = scaled(QUEUED), scaled(FINISHED)
    _queue(empty, 2 * count)
    _queue(full, queued + count)
    _finish(full, finished)
    wanted = slots("H100", "A100")
    low, high = in_turns(
        lambda: _must(empty.store.queue.claim(wanted, empty.now)),
        lambda: _must(full.store.queue.claim(wanted, full.now)),
        count,
    )
    for rig in rigs:
        rig.store.close()
    return [
        Row(
            name=f"claim latency p{percent}, {queued:,} queued and {finished:,} finished",
            value=percentile(high, percent) * 1e3,
            unit="ms",
            against=f"an empty table {percentile(low, percent) * 1e3:.3f} ms",
            ratio=percentile(high, percent) / percentile(low, percent),
            at_most=1.5 if percent == 50 else None,
        )
        for percent in (50, 95)
    ]


def _queue(rig: Rig, count: int) -> None:
    """So many queued runs at once."""
    _fill(rig, count, "'queued'", "NULL", "NULL")


def _finish(rig: Rig, count: int) -> None:
    _fill(rig, count, "'scored'", "'running'", "%(now)s")


def _fill(rig: Rig, count: int, state: str, came_from: str, ended_at: str) -> None:
    told = {
        "person": rig.person("filler"),
        "board": rig.board.id,
        "version": rig.board.problem_version_id,
        "now": rig.now,
        "n": count,
    }
    with rig.store._pool.statement() as connection:
        # Foreign keys of a million rows that are right by construction needn't be looked up one by one.
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            f"""
            WITH made AS (
                INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff,
                    accepted_at)
                SELECT %(person)s, %(board)s, 'test', 'x.py', 'x', '', 'bench', false, %(now)s
                FROM generate_series(1, %(n)s) RETURNING id
            )
            INSERT INTO run (submission_id, problem_version_id, person_id, gpu, state, came_from, fair_at, queued_at,
                cost_s, by_staff, secret_seed, ended_at)
            SELECT id, %(version)s, %(person)s, 'H100', {state}, {came_from}, %(now)s + id * interval '1 second',
                %(now)s, 60, false, '', {ended_at}
            FROM made
            """.encode(),
            told,
        )
        connection.execute("SET session_replication_role = DEFAULT")
        connection.execute("VACUUM ANALYZE run")


def _must(found: object) -> None:
    assert found is not None, "the queue ran dry"
