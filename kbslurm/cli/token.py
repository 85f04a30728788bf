"""`kbslurm user token …` and `kbslurm user link`: the secrets by which people are known to the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, cast

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, asking, configuration, opened_store
from kbslurm.cli.people import Name, _known, group
from kbslurm.errors import EXIT_OK, Invalid, Misconfigured, NotFound

tokens = typer.Typer(help="Tokens: issue, list, revoke.", no_args_is_help=True)
group.add_typer(tokens, name="token")


@tokens.command()
def issue(
    name: Name,
    device: Annotated[str, typer.Option(help="Where it will be used, to know it again.")] = "",
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="It ends after so many days.")] = None,
    as_json: Json = False,
) -> int:
    """A new token for a person. It is shown this once; write it to ~/.popcorn.yaml as `cli_id: TOKEN`."""
    now = datetime.now(UTC)
    with opened_store() as store:
        person = _known(store, name)
        expires_at = now + timedelta(days=days) if days else None
        secret = store.issue_token(person.id, kind="cli", device=device, expires_at=expires_at, now=now)
        store.audit(asking(), "token.issue", f"person:{person.id}", {"device": device}, now=now)
    if as_json:
        show.as_json({"person": person.name, "token": secret, "expires_at": expires_at})
    else:
        show.say(secret)
    return EXIT_OK


@tokens.command("list")
def list_(name: Name, as_json: Json = False) -> int:
    """A person's tokens by device; what they are isn't kept."""
    with opened_store() as store:
        found = store.tokens(_known(store, name).id)
    if as_json:
        show.as_json(found)
        return EXIT_OK
    now = datetime.now(UTC)
    rows = [
        (
            str(one.id),
            show.escape(one.device),
            one.kind,
            "revoked" if one.revoked_at else "over" if one.expires_at and one.expires_at <= now else "good",
            show.when(one.created_at),
            show.when(one.used_at),
            show.when(one.expires_at),
        )
        for one in found
    ]
    show.table(("token", "device", "kind", "state", "issued", "used", "ends"), rows)
    return EXIT_OK


@tokens.command()
def revoke(
    name: Name,
    token: Annotated[int | None, typer.Argument(help="Its number, as `list` shows it; none: all of them.")] = None,
    as_json: Json = False,
) -> int:
    """End a token, or all of a person's."""
    now = datetime.now(UTC)
    with opened_store() as store:
        person = _known(store, name)
        mine = [one.id for one in store.tokens(person.id) if one.revoked_at is None]
        if token is not None and token not in mine:
            raise NotFound(f"token of {person.name}", str(token), known=[str(one) for one in mine])
        ended = mine if token is None else [token]
        for one in ended:
            store.revoke_token(one, now=now)
        store.audit(asking(), "token.revoke", f"person:{person.id}", {"tokens": ended}, now=now)
    if as_json:
        show.as_json({"person": person.name, "revoked": ended})
    else:
        show.say(f"{len(ended)} token{'s' if len(ended) != 1 else ''} of {person.name} revoked")
    return EXIT_OK


def _issuer() -> str:
    """The university's provider, as it is configured."""
    issuer = configuration().oidc.issuer
    if not issuer:
        raise Misconfigured("no university's provider is configured", fix="Set issuer under [oidc] in kbslurm.toml.")
    return issuer


@group.command()
def link(
    name: Name,
    pending: Annotated[str | None, typer.Argument(help="The cli_id that `popcorn register` wrote.")] = None,
    account: Annotated[str | None, typer.Option(help="discord:ID, github:ID, or oidc:SUBJECT at SSO.")] = None,
    as_json: Json = False,
) -> int:
    """Give a person the token that `popcorn register` made, or the account that stands for them."""
    if (pending is None) == (account is None):
        raise Invalid("one thing is linked at a time", hint="Name a pending token, or --account discord:ID.")
    now = datetime.now(UTC)
    with opened_store() as store:
        person = _known(store, name)
        if pending is not None:
            if not store.claim_token(pending, person.id, now=now):
                raise Invalid("this token isn't waiting to be linked", hint="Get another: popcorn reregister discord")
        else:
            provider, _, number = (account or "").partition(":")
            if provider not in ("discord", "github", "oidc") or not number:
                raise Invalid(f"{account!r} is no account", hint="Write discord:ID, github:ID or oidc:SUBJECT.")
            if provider == "oidc":
                store.link_subject(person.id, _issuer(), number)
            else:
                store.link_account(person.id, cast("Literal['discord', 'github']", provider), number)
        store.audit(asking(), "link", f"person:{person.id}", {"account": account}, now=now)
    if as_json:
        show.as_json({"person": person.name, "linked": True})
    else:
        show.say(f"linked to {person.name}")
    return EXIT_OK
