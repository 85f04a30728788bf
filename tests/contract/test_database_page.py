"""docs/database.md as it stands: expand, migrate and contract on a real Postgres, old and new code at work."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from kbslurm.config import shared_folders
from kbslurm.errors import KbslurmError
from kbslurm.store import migrate
from kbslurm.store.postgres import PostgresStore
from tests.contract.test_store_schema import catalog
from tests.flow.stage import PROBLEM, START

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "database.md").read_text(encoding="utf-8")
EXPANSION, CONTRACTION = "9001", "9002"
BEFORE = 250  # boards that are there before, so that the batches are several
ROUNDS = 8  # of each code in each step
PATIENCE_S = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def revision_of(word: str) -> str:
    (found,) = [one for one in blocks("python") if one.startswith(f"# {word}\n")]
    return found


def statement_after(words: str) -> str:
    (sql,) = blocks("sql")
    return next(part for part in sql.split("-- ") if part.startswith(words)).partition("\n")[2].strip().rstrip(";")


@pytest.fixture
def revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Today's revisions, and the page's two on top of them."""
    folder = tmp_path / "alembic"
    shutil.copytree(shared_folders.path("alembic"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    below = migrate.revisions()[-1]
    (both,) = re.findall(r'^BOTH = """.*?"""$', revision_of("expand"), re.DOTALL | re.MULTILINE)
    for word, name in (("expand", EXPANSION), ("contract", CONTRACTION)):
        head = f'import sqlalchemy as sa\nfrom alembic import op\n\nrevision = "{name}"\ndown_revision = "{below}"\n'
        text = revision_of(word) if word == "expand" else f"{both}\n{revision_of(word)}"
        (folder / "versions" / f"{name}_{word}.py").write_text(head + text)
        below = name
    real = shared_folders.path
    monkeypatch.setattr(shared_folders, "path", lambda name: folder if name == "alembic" else real(name))
    migrate.revisions.cache_clear()
    yield
    monkeypatch.undo()
    migrate.revisions.cache_clear()


@dataclass
class Code:
    """Somebody who writes a board, and reads one that the other code wrote, again and again. Whatever fails, counts."""

    write: Callable[[str, str], None]
    read: Callable[[str], str]
    written: dict[str, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    rounds: int = 0
    others: Code | None = None
    over: threading.Event = field(default_factory=threading.Event)
    turned: threading.Condition = field(default_factory=threading.Condition)
    thread: threading.Thread | None = None

    def begin(self, name: str) -> None:
        self.thread = threading.Thread(target=self._work, args=(name,), name=name)
        self.thread.start()

    def _work(self, name: str) -> None:
        while not self.over.is_set():
            board, text = f"{name}-{self.rounds}", f"written by {name}, round {self.rounds}"
            try:
                self.write(board, text)
                self.written[board] = text
                for other in (self, self.others):
                    if other is not None and other.written:
                        last = list(other.written)[-1]
                        assert self.read(last) == other.written[last], last
            except BaseException as error:
                self.failures.append(error)
            with self.turned:
                self.rounds += 1
                self.turned.notify_all()

    def goes_on(self) -> None:
        """Return when it has been through some rounds more, without a failure."""
        with self.turned:
            aim = self.rounds + ROUNDS
            assert self.turned.wait_for(lambda: self.rounds >= aim, PATIENCE_S), "it hangs"
        assert not self.failures, self.failures

    def end(self) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join(PATIENCE_S)


def old_code(store: PostgresStore) -> Code:
    """Today's: it knows `description` alone."""

    def write(board: str, text: str) -> None:
        store.boards.add(board, PROBLEM, gpus=["A100"], description=text, confirm=False, now=START)

    return Code(write=write, read=lambda board: store.boards.get(board).description)


def new_code(url: str, read: str) -> Code:
    """The next release's: it knows `summary` alone."""
    insert = """
        INSERT INTO leaderboard (name, summary, problem_id, problem_version_id, gpus, secret_seed, created_at)
        SELECT %(name)s, %(text)s, problem_id, id, '{A100}', 'seed', now() FROM problem_version LIMIT 1
    """

    def rows(statement: str, **told: str) -> list[dict[str, str]]:
        with psycopg.connect(url, row_factory=dict_row, autocommit=True) as connection:
            done = connection.execute(statement.encode(), told)
            return done.fetchall() if done.description else []

    def write(board: str, text: str) -> None:
        rows(insert, name=board, text=text)

    return Code(
        write=write,
        read=lambda board: rows(read, name=board)[0]["summary"],
    )


@contextmanager
def at_work(code: Code, name: str) -> Iterator[Code]:
    code.begin(name)
    try:
        yield code
    finally:
        code.end()


@pytest.fixture
def filled(database_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(database_url) as store:
        store.boards.add("first", PROBLEM, gpus=["A100"], description="there before", confirm=False, now=START)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO leaderboard (name, description, problem_id, problem_version_id, gpus, secret_seed,"
                " created_at) SELECT 'b' || n, 'board ' || n, problem_id, problem_version_id, gpus, 'seed', created_at"
                " FROM leaderboard, generate_series(1, %s) n",
                (BEFORE,),
            )
        yield store


def test_old_and_new_code_read_and_write_through_both_steps(
    database_url: str, filled: PostgresStore, revisions: None
) -> None:
    old, before = old_code(filled), catalog(database_url)
    with at_work(old, "old"):
        old.goes_on()
        migrate.upgrade(database_url, EXPANSION)
        old.goes_on()
        new = new_code(database_url, statement_after("new code"))
        new.others, old.others = old, new
        with at_work(new, "new"):
            new.goes_on()
            assert new.read("b7") == "board 7", "it isn't filled yet"
            batch, changed = statement_after("migrate"), list[int]()
            with psycopg.connect(database_url, autocommit=True) as connection:
                while not changed or changed[-1]:
                    changed.append(connection.execute(batch.encode()).rowcount)
            assert len(changed) > 2 and sum(changed) <= BEFORE + 1 + len(old.written)
            old.goes_on()
            new.goes_on()
    assert not old.failures and not new.failures
    # The release after: nobody knows the old column any more.
    later = new_code(database_url, "SELECT summary FROM leaderboard WHERE name = %(name)s")
    with at_work(later, "later"):
        later.goes_on()
        migrate.upgrade(database_url, CONTRACTION)
        later.goes_on()
    everything = {**old.written, **new.written, **later.written, "first": "there before", "b7": "board 7"}
    assert {board: later.read(board) for board in everything} == everything
    migrate.downgrade(database_url, migrate.revisions()[-3])
    assert {board: old.read(board) for board in everything} == everything
    assert catalog(database_url) == before


def test_renaming_in_one_step_fails_what_is_running(database_url: str, filled: PostgresStore) -> None:
    old = old_code(filled)
    with at_work(old, "old"):
        old.goes_on()
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE leaderboard RENAME COLUMN description TO summary")
        with old.turned:
            assert old.turned.wait_for(lambda: old.failures, PATIENCE_S)
    assert isinstance(old.failures[0], KbslurmError | psycopg.Error)
