"""`kbslurm login`: save a token for a service."""

from __future__ import annotations

import socket
import sys
import time
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import typer

from kbslurm.cli.arguments import Json, ServiceAddress
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.connect import is_near, reached, service_named
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import URL, in_use
from kbslurm.errors import EXIT_OK, BackendTrouble, Invalid, NotAccepting, Unauthenticated

LOOK_S = 3.0
LINK_WITHIN_S = 3600.0


def login(
    where: ServiceAddress = None,
    register: Annotated[
        str | None, typer.Option("--register", help="discord or github: get a new token and link it to you.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --register: wait until it is linked.")] = True,
    invitation: Annotated[
        str | None, typer.Option("--invitation", help="The code of an invitation: get your own token for it.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", help="The name to keep it under (default: the service's host)."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Sign in to a service with a token: pasted, read from standard input, or a new one from --register or
    --invitation.

    It is saved in your configuration folder, readable only by you; $KBSLURM_TOKEN takes precedence. From then on,
    commands use this service (`kbslurm context use` switches); $KBSLURM_URL takes precedence.
    """
    found = service_named(where)
    named, name = found.url, found.context if context is None else kept_tokens.context_name(context)
    if name is not None:
        kept_tokens.check_free(name, named)
    with reached(named, None, anybody=True) as client:
        client.check()
    caution_if_open(named)
    if invitation is not None:
        if register is not None:
            raise Invalid("--invitation and --register exclude each other", hint="Pass one of them.")
        with reached(named, None, anybody=True) as client:
            taken = client.take_invitation(code_of(invitation), device=socket.gethostname()[:100])
        return _entered(named, kept_tokens.checked(taken.token), name, as_json)
    if register is None and (token := _pasted(named)):
        return _entered(named, token, name, as_json)
    return _registered(named, register or "discord", wait, name, as_json)


def code_of(text: str) -> str:
    """The code of an invitation, also of its whole link."""
    return text.strip().rstrip("/").rpartition("/")[2]


def caution_if_open(named: str) -> None:
    """A word of warning where a token would go over the network as it is."""
    if urlsplit(named).scheme == "http" and not is_near(named):
        printing.caution(f"{named} isn't encrypted: others on the network can read the token")


def _pasted(named: str) -> str:
    """The token typed without echo, or read from standard input."""
    if not sys.stdin.isatty():
        text = sys.stdin.read(kept_tokens.FILE_CAP)
    else:
        import getpass

        printing.err().print(
            "get a token from a host or from your page on the service, or take the one in ~/.popcorn.yaml"
        )
        try:
            text = getpass.getpass(f"token for {named} (empty: register this device): ")
        except EOFError:
            raise KeyboardInterrupt from None
        if not text.strip():
            return ""
    return kept_tokens.checked(text)


def _entered(named: str, token: str, name: str | None, as_json: bool) -> int:
    try:
        with reached(named, token) as client:
            person = client.me()
    except Unauthenticated:
        raise Unauthenticated(
            f"{named} rejected this token: it was revoked, has expired, or isn't linked yet",
            hint="Nothing was saved. Ask a host for another token, or run: kbslurm login --register discord",
        ) from None
    path, name = kept_tokens.keep(named, token, name)
    if as_json:
        told = {"url": named, "context": name, "person": person.name, "role": person.role, "file": str(path)}
        printing.as_json(told)
        return EXIT_OK
    printing.say(f"signed in to {named} as {person.name} ({person.role}), context {name}")
    say_where(named)
    return EXIT_OK


def _registered(named: str, provider: str, wait: bool, name: str | None, as_json: bool) -> int:
    if provider not in ("discord", "github"):
        raise Invalid(f"can't register with {provider!r}", hint="Choose discord or github.")
    with reached(named, None, anybody=True) as client:
        token = kept_tokens.checked(client.pending(cast("Literal['discord', 'github']", provider)))
    path, name = kept_tokens.keep(named, token, name)
    if as_json and not wait:
        printing.as_json({"url": named, "context": name, "pending": token, "file": str(path)})
        return EXIT_OK
    console = printing.err()
    console.print("this device now has a token that isn't linked to you yet. Within an hour, do one of these:")
    console.print(f"  on Discord             /link {token}", soft_wrap=True)
    console.print(f"  in a browser, signed in  {named}/me, paste it there", soft_wrap=True)
    console.print(f"  ask a host             kbslurm user link YOUR-NAME {token}", soft_wrap=True)
    if not wait:
        printing.say("kbslurm whoami shows when it is linked")
        return EXIT_OK
    try:
        return _linked(named, token, name, as_json)
    except KeyboardInterrupt:
        then = "kbslurm whoami shows when it is linked"
        return printing.interrupted("stopped waiting; the token is saved", then, as_json=as_json)


def _linked(named: str, token: str, name: str, as_json: bool) -> int:
    until = time.monotonic() + LINK_WITHIN_S
    with printing.progress(as_json) as tell:
        tell({"phase": "waiting to be linked"})
        while True:
            try:
                return _entered(named, token, name, as_json)
            except (Unauthenticated, BackendTrouble, NotAccepting):
                if time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)


def say_where(named: str) -> None:
    """A line if commands use another service than the one just signed in to."""
    found = in_use()
    if found is not None and found.url != named:
        printing.say(f"commands still use {found.url}, which {found.named_by} names; unset {URL} to use this one")
