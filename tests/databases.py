"""Real Postgres for the tests: one server per session, a fresh database per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy.engine import URL, make_url

from kbslurm.errors import KbslurmError
from kbslurm.store.embedded import Embedded
from tests.services import POSTGRES, missing

IN_MEMORY, ROOM_IN_MEMORY = "/dev/shm", 2_000_000_000


class Server:
    """A server that tests may make databases on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)
        copies_files_anyway = self._connection.info.server_version < 150_000
        # Where the files lie in memory, copying them is half the work of logging each page.
        self._strategy = sql.SQL("" if copies_files_anyway else "STRATEGY file_copy")
        self._numbers = itertools.count(1)
        self._made: list[str] = []

    def create(self, template: str | None = None) -> str:
        """A new database, empty or as the template is; its URL."""
        name = f"kbtest_{os.getpid()}_{next(self._numbers)}"
        template = template or "template1"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} {}")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template), self._strategy))
        self._made.append(name)
        return self._url_of(name)

    def drop(self, url: str) -> None:
        """Remove it, connections or not."""
        name = name_of(url)
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        if name in self._made:
            self._made.remove(name)

    def drop_all(self) -> None:
        for name in list(self._made):
            self.drop(self._url_of(name))

    def close(self) -> None:
        self._connection.close()

    def _url_of(self, name: str) -> str:
        return _plain(make_url(self.url).set(database=name))

    def _execute(self, statement: sql.Composed) -> None:
        if self._connection.closed:  # the server was restarted meanwhile
            self._connection = psycopg.connect(self.url, autocommit=True)
        self._connection.execute(statement)


@contextmanager
def server() -> Iterator[Server]:
    """The server of KBSLURM_TEST_DATABASE_URL, else an embedded one that ends with the session."""
    given = os.environ.get("KBSLURM_TEST_DATABASE_URL")
    if given:
        outside = Server(_plain(make_url(given)))
        try:
            yield outside
        finally:
            outside.drop_all()
            outside.close()
        return
    with embedded() as inside, closing(Server(inside.url)) as served:
        yield served


@contextmanager
def embedded() -> Iterator[Embedded]:
    """An embedded server in a directory of its own, for tests that stop and restart it; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="kbtest-", dir=_where_files_are_cheap()))
    folder.chmod(0o711)
    try:
        try:
            started = Embedded.start(folder / "pg", fast=True)
        except KbslurmError as trouble:
            missing(POSTGRES, str(trouble))
        try:
            yield started
        finally:
            # Whoever restarted it in the meantime has its own use; the last one to go takes the server along.
            started.stop(immediate=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _where_files_are_cheap() -> str | None:
    """In memory, if there is room: a new database is three hundred files, which a disk's file system makes and removes
    at ten times the cost. None: where temporary files go."""
    try:
        free = shutil.disk_usage(IN_MEMORY).free
    except OSError:
        return None
    return IN_MEMORY if free >= ROOM_IN_MEMORY and os.access(IN_MEMORY, os.W_OK | os.X_OK) else None


def name_of(url: str) -> str:
    name = make_url(url).database
    assert name
    return name


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
