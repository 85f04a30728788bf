"""Connections to Postgres: a small pool, and every database failure as one sentence.

Needs Postgres 14 or newer and real sessions: PgBouncer in transaction mode is not supported, since LISTEN and
prepared statements belong to the session. Connect to Postgres itself, or use session mode with
`ignore_startup_parameters = options`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from kbslurm.errors import BackendTrouble, Invalid, Misconfigured

OLDEST_SERVER = 14
CONNECT_TIMEOUT_S = 5
PING_AFTER_S = 2.0
MOST_IDLE = 16
# Statements are prepared once per connection, often while the tables are still small: their plans must not depend on
# that, and replanning costs more than most of them. So each has one plan, by index wherever there is one.
SETTINGS = (
    "-c TimeZone=UTC -c idle_in_transaction_session_timeout=60s -c lock_timeout=30s"
    " -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
)

Connection = psycopg.Connection[DictRow]


def conninfo(url: str, **more: str | int) -> str:
    """libpq's parameters for this URL, with our defaults. Misconfigured if the URL isn't valid."""
    scheme, sep, rest = url.strip().partition("://")
    if sep:
        if scheme.partition("+")[0] not in ("postgresql", "postgres"):
            raise Misconfigured(
                f"the database URL is for {scheme!r}; kbslurm needs Postgres",
                fix="Set DATABASE_URL to postgresql://user@host/database.",
            )
        url = f"postgresql://{rest}"
    try:
        told = conninfo_to_dict(url)
    except psycopg.Error:
        # libpq quotes the text that it couldn't parse, which may be a password: don't repeat or chain it.
        raise Misconfigured(
            "the database URL isn't valid", fix="Set DATABASE_URL to postgresql://user@host/database."
        ) from None
    told.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
    told.setdefault("application_name", "kbslurm")
    told.setdefault("keepalives_idle", 30)
    told.setdefault("tcp_user_timeout", 30_000)
    told["options"] = f"{SETTINGS} {told.get('options') or ''}".strip()
    return make_conninfo("", **{**told, **more})


def connect(url: str, *, autocommit: bool = True, **more: str | int) -> Connection:
    """A new connection, or Misconfigured (an operator must act) or BackendTrouble (it may be temporary)."""
    info = conninfo(url, **more)
    try:
        found = psycopg.connect(info, autocommit=autocommit, row_factory=dict_row, prepare_threshold=2)
    except psycopg.Error as error:
        retell(error, where(url))
    major = found.info.server_version // 10_000
    if major < OLDEST_SERVER:
        found.close()
        raise Misconfigured(
            f"the database at {where(url)} is Postgres {major}; kbslurm needs {OLDEST_SERVER} or newer",
            fix="Upgrade the server, or point DATABASE_URL at a newer one.",
        )
    return found


def where(url: str) -> str:
    """The database's address without user or password, safe to show."""
    told = conninfo_to_dict(conninfo(url))
    host = told.get("host") or told.get("hostaddr") or "localhost"
    port = f":{told['port']}" if told.get("port") else ""
    return f"{host}{port}/{told.get('dbname') or told.get('user') or ''}"


