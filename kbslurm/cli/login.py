"""`kbslurm login`, `logout`, `whoami`: who one is at a service that $KBSLURM_URL names."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import typer

from kbslurm.cli import keys, show
from kbslurm.cli.frame import As, Json, app, asking, opened_store
from kbslurm.cli.service import URL, _is_near, reached, url
from kbslurm.errors import EXIT_INTERRUPTED, EXIT_OK, BackendTrouble, Invalid, NotAccepting, NotFound, Unauthenticated

LOOK_S = 3.0
LINK_WITHIN_S = 3600.0

Where = Annotated[str | None, typer.Argument(help="The service's address (default: $KBSLURM_URL).", show_default=False)]


@app.command()
def login(
    where: Where = None,
    register: Annotated[
        str | None, typer.Option("--register", help="discord or github: get a new token, which is then linked to you.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --register: stay until it is linked.")] = True,
    as_json: Json = False,
) -> int:
    """Keep a token for a service: pasted, read from standard input, or new by --register.

    It is kept in your configuration folder, where nobody else reads it; $KBSLURM_TOKEN goes before it.
    """
    named = _named(where)
    with reached(named, token="", anybody=True) as client:
        client.check()
    if urlsplit(named).scheme == "http" and not _is_near(named):
        show.err().print(f"[yellow]caution[/]: {show.escape(named)} isn't encrypted: the token can be read on its way")
    if register is None and (token := _pasted(named)):
        return _entered(named, token, as_json)
    return _registered(named, register or "discord", wait, as_json)


def _named(where: str | None) -> str:
    named = keys.address(where) if where else url()
    if named is None:
        raise Invalid("which service isn't said", hint=f"Run: kbslurm login https://…, or set {URL}.")
    return named


def _pasted(named: str) -> str:
    """The token from the keyboard, unseen, or from standard input."""
    if not sys.stdin.isatty():
        text = sys.stdin.read(keys.FILE_CAP)
    else:
        import getpass

        show.err().print("a host gives you a token, or your page of the service does, or ~/.popcorn.yaml has one")
        try:
            text = getpass.getpass(f"token for {named} (nothing: register this device): ")
        except EOFError:
            raise KeyboardInterrupt from None
        if not text.strip():
            return ""
    return keys.checked(text)


def _entered(named: str, token: str, as_json: bool) -> int:
    try:
        with reached(named, token) as client:
            person = client.me()
    except Unauthenticated:
        raise Unauthenticated(
            f"{named} doesn't know this token: it was revoked, has ended, or waits to be linked",
            hint="Nothing was kept. A host issues another, or: kbslurm login --register discord",
        ) from None
    path = keys.keep(named, token)
    if as_json:
        show.as_json({"url": named, "person": person.name, "role": person.role, "file": str(path)})
        return EXIT_OK
    show.say(f"signed on at {named} as {person.name} ({person.role})")
    _say_where(named)
    return EXIT_OK


def _registered(named: str, provider: str, wait: bool, as_json: bool) -> int:
    if provider not in ("discord", "github"):
        raise Invalid(f"nothing is registered with {provider!r}", hint="discord or github.")
    with reached(named, token="", anybody=True) as client:
        token = keys.checked(client.pending(cast("Literal['discord', 'github']", provider)))
    path = keys.keep(named, token)
    if as_json and not wait:
        show.as_json({"url": named, "pending": token, "file": str(path)})
        return EXIT_OK
    console = show.err()
    console.print("this device has a token now that is nobody's yet. Within the hour, one of:")
    console.print(f"  on Discord             /link {token}", soft_wrap=True)
    console.print(f"  in a browser, signed on  {named}/me, paste it there", soft_wrap=True)
    console.print(f"  ask a host             kbslurm user link YOUR-NAME {token}", soft_wrap=True)
    if not wait:
        show.say("kbslurm whoami says when it is done")
        return EXIT_OK
    try:
        return _linked(named, token, as_json)
    except KeyboardInterrupt:
        console.print("\nno longer waited for; the token is kept. kbslurm whoami says when it is linked")
        return EXIT_INTERRUPTED


def _linked(named: str, token: str, as_json: bool) -> int:
    until = time.monotonic() + LINK_WITHIN_S
    with show.progress(as_json) as tell:
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
        show.say(f"export {URL}={named} lets submit, watch, history, diff and board go there")


@app.command()
def logout(where: Where = None, as_json: Json = False) -> int:
    """End this device's token at a service, and keep it no longer."""
    named = _named(where)
    token, ended, why = keys.token_for(named), False, ""
    if token is not None:
        try:
            with reached(named, token) as client:
                client.logout()
            ended = True
        except Unauthenticated:
            ended = True  # it was none any more
        except (BackendTrouble, NotAccepting, NotFound) as error:
            why = error.message
    kept = keys.forget(named)
    if as_json:
        show.as_json({"url": named, "ended": ended, "forgotten": kept})
    elif token is None:
        show.say(f"no token was kept for {named}")
    elif ended:
        show.say(f"signed off at {named}")
    else:
        show.say(f"the token is kept no longer, but {named} couldn't end it ({why})")
        show.say("it is good until a host revokes it: kbslurm user token revoke YOUR-NAME")
    return EXIT_OK


@app.command()
def whoami(as_: As = None, as_json: Json = False) -> int:
    """Who you are: at the service that $KBSLURM_URL names, else in the database."""
    named = url()
    if named is not None:
        if as_ is not None:
            raise Invalid(f"--as is for the database: {named} knows you by your token", hint="Run: kbslurm login")
        with reached(named) as client:
            person = client.me()
        name, role, banned, place = person.name, person.role, person.banned, named
    else:
        with opened_store() as store:
            known = store.person(as_ or asking())
            name, role, banned = (
                (as_ or asking(), "participant", False)
                if known is None
                else (known.name, known.role, known.banned_at is not None)
            )
            place = store.where
    if as_json:
        show.as_json({"person": name, "role": role, "banned": banned, "at": place})
        return EXIT_OK
    show.say(f"{name} ({role}{', banned' if banned else ''}) at {place}")
    return EXIT_OK
