"""`kbslurm up`: the daemon in the foreground, with API and Discord bot, until SIGTERM or ^C."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import LogJson, Verbose
from kbslurm.cli.chosen import chosen
from kbslurm.cli.context import configuration
from kbslurm.cli.operator.bot_process import ARGV, environment, loopback
from kbslurm.cli.service_in_use import say_database
from kbslurm.errors import EXIT_OK, KbslurmError, Misconfigured

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

    SIGHUP, or kbslurm place reload, has them take a changed configuration without losing anything.

    With --once no API is started, since nobody would have time to call it.
    """
    from kbslurm import wiring
    from kbslurm.daemon.service import run_daemon
    from kbslurm.daemon.signals import stop_on_signals

    config = configuration()
    say_database(config, as_json=log_json)
    wiring.check_slots(config)
    if once or not api:
        run_daemon(config, once=once, log_json=log_json, verbose=verbose)
        return EXIT_OK
    config.secret("POPCORN_ADMIN_TOKEN")  # the API's; in use here too, so a reload that can't read it is refused
    known = config.secret("KBSLURM_BOT_TOKEN") or secrets.token_urlsafe(32)
    bot = bot and (debug or config.secret("DISCORD_TOKEN") is not None)
    bots = BotEnvironment(config, known, debug=debug, log_json=log_json) if bot else None
    with (
        stop_on_signals() as stop,
        wiring.opened_store(config),  # migrate before there are two processes
        _beside(stop, bot_token=known if bot else None, log_json=log_json, verbose=verbose) as api_process,
        _bot_beside(bots) if bots is not None else nullcontext() as bot_process,
    ):

        def reloaded(found: Config) -> None:
            api_process.send_signal(signal.SIGHUP)
            if bot_process is not None:
                bot_process.take(found)

        run_daemon(config, stop, log_json=log_json, verbose=verbose, reloaded=reloaded)
        code = api_process.poll()
    if code:
        raise Misconfigured("the API stopped unexpectedly", fix="See its output above, or start with --no-api.")
    return EXIT_OK


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
    if bot_token is not None and not {"KBSLURM_BOT_TOKEN_FILE", "KBSLURM_BOT_TOKEN_COMMAND"} & set(env):
        env["KBSLURM_BOT_TOKEN"] = bot_token
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # for the child, until it listens to it
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, env=env)
    signal.signal(signal.SIGHUP, before)

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


class BotEnvironment:
    """The environment of the bot's process, which a reload may change: then the bot is restarted with it. With `debug`
    it is and stays the staging bot."""

    def __init__(self, config: Config, bot_token: str, *, debug: bool, log_json: bool) -> None:
        self._config, self._token, self._debug, self._json = config, bot_token, debug, log_json
        self._env = self._made(config)
        self.changed: Callable[[], None] = lambda: None
        self.given_up = False

    def take(self, config: Config) -> None:
        """Go on with this configuration; what can't be used is told by the bot's own check. A bot that was given up is
        tried again: what kept it from running may be mended at Discord."""
        self._config = config
        if self.renewed() or self.given_up:
            self.changed()

    def renewed(self) -> bool:
        """Whether it is another one by now: what the configuration says, with Discord's token as it is now."""
        try:
            self._config.secret_again("DISCORD_DEBUG_TOKEN" if self._debug else "DISCORD_TOKEN")
            made = self._made(self._config)
        except KbslurmError:
            return False
        before, self._env = self._env, made
        return made != before

    def now(self) -> dict[str, str]:
        """It."""
        return self._env

    def _made(self, config: Config) -> dict[str, str]:
        url = f"http://{loopback(config.server.listen)}"
        env = environment(config, bot_token=self._token, url=url, debug=self._debug)
        return {**env, "KBSLURM_BOT_CHILD": "1", **({"KBSLURM_LOG_JSON": "1"} if self._json else {})}


@contextmanager
def _bot_beside(env: BotEnvironment) -> Iterator[BotEnvironment]:
    """The bot as a child process without a database password. Nothing depends on it: if it exits, the service goes on,
    and the bot is restarted, unless an operator has to fix something first."""
    from kbslurm.observe.logs import teller

    tell = teller("bot")
    over, running, again = threading.Event(), threading.Lock(), threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def tend() -> None:
        wait_s = AGAIN_S[0]
        while True:
            with running:
                if over.is_set():
                    return
                again.clear()
                children[:] = [subprocess.Popen(list(ARGV), stdin=subprocess.PIPE, env=env.now())]
            code = children[0].wait()
            if over.is_set():
                return
            if again.is_set() or (code == Misconfigured.exit_code and env.renewed()):
                tell("the bot is restarted with its new configuration")
                continue
            if code == Misconfigured.exit_code:
                tell(
                    "the bot won't be restarted",
                    level="error",
                    fix="Run kbslurm bot check and mend what it says, then: kbslurm place reload.",
                )
                env.given_up = True
                again.wait()
                env.given_up = False
                continue
            tell("the bot stopped unexpectedly", level="warning", code=code, again_s=wait_s)
            if over.wait(wait_s):
                return
            wait_s = min(wait_s * 2, AGAIN_S[1])

    def restart() -> None:
        with running:
            again.set()
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)

    env.changed = restart
    thread = threading.Thread(target=tend, name="bot-watch", daemon=True)
    thread.start()
    try:
        yield env
    finally:
        with running:
            over.set()
            again.set()
        for child in children:
            _ended(child)
        thread.join()
