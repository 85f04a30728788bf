"""The Discord bot as a process of its own: its command line and environment. The command line itself never imports the
bot."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kbslurm.errors import Misconfigured

if TYPE_CHECKING:
    from kbslurm.config.settings import Config

ARGV = (sys.executable, "-m", "kbslurm_bot")
MEMORY, DEBUG_MEMORY = "bot.sqlite", "bot-debug.sqlite"


def environment(
    config: Config,
    *,
    bot_token: str | None = None,
    url: str | None = None,
    checks: bool = False,
    debug: bool = False,
) -> dict[str, str]:
    """The environment of the bot's process: Discord's token, how to reach the service, and no other secret of ours.

    With `checks`, the bot's token for the service may be missing: if `kbslurm up` makes it, nobody else has it. With
    `debug` it is the staging bot's, for the staging server alone, with a memory of its own and no announcements.
    """
    from kbslurm.domain.secret_names import is_secret

    env = {name: value for name, value in os.environ.items() if not is_secret(name) and not name.startswith("PG")}
    token = _debug_token(config) if debug else config.secret("DISCORD_TOKEN")
    if token is None:
        raise Misconfigured(
            "DISCORD_TOKEN isn't set, so the bot can't run", fix="docs/discord.md explains how to get one."
        )
    shown = bot_token or config.secret("KBSLURM_BOT_TOKEN")
    if shown is None and not checks:
        raise Misconfigured(
            "KBSLURM_BOT_TOKEN isn't set, so the service would reject the bot",
            fix="Give the service and the bot the same long random string; kbslurm up makes one for both.",
        )
    where = url or env.get("KBSLURM_URL") or config.server.public_url or f"http://{loopback(config.server.listen)}"
    return {
        **env,
        "DISCORD_TOKEN": token,
        "KBSLURM_BOT_TOKEN": shown or "",
        "KBSLURM_URL": where,
        "KBSLURM_PUBLIC_URL": config.server.public_url,
        "KBSLURM_BOT_MEMORY": str(config.state_dir / (DEBUG_MEMORY if debug else MEMORY)),
        "KBSLURM_DISCORD_CHANNEL": "" if debug else config.discord.channel,
        "KBSLURM_DISCORD_STAFF_CHANNEL": "" if debug else config.discord.staff_channel,
        "KBSLURM_DISCORD_DEBUG_SERVER": config.discord.debug_server if debug else "",
        "KBSLURM_DISCORD_API": config.discord.api_url,
        "KBSLURM_DISCORD_GATEWAY": config.discord.gateway_url,
    }


def _debug_token(config: Config) -> str:
    """The staging bot's token, which is never the live one's: two bots with one token take each other's commands."""
    token = config.secret("DISCORD_DEBUG_TOKEN")
    if token is None:
        raise Misconfigured(
            "DISCORD_DEBUG_TOKEN isn't set, so there is no staging bot to run",
            fix="Make a second application at Discord and set its token; docs/discord.md says how.",
        )
    if token == config.secret("DISCORD_TOKEN"):
        raise Misconfigured(
            "DISCORD_DEBUG_TOKEN is the live bot's token", fix="Give the staging bot an application of its own."
        )
    if not config.discord.debug_server:
        raise Misconfigured(
            "DISCORD_DEBUG_SERVER isn't set, so the staging bot has no server",
            fix="Set it to the staging server's ID: right click on the server, Copy Server ID.",
        )
    return token


def loopback(listen: str) -> str:
    """The address under which processes on the same host reach a listener."""
    host, _, port = listen.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"
