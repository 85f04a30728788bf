"""`kbslurm user link`: link a token or account to a person."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import Json, PersonName
from kbslurm.cli.host.connect import host, person
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid


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
    with host() as hosts:
        whom = person(name)
        found = hosts.link_token(whom, pending) if pending is not None else hosts.link_account(whom, account or "")
    if as_json:
        printing.as_json({"person": found["name"], "linked": True})
    else:
        printing.say(f"linked to {found['name']}")
    return EXIT_OK