class Pool:
    """A connection pool with at most `MOST_IDLE` idle ones. Thread-safe; connects on first use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.renew: Callable[[], str | None] | None = None
        self.where = where(url)
        self._idle: list[tuple[Connection, float]] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction: committed on leaving, rolled back by any exception. Failures are KbslurmErrors."""
        with self._lent() as connection, connection.transaction():
            yield connection

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """For single statements: each is its own transaction, which saves round trips."""
        with self._lent() as connection:
            yield connection

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            yield connection
        except psycopg.Error as error:
            self._put(connection)
            if connection.broken:
                self._drop_idle()  # what broke this one has broken the others too
            retell(error, self.where)
        except UnicodeEncodeError:
            self._put(connection)
            raise Invalid("half a character (a lone surrogate) can't be stored", hint="Write it in UTF-8.") from None
        except BaseException:
            # ^C in mid-statement, or a bug: a connection in an unknown state isn't reused.
            self._put(connection)
            raise
        self._put(connection)

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection, since = self._idle.pop() if self._idle else (None, 0.0)
            if connection is None:
                return self.connected()
            if time.monotonic() - since < PING_AFTER_S:
                return connection
            try:
                connection.execute("")
            except psycopg.Error:
                connection.close()
            else:
                return connection

    def connected(self) -> Connection:
        """A new connection. If our password is rejected, the one that holds now is asked for, and tried once."""
        try:
            return connect(self.url)
        except Misconfigured:
            fresh = None if self.renew is None else self.renew()
            if fresh is None or fresh == self.url or where(fresh) != self.where:
                raise
            self.url = fresh
            return connect(fresh)

    def _put(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            dropped, self._idle = self._idle, []
        for connection, _ in dropped:
            connection.close()

    def close(self) -> None:
        """Close idle connections now and busy ones when they are returned."""
        self._closed = True
        self._drop_idle()


def retell(error: psycopg.Error, place: str) -> NoReturn:
    """Raise this error in a host's terms; an unexpected error is raised as it is."""
    code = error.sqlstate or ""
    said = _first_line(error)
    if isinstance(error, psycopg.DataError) and "NUL" in said:
        raise Invalid("a NUL character can't be stored", hint="Remove it.") from None
    if found := _misconfigured(code, str(error).lower(), said, place):
        raise found from error
    if code in ("42P01", "42703", "42883"):
        raise Misconfigured(
            f"the database {place} lacks what this version of kbslurm expects ({said})", fix="Run: kbslurm db upgrade"
        ) from error
    if code in ("40001", "40P01", "55P03", "57014"):
        raise BackendTrouble("database", f"{place} was too busy ({said})", retry_after_s=1.0) from error
    if code[:2] in ("53", "58"):
        raise BackendTrouble(
            "database", f"{place} ran out of resources ({said})", hint="Check its disk, memory and connections."
        ) from error
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or code[:2] in ("08", "57"):
        raise BackendTrouble(
            "database", f"{place} can't be reached ({said})", retry_after_s=1.0, hint="Check that Postgres is running."
        ) from error
    raise error


def _misconfigured(code: str, text: str, said: str, place: str) -> Misconfigured | None:
    """Errors that an operator must fix. Before there is a session, libpq gives no code, only text."""
    early = not code

    def means(*words: str) -> bool:
        return early and any(word in text for word in words)

    if code in ("28P01", "28000") or means(
        "authentication failed", "no password supplied", "no pg_hba.conf entry", 'fatal:  role "'
    ):
        return Misconfigured(f"the database {place} rejects our user or password", fix="Fix DATABASE_URL.")
    if code == "3D000" or (means('fatal:  database "') and "does not exist" in text):
        return Misconfigured(f"there is no database {place}", fix="Create it, or correct DATABASE_URL.")
    if means("invalid integer value", "invalid port number", "invalid connection option"):
        return Misconfigured(f"the database URL can't be used ({said})", fix="Fix DATABASE_URL.")
    if means("resolve host", "translate host name", "name or service not known", "no address associated"):
        return Misconfigured(f"the database's host in {place} is unknown", fix="Fix DATABASE_URL.")
    if code == "42501":
        return Misconfigured(
            f"our user isn't allowed to do this in the database {place} ({said})",
            fix="Grant it the rights, or make it the database's owner.",
        )
    if code == "25006":
        return Misconfigured(
            f"the database {place} is read-only, perhaps a replica", fix="Point DATABASE_URL at the primary."
        )
    return None


def _first_line(error: psycopg.Error) -> str:
    lines = (error.diag.message_primary or str(error) or type(error).__name__).strip().splitlines()
    # For a host with several addresses, report the first one's error.
    said = lines[1].lstrip(" -") if len(lines) > 1 and lines[0].startswith("Multiple connection attempts") else lines[0]
    return " ".join(said.split()).removeprefix("connection failed: ")[:300]
