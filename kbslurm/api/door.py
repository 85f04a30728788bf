"""Where every request comes in, whatever its route: first who sends it, then its body up to a cap, then a turn.

A stranger's body is never kept, a body's slow arrival holds no thread, and whoever asks for much waits behind those who
ask for little.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, assert_never

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Receive

from kbslurm.api import calls, identity, node_calls, sessions
from kbslurm.api.calls import Call
from kbslurm.api.context import Context
from kbslurm.api.incoming import incoming_of
from kbslurm.api.shared_route import SharedRoute
from kbslurm.api.turns import Whose
from kbslurm.domain import access
from kbslurm.errors import Refused

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
T = TypeVar("T")


class Look(Protocol):
    """Runs a call that looks at the database, when it is its turn."""

    async def __call__(self, call: Callable[[], T]) -> T: ...


class Door(SharedRoute):
    """A route as `calls` describes it. Every router of the service uses this class."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        call = calls.call_of(min(self.methods or ("GET",)), self.path)

        async def handled(request: Request) -> Response:
            context: Context = request.app.state.context
            if not incoming_of(request.scope).is_complete:
                try:
                    request = await _read(context, request, call)
                except Exception as error:
                    if call.submits:
                        context.metrics.submission_refused(_mode(request), error)
                    raise
            if not call.in_turn:
                return await handle(request)
            async with context.turns.turn(_whose(context, request)):
                answer = await handle(request)
                if call.who == "person":
                    await _note_acting(context, request)
                return answer

        return handled


async def _read(context: Context, request: Request, call: Call) -> Request:
    """The request with its body, which is read only once its sender is known to have the right."""
    incoming = incoming_of(request.scope)
    if call.who != "anyone":
        async with context.turns.turn(_whose(context, request)):
            await run_in_threadpool(_check_may_send, context, request, call)
    body = await incoming.read(call.cap, *calls.too_large(call.cap))
    return Request(request.scope, _replayed(body, request.receive))


def _check_may_send(context: Context, request: Request, call: Call) -> None:
    sender = identity.claimed(request.headers)
    match call.who:
        case "person":
            identity.caller(context, sender)
        case "service":
            identity.service(context, sender)
        case "creator":
            identity.creator(context, sender)
        case "helper":
            identity.acting_helper(context, sender)
        case "host":
            identity.host(context, sender)
        case "browser":
            if not access.may_sign_in(sessions.signed_on(context, request)):
                raise Refused("you aren't signed in", hint="Sign in, then try again.")
        case "staff":
            if not access.may_see_staff_page(sessions.signed_on(context, request)):
                raise Refused("this page is for staff")
        case "node":
            node_calls.check(context, request)
        case "anyone":
            pass
        case _:
            assert_never(call.who)


async def _note_acting(context: Context, request: Request) -> None:
    sender = identity.claimed(request.headers)
    if sender.acting and sender.bearer:
        await run_in_threadpool(identity.note_acting, context, sender, f"{request.method} {request.url.path}")


def _whose(context: Context, request: Request) -> Whose:
    """Whose turn it takes. All tokens that weren't valid lately share one: otherwise each made-up one would have its
    own."""
    sender, known = identity.claimed(request.headers), context.known_secrets
    bearer = sender.bearer or ""
    secret = sender.key or bearer or request.cookies.get(sessions.SESSION, "")
    address = incoming_of(request.scope).client
    return Whose(address=address, token=known.name_of(secret) or "", may_be_host=known.is_hosts(bearer))


def look_in_turn(context: Context, request: Request) -> Look:
    """How a stream of this request looks at the database: each time in its reader's turn, as if they had asked again.
    Otherwise a thousand streams that one event wakes would all be answered before anybody's next request."""
    whose = _whose(context, request)

    async def look(call: Callable[[], T]) -> T:
        async with context.turns.turn(whose):
            return await run_in_threadpool(call)

    return look


def _mode(request: Request) -> str:
    return str(request.path_params.get("mode") or request.query_params.get("mode") or "leaderboard")


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_told = False

    async def told() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return told
