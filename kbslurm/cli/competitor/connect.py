"""The service to use: over HTTP if one is named, else the database."""

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
from kbslurm.cli.lookup import AT_A_SERVICE, NO_BOARDS
from kbslurm.cli.service_in_use import TOKEN, URL, InUse, in_use
from kbslurm.errors import (
    Invalid,
    NotFound,
    Unauthenticated,
    Unnamed,
)

if TYPE_CHECKING:
    from kbslurm.client.http import Client


def service_named(where: str | None) -> InUse:
    """The service named on the command line, else the one in use."""
    if where:
        url = kept_tokens.address(where)
        known = kept_tokens.book().at(url)
        return InUse(url=url, context=known.name if known else None, token=kept_tokens.token_for(url), named_by=where)
    found = in_use()
    if found is None:
        raise Invalid("no service is configured", hint=f"Run: kbslurm login https://…, or set {URL}.")
    return found


@contextmanager
def service(as_: str | None = None) -> Iterator[Service]:
    """The service to use."""
    found = in_use()
    if found is None:
        with opened_store() as store, _maybe_at_a_service():
            yield DatabaseService(store, as_)
        return
    check_identified(found, as_)
    with reached(found.url, found.token) as client:
        yield HttpService(client)


@contextmanager
def _maybe_at_a_service() -> Iterator[None]:
    """Tell whoever looks for a board where none is, or isn't known here, how to get to a service."""
    try:
        yield
    except NotFound as error:
        if error.what == "board" and not error.known and not error.hint:
            hint = NO_BOARDS
        elif error.what == "person":
            hint = f"{error.hint or ''} {AT_A_SERVICE}".strip()
        else:
            raise
        raise NotFound(error.what, error.name, hint=hint) from None


def check_identified(found: InUse, as_: str | None) -> None:
    """Refuse --as where a token says who it is."""
    if as_ is not None:
        raise Invalid(
            f"--as works only with the database; {found.url} identifies you by your token", hint="Run: kbslurm login"
        )


@contextmanager
def reached(named: str, token: str | None, *, anybody: bool = False) -> Iterator[Client]:
    """A client of that service, with this token and no other: somebody may have several there. `anybody`: also without
    one."""
    from kbslurm.client.http import Client

    if token is None and not anybody:
        raise Unnamed(f"you aren't signed in to {named}", hint="Run: kbslurm login")
    with Client(named, token=token, trust_env=not is_near(named)) as client:
        try:
            yield client
        except Unauthenticated:
            if token is None:
                raise
            which, hint = "your saved token", "Run: kbslurm login"
            if os.environ.get(TOKEN):
                which, hint = f"the token in {TOKEN}", f"Set {TOKEN} to another, or unset it and run: kbslurm login"
            raise Unauthenticated(
                f"{named} rejected {which}: it has expired, was revoked, or isn't linked yet", hint=hint
            ) from None


def is_near(named: str) -> bool:
    """Whether it is on this machine, so that no proxy is used."""
    host = urlsplit(named).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
