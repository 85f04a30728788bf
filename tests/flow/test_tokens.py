"""Secrets that people sign in with, as they type and paste them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import pytest

from kbslurm.store.postgres import PostgresStore


def test_no_secret_can_be_taken_for_an_option(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Iterator[str] = iter(["-5aB", "--help", "_5aB"])
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: next(drawn))
    with contextlib.closing(PostgresStore(database_url)) as store:
        assert store.tokens.issue(None, kind="pending", device="laptop") == "_5aB"
