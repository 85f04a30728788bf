"""`kbslurm user token …`: the secrets that identify people to the API."""

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
    device: Annotated[str, typer.Option(help="A label, such as where it will be used.")] = "",
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Expires after this many days.")] = None,
    as_json: Json = False,
) -> int:
    """Issue a new token for a person. It is shown only once; put it into ~/.popcorn.yaml as `cli_id: TOKEN`."""
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
    """List a person's tokens by device; the tokens themselves aren't stored."""
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
    token: Annotated[int | None, typer.Argument(help="The token's number, as `list` shows it (default: all).")] = None,
    as_json: Json = False,
) -> int:
    """Revoke one or all of a person's tokens."""
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
