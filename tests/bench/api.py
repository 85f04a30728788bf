"""The API against the same server's call that answers a constant, with a million runs stored. One process serves, as
`kbslurm api` does; this one asks."""

from __future__ import annotations

import http.client
import json
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from urllib.parse import urlsplit

from kbslurm.api import popcorn_submission
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared import wire
from tests.bench import Row, in_turns, percentile, scaled
from tests.contract.store_rig import Rig
from tests.databases import Server
from tests.flow.puppet import Puppet, sealed_report

PEOPLE, RUNS, WATCHERS = 10_000, 1_000_000, 1_000
THREADS = 16
BOARD, GPU = "main", "H100"
SOURCE = b"def custom_kernel(data):\n    return data\n" * 50

# What the foreign keys would look up one by one is right by construction. Each person's times wander about their own.
FILL = b"""
WITH someone AS (
    INSERT INTO person (name, role, created_at)
    SELECT 'filler-' || n, 'participant', %(now)s FROM generate_series(1, %(people)s) n RETURNING id
), known AS (
    SELECT array_agg(id) AS ids FROM someone
), made AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    SELECT ids[1 + n %% %(people)s], %(board)s, 'leaderboard', 'x.py', 'x', '', 'bench', false,
        %(now)s + n * interval '1 second'
    FROM known, generate_series(1, %(runs)s) n RETURNING id, person_id
), ran AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, state, came_from, fair_at, queued_at,
        cost_s, by_staff, secret_seed, ended_at, may_rank)
    SELECT id, %(version)s, person_id, %(gpu)s, 'scored', 'running', %(now)s, %(now)s, 60, false, '', %(now)s, true
    FROM made RETURNING id, person_id
)
INSERT INTO verdict (run_id, attempt_id, name, reason, score_s, low_s, high_s, isolation, ranked, at)
SELECT id, id, 'passed', '', t, t * 0.99, t * 1.01, 2, true, %(now)s
FROM (SELECT id, 0.001 * (1 + person_id %% 9973 + (id * 7919 %% 1000) / 1000.0) AS t FROM ran) timed
"""


def run() -> list[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    with _stage() as stage:
        return [*stage.one_by_one(), *stage.under_load(), stage.submissions(), *stage.watchers()]


@contextmanager
def _stage() -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="kbbench-"))
    folder.chmod(0o711)
    (folder / "api").mkdir()
    try:
        started = Embedded.start(folder / "pg")
        try:
            url = Server(started.url).create()
            migrate.upgrade(url)
            with PostgresStore(url) as store:
                rig = Rig.on(store)
                _fill(rig, scaled(RUNS, least=1000), scaled(PEOPLE, least=10))
                number, token = _judged(rig)
                constant = folder / "constant.json"
                constant.write_text(json.dumps(popcorn_submission.submission(store.submissions.get(number), None)))
            with _serving(url, folder / "api", constant) as (served, pid):
                yield Stage(served, pid, number, token)
        finally:
            started.stop(immediate=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(url: str, folder: Path, constant: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "tests.bench._api_served", url, str(folder), str(constant)]
    serving = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip(), serving.pid
    finally:
        assert serving.stdin is not None
        serving.stdin.close()
        serving.wait(60)


def _fill(rig: Rig, runs: int, people: int) -> None:
    told = {
        "now": rig.now, "people": people, "runs": runs, "board": rig.board.id, "gpu": GPU,
        "version": rig.board.problem_version_id,
    }  # fmt: skip
    with rig.store._pool.statement() as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(FILL, told)
        connection.execute("SET session_replication_role = DEFAULT")
        connection.execute("VACUUM ANALYZE")


def _judged(rig: Rig) -> tuple[SubmissionId, str]:
    """A submission as its owner polls it, with the report of a usual problem, and their token."""
    store = rig.store
    person = store.people.ensure("ada")
    number = accept(
        store.intake, person.id, rig.board.name, "k.py", SOURCE, "leaderboard", [GPU], rig.now
    ).submission_id
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={GPU: 1}).capacity()}, ()), rig.now)
    assert attempt is not None
    tests = [wire.TestResult(phase="test", index=n, spec=f"rows: {n}; cols: 64", status="pass") for n in range(20)]
    assert score(store, attempt, sealed_report(store.attempts.work(attempt.id), tests=tests), rig.now)
    return number, store.tokens.issue(person.id)


