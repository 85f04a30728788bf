"""Secrets that people sign in with, as they type and paste them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore

PATIENCE_S = 30.0


def test_no_secret_can_be_taken_for_an_option(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Iterator[str] = iter(["-5aB", "--help", "_5aB"])
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: next(drawn))
    with contextlib.closing(PostgresStore(database_url)) as store:
        assert store.tokens.issue(None, kind="pending", device="laptop") == "_5aB"


def test_whoever_shows_a_token_waits_for_no_disk(own_postgres: Embedded) -> None:
    """Its use is written down once a minute, which on a busy disk took a poll half a second. Here no commit that waits
    ever ends: it needs a standby that there isn't."""
    migrate.upgrade(own_postgres.url)
    found: list[object] = []
    with contextlib.closing(PostgresStore(own_postgres.url)) as store:
        ada = store.people.ensure("ada")
        secret = store.tokens.issue(ada.id)
        with psycopg.connect(own_postgres.url, autocommit=True) as other:
            other.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = on")
            other.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            other.execute("SELECT pg_reload_conf()")
        with contextlib.closing(PostgresStore(own_postgres.url)) as late:
            _wait_for_a_standby(own_postgres.url)
            asking = threading.Thread(target=lambda: found.append(late.tokens.person_of(secret, now=datetime.now(UTC))))
            asking.start()
            asking.join(PATIENCE_S)
            with psycopg.connect(own_postgres.url, autocommit=True) as other:
                other.execute("ALTER SYSTEM RESET synchronous_standby_names")
                other.execute("SELECT pg_reload_conf()")
            assert found, "it waited for its commit"
            asking.join()
            (token,) = late.tokens.of_person(ada.id)
            assert token.used_at is not None


def _wait_for_a_standby(url: str) -> None:
    """Until new connections know that commits need one."""
    while True:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute("SHOW synchronous_standby_names").fetchone()
            if row == ("nobody",):
                return
