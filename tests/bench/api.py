"""The API against the same server's call that answers a constant, with a million runs stored. One process serves, as
`kbslurm api` does; this one asks."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any
from urllib.parse import urlsplit

from kbslurm.api import popcorn_submission
from kbslurm.api.sessions import SESSION
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared import wire
from tests.bench import Row, in_turns, percentile, scaled, seconds_each
from tests.bench._api_crowd import SOURCE, Crowd, Judge, allow_many_files, crowd, submitter
from tests.contract.store_rig import Rig
from tests.databases import Server
from tests.flow.puppet import Puppet, sealed_report

PEOPLE, RUNS, WATCHERS = 10_000, 1_000_000, 1_000
CROWD, STORMS, PER_SECOND = 500, 5, 5
THREADS = 16
POLLERS, POLLS_PER_SECOND = 8, 80
BOARD, GPU = "main", "H100"
PAGE = f"/board/{BOARD}/{GPU}"
PAGE_SHARE = 0.25

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
    allow_many_files()
    with _stage() as stage:
        return [
            *stage.one_by_one(),
            *stage.pages(),
            *stage.pages_at_once(),
            *stage.under_load(),
            *stage.submissions(),
            *stage.while_watched(),
            *stage.watchers(),
        ]


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
                yield Stage(served, pid, number, token, url)
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

    def __init__(self, url: str, pid: int, number: SubmissionId, token: str, database: str) -> None:
        self.url, self.pid, self.number, self.database = url, pid, number, database
        self.place = urlsplit(url)
        self.headers = {"X-Popcorn-Cli-Id": token}
        with PostgresStore(database) as store:
            self.tokens = [store.tokens.issue(store.people.ensure(f"racer-{n}").id) for n in range(50)]

    def asker(self, path: str, headers: dict[str, str] | None = None) -> Callable[[], None]:
        """A call on a connection of its own."""
        connection = http.client.HTTPConnection(self.place.hostname or "", self.place.port, timeout=120)
        sent = self.headers if headers is None else headers

        def ask() -> None:
            connection.request("GET", path, headers=sent)
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
        took = self._crowd(lambda _: self.asker(self.poll), scaled(10_000, least=320))
        each = [one for many in took[0] for one in many]
        return [
            Row(name=f"polls of {THREADS} at once", value=len(each) / took[1], unit="/s"),
            *(
                Row(name=f"poll p{percent}, {THREADS} at once", value=percentile(each, percent) * 1e3, unit="ms")
                for percent in (50, 99)
            ),
        ]

    def pages(self) -> list[Row]:
        """The board's page and the start page against the constant: as anybody sees them, signed in, and the board's
        when it has changed each time."""
        with PostgresStore(self.database) as store:
            session = store.tokens.issue(store.people.ensure("ada").id, kind="web")
            rows = [
                self._page_row("board page", PAGE, {}),
                self._page_row("board page, signed in", PAGE, {"Cookie": f"{SESSION}={session}"}),
                self._page_row("start page", "/", {}),
                self._page_row("start page, signed in", "/", {"Cookie": f"{SESSION}={session}"}),
            ]
            judge = Judge(store)
            changed = seconds_each(self.asker(PAGE, {}), scaled(60, least=20), judge.next_first)
        return [*rows, Row(name="board page after a verdict", value=statistics.median(changed) * 1e3, unit="ms")]

    def _page_row(self, name: str, path: str, headers: dict[str, str]) -> Row:
        page, constant = self.asker(path, headers), self.asker(f"/constant/{self.number}")
        for warm in (page, constant):
            for _ in range(20):
                warm()
        pages, constants = in_turns(page, constant, scaled(300, least=60))
        page_s, constant_s = statistics.median(pages), statistics.median(constants)
        against = f"a constant {1 / constant_s:,.0f}/s"
        return Row(
            name=name, value=1 / page_s, unit="/s", against=against, ratio=constant_s / page_s, at_least=PAGE_SHARE
        )

    def pages_at_once(self) -> list[Row]:
        """Everybody opens the board in the same second, and somebody polls beside them.

        Of some hundred polls the slowest is what the machine does: the crowd, the server and its database compete for
        the processors, and whoever doesn't get one waits. So the polls are compared as wholes, each quantile with the
        same one of polls without a crowd, made in turns with the crowds; and how long the server waited for a processor
        is shown.
        """
        count = CROWD
        constant, page, poll = self.asker(f"/constant/{self.number}"), self.asker(PAGE, {}), self.asker(self.poll)
        whole, beside, alone, idle_s, waited_s = [], list[float](), list[float](), 0.0, 0.0
        with crowd("storm", url=self.url, path=PAGE, count=count) as they:
            _, constants = in_turns(poll, constant, 200)
            pages = seconds_each(page, 50)
            for _ in range(STORMS):
                before = self._waits()
                alone += seconds_each(poll, 200)
                idle_s += self._waited_s(before)
                before = self._waits()
                they.go()
                with _until_told(they) as told:
                    polls = []
                    while not told.is_done:
                        polls.append(_took(poll))
                waited_s += self._waited_s(before)
                whole.append(told.line["whole_s"])
                beside += polls
        constant_s, page_s = map(statistics.median, (constants, pages))
        whole_s, due_s = statistics.median(whole), count * constant_s / PAGE_SHARE
        return [
            Row(
                name=f"{count} board pages at once", value=whole_s, unit="s",
                against=f"{count} × a page at {PAGE_SHARE:g} of the constant's rate {due_s:.2f} s",
                ratio=whole_s / due_s, at_most=1.5,
            ),
            Row(
                name=f"{count} board pages at once, against one after another", value=whole_s, unit="s",
                against=f"{count} × {page_s * 1e3:.2f} ms", ratio=whole_s / (count * page_s),
            ),
            *(
                Row(
                    name=f"poll beside {count} board pages, p{percent}", value=percentile(beside, percent) * 1e3,
                    unit="ms", against=f"alone {percentile(alone, percent) * 1e3:.2f} ms",
                    ratio=percentile(beside, percent) / percentile(alone, percent), at_most=10.0,
                )
                for percent in (50, 99)
            ),
            Row(
                name=f"poll beside {count} board pages, the slowest of {len(beside)}", value=max(beside) * 1e3,
                unit="ms", against=f"of {len(alone)} alone {max(alone) * 1e3:.1f} ms", ratio=max(beside) / max(alone),
            ),
            Row(
                name=f"the server waited for a processor, beside {count} board pages", value=waited_s / sum(whole),
                unit="s/s", against=f"without them {idle_s / sum(alone):.2f} s/s",
            ),
        ]  # fmt: skip

    def submissions(self) -> list[Row]:
        """Files taken through HTTP, each committed before it is answered, against polls of as many clients."""
        path, mine = f"/submission/{BOARD}/{GPU}/test", self.headers["X-Popcorn-Cli-Id"]
        sends, polls = in_turns(submitter(self.url, path, mine), self.asker(self.poll), scaled(1000, least=100))
        send_s, poll_s = statistics.median(sends), statistics.median(polls)
        rates: dict[str, list[float]] = {"one": [], "all": [], "polled": []}
        for _ in range(4):
            for name, asker in (
                ("all", lambda one: submitter(self.url, path, self.tokens[one])),
                ("polled", lambda one: self.asker(self.poll)),
                ("one", lambda one: submitter(self.url, path, mine)),
            ):
                took, whole_s = self._crowd(asker, scaled(800, least=160))
                rates[name].append(sum(map(len, took)) / whole_s)
        together, alone, polled = (statistics.median(rates[name]) for name in ("all", "one", "polled"))
        return [
            Row(
                name="accepted through HTTP", value=1 / send_s, unit="/s", against=f"polls {1 / poll_s:,.0f}/s",
                ratio=poll_s / send_s, at_least=0.25,
            ),
            Row(
                name=f"accepted through HTTP from {THREADS} people at once", value=together, unit="/s",
                against=f"polls {polled:,.0f}/s", ratio=together / polled, at_least=0.25,
            ),
            Row(
                name=f"accepted through HTTP from one person, {THREADS} at once", value=alone, unit="/s",
                against=f"polls {polled:,.0f}/s", ratio=alone / polled,
            ),
        ]  # fmt: skip

    def while_watched(self) -> list[Row]:
        """Polls while people submit and are judged: with the board open in many browsers, and in none."""
        count, lasts_s = CROWD, scaled(15, least=8)
        competing = {"url": self.url, "database": self.database, "path": f"/submission/{BOARD}/{GPU}/leaderboard"}
        bare: list[float] = []
        watched: list[float] = []
        with crowd("compete", **competing, tokens=self.tokens, per_second=PER_SECOND):
            for _ in range(2):
                bare += self._paced(lasts_s)
                with crowd("watch", url=self.url, page=PAGE, count=count, headers={}) as they:
                    watched += self._paced(lasts_s)
                    they.end()
                    told = they.told()
        lone_s, seen_s = percentile(bare, 99), percentile(watched, 99)
        return [
            Row(
                name=f"poll p99 with {count} watchers and {PER_SECOND} submissions/s", value=seen_s * 1e3, unit="ms",
                against=f"without watchers {lone_s * 1e3:.1f} ms", ratio=seen_s / lone_s, at_most=3.0,
            ),
            Row(
                name=f"poll p50 with {count} watchers and {PER_SECOND} submissions/s",
                value=percentile(watched, 50) * 1e3, unit="ms",
                against=f"without watchers {percentile(bare, 50) * 1e3:.1f} ms",
            ),
            Row(
                name="events that each watcher got", value=told["events"] / count / lasts_s, unit="/s",
                against=f"{told['bytes'] / count / lasts_s / 1024:,.1f} KiB/s",
            ),
        ]  # fmt: skip

    def _paced(self, seconds: int) -> list[float]:
        """How long polls took that came at a steady rate, however slow the ones before them were."""
        took: list[float] = []
        until = monotonic() + seconds

        def work(first: float) -> None:
            ask, due = self.asker(self.poll), monotonic() + first
            while due < until:
                sleep(max(0.0, due - monotonic()))
                took.append(_took(ask))
                due = max(due + POLLERS / POLLS_PER_SECOND, monotonic())

        threads = [threading.Thread(target=work, args=(n / POLLS_PER_SECOND,)) for n in range(POLLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return took

    def watchers(self) -> list[Row]:
        """Many follow a board at once: what each costs in memory, and that others are still answered."""
        count = scaled(WATCHERS, least=50)
        asked = f"GET /live/{BOARD} HTTP/1.1\r\nHost: {self.place.netloc}\r\n\r\n".encode()
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

    def _waits(self) -> dict[str, int]:
        """How long each of the server's threads has waited for a processor, in ns, as far as the kernel counts that."""
        found = {}
        for one in Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # it has just ended
                found[one.parent.name] = int(one.read_text().split()[1])
        return found

    def _waited_s(self, before: dict[str, int]) -> float:
        """How long they have waited since then, all together."""
        return sum(ns - before.get(one, 0) for one, ns in self._waits().items()) / 1e9

    def _crowd(self, asker: Callable[[int], Callable[[], None]], count: int) -> tuple[list[list[float]], float]:
        took: list[list[float]] = [[] for _ in range(THREADS)]

        def work(one: int) -> None:
            ask = asker(one)
            took[one] += [_took(ask) for _ in range(count // THREADS)]

        threads = [threading.Thread(target=work, args=(one,)) for one in range(THREADS)]
        began = monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return took, monotonic() - began


class _Told:
    """The line that another process prints, read beside."""

    line: Any = None

    @property
    def is_done(self) -> bool:
        return self.line is not None


@contextmanager
def _until_told(they: Crowd) -> Iterator[_Told]:
    found = _Told()

    def read() -> None:
        found.line = they.told()

    reading = threading.Thread(target=read)
    reading.start()
    yield found
    reading.join()


def _took(act: Callable[[], None]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began
