"""`kbslurm user link`: link a token or account to a person."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, cast

import typer

from kbslurm.cli.arguments import Json, PersonName
from kbslurm.cli.context import configuration, opened_store, own_name
from kbslurm.cli.lookup import person_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid, Misconfigured


def _issuer() -> str:
    """The configured OpenID Connect provider."""
    issuer = configuration().oidc.issuer
    if not issuer:
        raise Misconfigured("no OpenID Connect provider is configured", fix="Set issuer under [oidc] in kbslurm.toml.")
    return issuer


def user_link(
    name: PersonName,
    pending: Annotated[str | None, typer.Argument(help="The cli_id that `popcorn register` wrote.")] = None,
    account: Annotated[
        str | None, typer.Option(help="discord:ID, github:ID, or oidc:SUBJECT for single sign-on.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Link a token that `popcorn register` made, or an account, to a person."""
    if (pending is None) == (account is None):
        raise Invalid("give either a token or --account", hint="Pass one pending token, or --account discord:ID.")
    now = datetime.now(UTC)
    with opened_store() as store:
        person = person_named(store, name)
        if pending is not None:
            if not store.tokens.claim(pending, person.id, now=now):
                raise Invalid("this token isn't waiting to be linked", hint="Get a new one: popcorn reregister discord")
        else:
            provider, _, number = (account or "").partition(":")
            if provider not in ("discord", "github", "oidc") or not number:
                raise Invalid(f"{account!r} isn't a valid account", hint="Write discord:ID, github:ID or oidc:SUBJECT.")
            if provider == "oidc":
                store.people.link_subject(person.id, _issuer(), number)
            else:
                store.people.link_account(person.id, cast("Literal['discord', 'github']", provider), number)
        store.events.audit(own_name(), "link", f"person:{person.id}", {"account": account}, now=now)
    if as_json:
        printing.as_json({"person": person.name, "linked": True})
    else:
        printing.say(f"linked to {person.name}")
    return EXIT_OK
