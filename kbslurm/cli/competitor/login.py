"""`kbslurm login`: save a token for a service."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import typer

from kbslurm.cli.arguments import Json, ServiceAddress
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.connect import URL, is_near, reached, service_address, url
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_INTERRUPTED, EXIT_OK, BackendTrouble, Invalid, NotAccepting, Unauthenticated

LOOK_S = 3.0
LINK_WITHIN_S = 3600.0


def login(
    where: ServiceAddress = None,
    register: Annotated[
        str | None, typer.Option("--register", help="discord or github: get a new token and link it to you.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --register: wait until it is linked.")] = True,
    as_json: Json = False,
) -> int:
    """Sign in to a service with a token: pasted, read from standard input, or a new one from --register.

    It is saved in your configuration folder, readable only by you; $KBSLURM_TOKEN takes precedence.
    """
    named = service_address(where)
    with reached(named, token="", anybody=True) as client:
        client.check()
    if urlsplit(named).scheme == "http" and not is_near(named):
        printing.err().print(
            f"[yellow]caution[/]: {printing.escape(named)} isn't encrypted: others on the network can read the token"
        )
    if register is None and (token := _pasted(named)):
        return _entered(named, token, as_json)
    return _registered(named, register or "discord", wait, as_json)


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


def _entered(named: str, token: str, as_json: bool) -> int:
    try:
        with reached(named, token) as client:
            person = client.me()
    except Unauthenticated:
        raise Unauthenticated(
            f"{named} rejected this token: it was revoked, has expired, or isn't linked yet",
            hint="Nothing was saved. Ask a host for another token, or run: kbslurm login --register discord",
        ) from None
    path = kept_tokens.keep(named, token)
    if as_json:
        printing.as_json({"url": named, "person": person.name, "role": person.role, "file": str(path)})
        return EXIT_OK
    printing.say(f"signed in to {named} as {person.name} ({person.role})")
    _say_where(named)
    return EXIT_OK


def _registered(named: str, provider: str, wait: bool, as_json: bool) -> int:
    if provider not in ("discord", "github"):
        raise Invalid(f"can't register with {provider!r}", hint="Choose discord or github.")
    with reached(named, token="", anybody=True) as client:
        token = kept_tokens.checked(client.pending(cast("Literal['discord', 'github']", provider)))
    path = kept_tokens.keep(named, token)
    if as_json and not wait:
        printing.as_json({"url": named, "pending": token, "file": str(path)})
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
        return _linked(named, token, as_json)
    except KeyboardInterrupt:
        console.print("\nstopped waiting; the token is saved. kbslurm whoami shows when it is linked")
        return EXIT_INTERRUPTED


def _linked(named: str, token: str, as_json: bool) -> int:
    until = time.monotonic() + LINK_WITHIN_S
    with printing.progress(as_json) as tell:
        tell({"phase": "waiting to be linked"})
        while True:
            try:
                return _entered(named, token, as_json)
            except (Unauthenticated, BackendTrouble, NotAccepting):
                if time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)


def _say_where(named: str) -> None:
    if url() != named:
        printing.say(f"export {URL}={named} makes submit, watch, history, diff and board use it")
