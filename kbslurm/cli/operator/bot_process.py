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
MEMORY = "bot.sqlite"


def environment(
    config: Config, *, bot_token: str | None = None, url: str | None = None, checks: bool = False
) -> dict[str, str]:
    """The environment of the bot's process: Discord's token, how to reach the service, and no other secret of ours.

    With `checks`, the bot's token for the service may be missing: if `kbslurm up` makes it, nobody else has it.
    """
    from kbslurm.domain.secret_names import secret_ones

    ours = {name for name in os.environ if secret_ones([name.removesuffix("_FILE")])}
    env = {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("PG")}
    token = config.secret("DISCORD_TOKEN")
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
        "KBSLURM_BOT_MEMORY": str(config.state_dir / MEMORY),
        "KBSLURM_DISCORD_CHANNEL": config.discord.channel,
        "KBSLURM_DISCORD_STAFF_CHANNEL": config.discord.staff_channel,
        "KBSLURM_DISCORD_API": config.discord.api_url,
        "KBSLURM_DISCORD_GATEWAY": config.discord.gateway_url,
    }


def loopback(listen: str) -> str:
    """The address under which processes on the same host reach a listener."""
    host, _, port = listen.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"
