"""The hosts' acts: over HTTP if a service is in use, else in the database. Both have the same methods and answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from kbslurm.cli.acting import known_person
from kbslurm.cli.competitor.connect import check_identified, is_near
from kbslurm.cli.context import configuration, opened_store, own_name
from kbslurm.cli.lookup import person_named
from kbslurm.cli.service_in_use import TOKEN, InUse, in_use
from kbslurm.errors import Unauthenticated, Unnamed

if TYPE_CHECKING:
    from kbslurm.api.hosting.hosting import Hosting
    from kbslurm.client.http import Client

    Hosts: TypeAlias = Client | Hosting


@contextmanager
def host(as_: str | None = None, *, creates: bool = False) -> Iterator[Hosts]:
    """The hosts' acts. `as_`: in the name and with the rights of this person, in the database only; `creates`: what is
    made is theirs."""
    found = in_use()
    if found is not None:
        check_identified(found, as_)
        with _client(found) as client:
            yield client
        return
    from kbslurm.api.hosting.hosting import Hosting

    with opened_store() as store:
        maker = known_person(store, as_) if creates else None
        named = person_named(store, as_) if as_ is not None and not creates else None
        yield Hosting(
            store=store,
            config=configuration(),
            by=own_name() if named is None else named.name,
            person=named,
            creator=maker.id if maker is not None else None,
            now=datetime.now(UTC),
        )


@contextmanager
def _client(found: InUse) -> Iterator[Client]:
    from kbslurm.client.http import Client

    if found.token is None:
        raise Unnamed(f"you aren't signed in to {found.url}", hint="Run: kbslurm login")
    # A token says who one is, and as a bearer that one acts as a host.
    with Client(found.url, token=found.token, admin=found.token, trust_env=not is_near(found.url)) as client:
        try:
            yield client
        except Unauthenticated as error:
            usual = f"Sign in to {found.url} as a host: kbslurm login"
            if os.environ.get(TOKEN):
                usual = f"Set {TOKEN} to a host's token, or unset it and run: kbslurm login"
            error.hint = error.hint or usual
            raise


def person(name: str) -> str:
    """How a person is named to the service: by their name or number, and by nothing else."""
    return f"person:{name}"
