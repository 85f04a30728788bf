"""`kbslurm mcp`: tools for an agent, by the Model Context Protocol."""

from __future__ import annotations

import hmac
import importlib.util
import os
import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import URL, InUse, in_use
from kbslurm.errors import EXIT_OK, Invalid, Misconfigured, Unnamed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

SECRET = "KBSLURM_MCP_TOKEN"
LOOPBACK = "127.0.0.1"


def agent(
    http: Annotated[
        int | None,
        typer.Option("--http", min=0, max=65_535, help="Serve on this port of 127.0.0.1 instead (0: any free one)."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Serve tools for an agent: boards, problem, try, submit, status, profile, history.

    It speaks the Model Context Protocol on standard input and output, or with --http as streamable HTTP on loopback,
    where every request needs a bearer token: KBSLURM_MCP_TOKEN, or one that is drawn and printed. The agent acts as you
    at the service in use (kbslurm login), within your limits, and what it submits is marked as an agent's.
    """
    if importlib.util.find_spec("mcp") is None:
        raise Misconfigured(
            "kbslurm mcp needs the package mcp, which isn't installed", fix="Run: pip install 'kbslurm[mcp]'"
        )
    service = in_use()
    if service is None:
        raise Invalid("an agent acts at a service, and none is in use", hint=f"Run: kbslurm login, or set {URL}.")
    if service.token is None:
        raise Unnamed(f"you aren't signed in to {service.url}", hint="Run: kbslurm login")
    from kbslurm.cli.competitor.agent_tools import quiet, server

    with quiet():
        if http is None:
            server(service).run("stdio")
        else:
            _serve(service, http, as_json)
    return EXIT_OK


def _serve(service: InUse, port: int, as_json: bool) -> None:
    """Streamable HTTP on loopback, until ^C. Other people of this machine reach that as well, hence the secret."""
    import socket

    import uvicorn

    from kbslurm.cli.competitor.agent_tools import server

    secret = os.environ.get(SECRET) or secrets.token_urlsafe(32)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
            listening.listen(128)  # whoever reads the address may connect at once
        except OSError as error:
            raise Invalid(
                f"port {port} can't be used ({error.strerror})", hint="Choose another, or 0 for any free one."
            ) from None
        port = listening.getsockname()[1]
        found = server(service, host=LOOPBACK, port=port)
        url, is_drawn = f"http://{LOOPBACK}:{port}/mcp", not os.environ.get(SECRET)
        if as_json:
            printing.as_json({"url": url, "token": secret if is_drawn else None})
        else:
            printing.say(url)
            if is_drawn:
                printing.say(f"Authorization: Bearer {secret}")
        app = Guarded(found.streamable_http_app(), secret)
        running = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        running.run(sockets=[listening])


class Guarded:
    """Lets nobody in without the secret."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app, self._wanted = app, secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not hmac.compare_digest(_authorization(scope), self._wanted):
            from starlette.responses import JSONResponse

            said = {"detail": "this needs the header Authorization: Bearer TOKEN, as kbslurm mcp printed it"}
            await JSONResponse(said, status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _authorization(scope: Any) -> bytes:
    """The secret that a request comes with."""
    value: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, secret = value.partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""
