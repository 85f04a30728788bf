"""`kbslurm up`: the daemon in the foreground, with API and Discord bot, until SIGTERM or ^C."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import LogJson, Verbose
from kbslurm.cli.chosen import chosen
from kbslurm.cli.context import configuration
from kbslurm.cli.operator.bot_process import ARGV, environment, loopback
from kbslurm.cli.service_in_use import say_database
from kbslurm.errors import EXIT_OK, Misconfigured

if TYPE_CHECKING:
    from kbslurm.config.settings import Config

STOP_WITHIN_S = 30
# A bot that exits is restarted: soon at first, then less and less often.
AGAIN_S = (2.0, 300.0)


def up(
    once: Annotated[bool, typer.Option("--once", help="Exit once nothing is queued or open.")] = False,
    api: Annotated[bool, typer.Option("--api/--no-api", help="Also start the HTTP API.")] = True,
    bot: Annotated[bool, typer.Option("--bot/--no-bot", help="Also start the Discord bot, if it has a token.")] = True,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Start the staging bot instead: DISCORD_DEBUG_TOKEN, in DISCORD_DEBUG_SERVER alone."
        ),
    ] = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> int:
    """Run the daemon, the API and, if DISCORD_TOKEN is set, the bot. SIGTERM or ^C stops them; jobs keep running.

    With --once no API is started, since nobody would have time to call it.
    """
    from kbslurm import wiring
    from kbslurm.daemon.service import (
        run_daemon,
    )
    from kbslurm.daemon.signals import (
        stop_on_signals,
    )

    config = configuration()
    say_database(config, as_json=log_json)
    wiring.check_slots(config)
    if once or not api:
        run_daemon(config, once=once, log_json=log_json, verbose=verbose)
        return EXIT_OK
    known = config.secret("KBSLURM_BOT_TOKEN") or secrets.token_urlsafe(32)
    bot = bot and (debug or config.secret("DISCORD_TOKEN") is not None)
    bots = environment(config, bot_token=known, url=_own_url(config), debug=debug) if bot else None
    with (
        stop_on_signals() as stop,
        wiring.opened_store(config),  # migrate before there are two processes
        _beside(stop, bot_token=known if bot else None, log_json=log_json, verbose=verbose) as api_process,
        _bot_beside(bots, log_json=log_json) if bots is not None else nullcontext(),
    ):
        run_daemon(config, stop, log_json=log_json, verbose=verbose)
        code = api_process.poll()
    if code:
        raise Misconfigured("the API stopped unexpectedly", fix="See its output above, or start with --no-api.")
    return EXIT_OK


def _own_url(config: Config) -> str:
    return f"http://{loopback(config.server.listen)}"


@contextmanager
def _beside(
    stop: threading.Event, *, bot_token: str | None, log_json: bool, verbose: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """The API as a child process. If it stops, everything stops: half a service is harder to notice."""
    argv = [sys.executable, "-m", "kbslurm"]
    argv += ["--config", str(chosen.config)] if chosen.config else []
    argv += ["api", *(["--log-json"] if log_json else []), *(["--verbose"] if verbose else [])]
    # Its standard input is our pipe: if we are killed, it reads end-of-file and stops.
    env = {**os.environ, "KBSLURM_API_CHILD": "1"}
    if bot_token is not None and "KBSLURM_BOT_TOKEN_FILE" not in env:
        env["KBSLURM_BOT_TOKEN"] = bot_token
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, env=env)

    def watch() -> None:
        child.wait()
        stop.set()

    threading.Thread(target=watch, name="api-watch", daemon=True).start()
    try:
        yield child
    finally:
        _ended(child)


def _ended(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdin is not None:
        child.stdin.close()


@contextmanager
def _bot_beside(told: dict[str, str], *, log_json: bool) -> Iterator[None]:
    """The bot as a child process without a database password. Nothing depends on it: if it exits, the service goes on,
    and the bot is restarted, unless an operator has to fix something first."""
    from kbslurm.observe.logs import teller

    tell = teller("bot")
    env = {**told, "KBSLURM_BOT_CHILD": "1"}
    env |= {"KBSLURM_LOG_JSON": "1"} if log_json else {}
    over, running = threading.Event(), threading.Lock()
    children: list[subprocess.Popen[bytes]] = []

    def tend() -> None:
        wait_s = AGAIN_S[0]
        while True:
            with running:
                if over.is_set():
                    return
                children[:] = [subprocess.Popen(list(ARGV), stdin=subprocess.PIPE, env=env)]
            code = children[0].wait()
            if over.is_set():
                return
            if code == Misconfigured.exit_code:
                tell(
                    "the bot won't be restarted",
                    level="error",
                    fix="Run kbslurm bot check, then start kbslurm up again.",
                )
                return
            tell("the bot stopped unexpectedly", level="warning", code=code, again_s=wait_s)
            if over.wait(wait_s):
                return
            wait_s = min(wait_s * 2, AGAIN_S[1])

    thread = threading.Thread(target=tend, name="bot-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with running:
            over.set()
        for child in children:
            _ended(child)
        thread.join()
