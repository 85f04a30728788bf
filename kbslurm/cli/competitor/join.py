"""`kbslurm join`: an invitation redeemed from the terminal, by whoever is signed in or as somebody new."""

from __future__ import annotations

import re
import socket
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.competitor import kept_tokens
from kbslurm.cli.competitor.connect import reached, service_named
from kbslurm.cli.competitor.login import caution_if_open, code_of, say_where
from kbslurm.cli.context import own_name
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid, NotFound, Unauthenticated

LINK = "/join/"
_CODE = re.compile(r"[A-Za-z0-9_-]{1,512}")


def join(
    invitation: Annotated[
        str, typer.Argument(metavar="CODE", help="The invitation's code, or its whole link: https://…/join/…")
    ],
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVICE",
            help="The service's address (default: the link's, else the one in use).",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="If you are new here: your name (default: $KBSLURM_PERSON, else your login name)."),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", help="The name to keep the service under (default: the service's host)."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Join a board or a course by an invitation; if you have no account there, you get one and are signed in.

    Your token is saved as `kbslurm login` saves it. Joining twice is safe: you are told that you have joined.
    """
    code, link_to = _understood(invitation)
    found = service_named(where or link_to)
    keep_as = found.context if context is None else kept_tokens.context_name(context)
    if keep_as is not None:
        kept_tokens.check_free(keep_as, found.url)
    token = found.token
    if context is not None and context != found.context:  # somebody else, or nobody yet
        other = kept_tokens.book().contexts.get(context)
        token = None if other is None else other.token
    with reached(found.url, None, anybody=True) as client:
        client.check()
    if token is not None and (me := _signed_in(found.url, token)) is not None:
        return _joined(found.url, token, code, me, keep_as, as_json)
    caution_if_open(found.url)
    with reached(found.url, None, anybody=True) as client:
        came = client.take_invitation(code, device=socket.gethostname()[:100], name=name or own_name()[:64])
    path, kept = kept_tokens.keep(found.url, kept_tokens.checked(came.token), keep_as)
    if as_json:
        told = {"url": found.url, "context": kept, "person": came.person, "boards": came.boards, "already": False}
        printing.as_json({**told, "file": str(path)})
        return EXIT_OK
    printing.say(f"joined {found.url} as {came.person}, context {kept}")
    _say_boards(came.boards)
    say_where(found.url)
    return EXIT_OK


def _understood(text: str) -> tuple[str, str | None]:
    """The code, and of a link the service that it leads to."""
    found = text.strip()
    code, service = code_of(found), None
    if "/" in found:
        before, is_link, _ = found.rstrip("/").rpartition(LINK)
        if not is_link or "://" not in before:
            raise Invalid(
                f"{text[:200]!r} isn't an invitation's link",
                hint="It looks like https://kernels.example.edu/join/CODE.",
            )
        service = kept_tokens.address(before)
    if not _CODE.fullmatch(code):
        raise Invalid(f"{text[:80]!r} isn't an invitation's code", hint="Paste the whole code and nothing else.")
    return code, service


def _signed_in(url: str, token: str) -> str | None:
    """Who this token is of; nobody if it isn't valid any more, since then an invitation gives another."""
    try:
        with reached(url, token) as client:
            return client.me().name
    except Unauthenticated:
        return None


def _joined(url: str, token: str, code: str, me: str, context: str | None, as_json: bool) -> int:
    try:
        with reached(url, token) as client:
            came = client.join(code)
    except NotFound:
        raise Invalid(
            f"this invitation is unknown, was revoked, or isn't for {me}, who is signed in to {url}",
            hint="If it is for somebody else here, run: kbslurm logout, or pass --context NAME to keep both.",
        ) from None
    if as_json:
        told = {"url": url, "context": context, "person": me, "boards": came.boards, "already": came.already}
        printing.as_json({**told, "file": None})
        return EXIT_OK
    printing.say(f"{me} has joined already" if came.already else f"joined as {me}")
    _say_boards(came.boards)
    return EXIT_OK


def _say_boards(boards: tuple[str, ...]) -> None:
    if boards:
        printing.say(f"boards: {', '.join(boards)}; kbslurm problem pull {boards[0]} gets what to work on")
    else:
        printing.say("kbslurm board list shows the boards")
