"""`kbslurm user token …`: the secrets by which people are known to the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json, PersonName
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import person_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, NotFound


def issue(
    name: PersonName,
    device: Annotated[str, typer.Option(help="Where it will be used, to know it again.")] = "",
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="It ends after so many days.")] = None,
    as_json: Json = False,
) -> int:
    """A new token for a person. It is shown this once; write it to ~/.popcorn.yaml as `cli_id: TOKEN`."""
    now = datetime.now(UTC)
    with opened_store() as store:
        person = person_named(store, name)
        expires_at = now + timedelta(days=days) if days else None
        secret = store.tokens.issue(person.id, kind="cli", device=device, expires_at=expires_at, now=now)
        store.events.audit(own_name(), "token.issue", f"person:{person.id}", {"device": device}, now=now)
    if as_json:
        printing.as_json({"person": person.name, "token": secret, "expires_at": expires_at})
    else:
        printing.say(secret)
    return EXIT_OK


def list_(name: PersonName, as_json: Json = False) -> int:
    """A person's tokens by device; what they are isn't kept."""
    with opened_store() as store:
        found = store.tokens.of_person(person_named(store, name).id)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    now = datetime.now(UTC)
    rows = [
        (
            str(one.id),
            printing.escape(one.device),
            one.kind,
            "revoked" if one.revoked_at else "over" if one.expires_at and one.expires_at <= now else "good",
            printing.when(one.created_at),
            printing.when(one.used_at),
            printing.when(one.expires_at),
        )
        for one in found
    ]
    printing.table(("token", "device", "kind", "state", "issued", "used", "ends"), rows)
    return EXIT_OK


def revoke(
    name: PersonName,
    token: Annotated[int | None, typer.Argument(help="Its number, as `list` shows it; none: all of them.")] = None,
    as_json: Json = False,
) -> int:
    """End a token, or all of a person's."""
    now = datetime.now(UTC)
    with opened_store() as store:
        person = person_named(store, name)
        mine = [one.id for one in store.tokens.of_person(person.id) if one.revoked_at is None]
        if token is not None and token not in mine:
            raise NotFound(f"token of {person.name}", str(token), known=[str(one) for one in mine])
        ended = mine if token is None else [token]
        for one in ended:
            store.tokens.revoke(one, now=now)
        store.events.audit(own_name(), "token.revoke", f"person:{person.id}", {"tokens": ended}, now=now)
    if as_json:
        printing.as_json({"person": person.name, "revoked": ended})
    else:
        printing.say(f"{len(ended)} token{'s' if len(ended) != 1 else ''} of {person.name} revoked")
    return EXIT_OK
