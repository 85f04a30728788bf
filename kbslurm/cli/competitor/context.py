"""`kbslurm context …`: the services that you have signed in to, by name, and the one that commands use."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import EXIT_OK, Invalid

Name = Annotated[str, typer.Argument(help="The context's name.")]


def list_(as_json: Json = False) -> int:
    """List the services that you have signed in to, by name."""
    known, used = kept_tokens.book(), _used()
    rows = [(one.name, one.url, one.token is not None, one.name == used) for one in known.contexts.values()]
    if as_json:
        printing.as_json(
            [{"context": name, "url": url, "signed_in": here, "in_use": mine} for name, url, here, mine in rows]
        )
    elif rows:
        lines = [
            ("*" if mine else "", printing.escape(name), printing.escape(url), "" if here else "not signed in")
            for name, url, here, mine in rows
        ]
        printing.table(("", "context", "service", ""), lines)
    else:
        printing.say("no contexts yet; kbslurm login https://… makes one")
    return EXIT_OK


def use(
    name: Annotated[str, typer.Argument(help="The context's name; `database` for none.")], as_json: Json = False
) -> int:
    """Use this service from now on, or with `database` the database that is configured here."""
    found = kept_tokens.use(name)
    if as_json:
        printing.as_json({"context": None if found is None else name, "url": None if found is None else found.url})
        return EXIT_OK
    printing.say(f"commands use {'the database that is configured here' if found is None else found.url} from now on")
    actual = in_use()
    if actual is not None and (found is None or actual.url != found.url):
        printing.caution(f"not yet: {actual.named_by} names {actual.url}, which takes precedence")
    return EXIT_OK


def show_(as_json: Json = False) -> int:
    """Show which service commands use here, and what names it."""
    found = in_use()
    if as_json:
        told: dict[str, Any] = {"context": None, "url": None, "signed_in": False, "named_by": None}
        if found is not None:
            told = {
                "context": found.context, "url": found.url, "signed_in": found.token is not None,
                "named_by": found.named_by.strip(","),
            }  # fmt: skip
        printing.as_json(told)
    elif found is None:
        printing.say("no service: commands use the database that is configured here")
    else:
        context = "" if found.context is None else f"context {found.context}, "
        signed_in = "signed in" if found.token is not None else "not signed in"
        printing.say(f"{found.url} ({context}{signed_in}; named by {found.named_by.strip(',')})")
    return EXIT_OK


def remove(name: Name, as_json: Json = False) -> int:
    """Remove a context and its token from this machine; only `kbslurm logout` also revokes the token."""
    if name == kept_tokens.DATABASE:
        raise Invalid(f"{name} isn't a context that can be removed")
    found = kept_tokens.remove(name)
    return printing.answer(as_json, f"{name} ({found.url}) is removed here", context=name, url=found.url, removed=True)


def _used() -> str | None:
    found = in_use()
    return None if found is None else found.context
