"""The service to use: over HTTP if $KBSLURM_URL is set, else the database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.service import Service
from kbslurm.cli.competitor.service_database import DatabaseService
from kbslurm.cli.competitor.service_http import HttpService
from kbslurm.cli.context import opened_store
from kbslurm.errors import (
    Invalid,
    Unauthenticated,
    Unnamed,
)

if TYPE_CHECKING:
    from kbslurm.client.http import Client


URL = "KBSLURM_URL"


def url() -> str | None:
    """The service named by $KBSLURM_URL."""
    named = os.environ.get(URL, "").strip()
    return kept_tokens.address(named) if named else None


def service_address(where: str | None) -> str:
    """The service named on the command line, else by $KBSLURM_URL."""
    named = kept_tokens.address(where) if where else url()
    if named is None:
        raise Invalid("no service is configured", hint=f"Run: kbslurm login https://…, or set {URL}.")
    return named


@contextmanager
def service(as_: str | None = None) -> Iterator[Service]:
    """The service to use."""
    named = url()
    if named is None:
        with opened_store() as store:
            yield DatabaseService(store, as_)
        return
    if as_ is not None:
        raise Invalid(
            f"--as works only with the database; {named} identifies you by your token", hint="Run: kbslurm login"
        )
    with reached(named) as client:
        yield HttpService(client)


@contextmanager
def reached(named: str, token: str | None = None, *, anybody: bool = False) -> Iterator[Client]:
    """A client of that service, with the saved token. `anybody`: also without one."""
    from kbslurm.client.http import Client

    token = token or kept_tokens.token_for(named)
    if token is None and not anybody:
        raise Unnamed(f"you aren't signed in to {named}", hint="Run: kbslurm login")
    with Client(named, token=token, trust_env=not is_near(named)) as client:
        try:
            yield client
        except Unauthenticated:
            raise Unauthenticated(
                f"{named} rejected your saved token: it has expired, was revoked, or isn't linked yet",
                hint="Run: kbslurm login",
            ) from None


def is_near(named: str) -> bool:
    """Whether it is on this machine, so that no proxy is used."""
    host = urlsplit(named).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
