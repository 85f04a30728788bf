"""`python -m kbslurm_bot`: run the bot until SIGTERM. `python -m kbslurm_bot check [--json]`: check its set-up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading

import discord

from kbslurm.errors import KbslurmError, Misconfigured
from kbslurm.observe import logs
from kbslurm.observe.logs import teller
from kbslurm_bot import check, state
from kbslurm_bot.discord_client import DiscordClient, connect_to
from kbslurm_bot.service import Service
from kbslurm_bot.settings import Settings

tell = teller("bot")


def main(argv: list[str]) -> int:
    """Exit codes as everywhere: 2 for what an operator has to fix."""
    os.environ.pop("DATABASE_URL", None)
    try:
        settings = Settings.of(os.environ, checks=argv[:1] == ["check"])
        connect_to(settings)
        if argv[:1] == ["check"]:
            return asyncio.run(check.run(settings, as_json="--json" in argv))
        logs.set_up(as_json=os.environ.get("KBSLURM_LOG_JSON") == "1")
        asyncio.run(run(settings))
    except KbslurmError as error:
        fix = getattr(error, "fix", None) or error.hint
        print(f"error: {error.message}", *([f"hint: {fix}"] if fix else []), sep="\n ", file=sys.stderr)
        return error.exit_code
    return 0


async def run(settings: Settings) -> None:
    """Connect and stay until SIGTERM, SIGINT or the end of the parent process."""
    service = Service(settings.url, settings.bot_token)
    with state.opened(settings.state_file) as kept, contextlib.closing(service):
        client = DiscordClient(settings, kept, service)
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if os.environ.get("KBSLURM_BOT_CHILD") == "1":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that is closed ends us if it ends our parent
            threading.Thread(target=_end_with_parent, args=(loop, stop), name="parent", daemon=True).start()
        running, stopped = asyncio.create_task(start(client)), asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await client.close()
        await running
        tell("stopped")


async def start(client: DiscordClient) -> None:
    """Stay connected; errors that only an operator can fix are reported as such."""
    try:
        await client.start(client.settings.token)
    except discord.LoginFailure as error:
        fix = "Reset it in the developer portal (Bot, Reset Token) and set DISCORD_TOKEN to the new one."
        raise Misconfigured("Discord rejects the token", fix=fix) from error
    except discord.PrivilegedIntentsRequired as error:
        raise Misconfigured("Discord rejects the intents", fix="Run: kbslurm bot check") from error


def _end_with_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 1024):
        pass
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