class Stage:
    """A server with a million runs behind it."""

    def __init__(self, url: str, pid: int, number: SubmissionId, token: str) -> None:
        self.url, self.pid, self.number = url, pid, number
        self.place = urlsplit(url)
        self.headers = {"X-Popcorn-Cli-Id": token}

    def asker(self, path: str) -> Callable[[], None]:
        """A call on a connection of its own."""
        connection = http.client.HTTPConnection(self.place.hostname or "", self.place.port, timeout=120)

        def ask() -> None:
            connection.request("GET", path, headers=self.headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status

        return ask

    @property
    def poll(self) -> str:
        return f"/user/submissions/{self.number}"

    def one_by_one(self) -> list[Row]:
        board = f"/submissions/{BOARD}/{GPU}?limit=100"
        poll, constant, shown = self.asker(self.poll), self.asker(f"/constant/{self.number}"), self.asker(board)
        began = perf_counter()
        shown()
        cold_s = perf_counter() - began
        count = scaled(2000, least=100)
        for warm in (poll, constant, shown):
            for _ in range(20):
                warm()
        ours, theirs = in_turns(poll, constant, count)
        boards, polls = in_turns(shown, poll, count)
        poll_s, constant_s = statistics.median(ours), statistics.median(theirs)
        board_s, again_s = statistics.median(boards), statistics.median(polls)
        stored = f"{scaled(PEOPLE, least=10):,} people with {scaled(RUNS, least=1000):,} runs"
        return [
            Row(
                name="poll", value=1 / poll_s, unit="/s", against=f"a constant {1 / constant_s:,.0f}/s",
                ratio=constant_s / poll_s, at_least=0.4,
            ),
            Row(
                name=f"board of {stored}", value=board_s * 1e3, unit="ms", against=f"a poll {again_s * 1e3:.2f} ms",
                ratio=board_s / again_s, at_most=3.0,
            ),
            Row(name=f"the first look at a board of {stored}", value=cold_s * 1e3, unit="ms"),
        ]  # fmt: skip

    def under_load(self) -> list[Row]:
        """Many poll at once, as fast as they are answered."""
        took = self._crowd(lambda: self.asker(self.poll), scaled(10_000, least=320))
        each = [one for many in took[0] for one in many]
        return [
            Row(name=f"polls of {THREADS} at once", value=len(each) / took[1], unit="/s"),
            *(
                Row(name=f"poll p{percent}, {THREADS} at once", value=percentile(each, percent) * 1e3, unit="ms")
                for percent in (50, 99)
            ),
        ]

    def submissions(self) -> Row:
        """Files taken through HTTP: each is committed before it is answered."""
        boundary = "benchboundary"
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="k.py"\r\n\r\n'.encode()
            + SOURCE
            + f"\r\n--{boundary}--\r\n".encode()
        )
        headers = {**self.headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}

        def sender() -> Callable[[], None]:
            connection = http.client.HTTPConnection(self.place.hostname or "", self.place.port, timeout=120)

            def send() -> None:
                connection.request("POST", f"/submission/{BOARD}/{GPU}/test", body=body, headers=headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 202, answer.status

            return send

        took, whole_s = self._crowd(sender, scaled(2000, least=160))
        return Row(name=f"accepted through HTTP, {THREADS} at once", value=sum(map(len, took)) / whole_s, unit="/s")

    def watchers(self) -> list[Row]:
        """Many follow a board at once: what each costs in memory, and that others are still answered."""
        count = scaled(WATCHERS, least=50)
        asked = f"GET /live/{BOARD} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        before, watching = self._memory(), []
        try:
            for _ in range(count):
                watching.append(socket.create_connection((self.place.hostname or "", self.place.port or 0), 120))
                watching[-1].sendall(asked)
            for one in watching:
                text = b""
                while b": here" not in text:
                    piece = one.recv(4096)
                    assert piece, text
                    text += piece
            after = self._memory()
            poll = self.asker(self.poll)
            each = [_took(poll) for _ in range(scaled(500, least=50))]
        finally:
            for one in watching:
                one.close()
        return [
            Row(
                name=f"memory with {count:,} watchers",
                value=after / 2**20,
                unit="MiB",
                against=f"{before >> 20} before",
            ),
            Row(name="memory of each watcher", value=(after - before) / count / 1024, unit="KiB"),
            Row(name=f"poll p50 with {count:,} watchers", value=percentile(each, 50) * 1e3, unit="ms"),
        ]

    def _memory(self) -> int:
        """What the server holds, resident."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def _crowd(self, asker: Callable[[], Callable[[], None]], count: int) -> tuple[list[list[float]], float]:
        took: list[list[float]] = [[] for _ in range(THREADS)]

        def work(mine: list[float]) -> None:
            ask = asker()
            mine += [_took(ask) for _ in range(count // THREADS)]

        threads = [threading.Thread(target=work, args=(mine,)) for mine in took]
        began = monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return took, monotonic() - began


def _took(act: Callable[[], None]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began
