"""The bot's settings, all from its environment: it reads no file, so it can't learn a database password."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbslurm.errors import Misconfigured

API_URL = "https://discord.com/api/v10"
GATEWAY_URL = "wss://gateway.discord.gg/"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`token` is Discord's, `bot_token` identifies us to our own API at `url`. `public_url` is the API's address for
    people. `debug_server`: the only server that a staging bot works in."""

    token: str
    bot_token: str
    url: str
    public_url: str
    state_file: Path
    api_url: str = API_URL
    gateway_url: str = GATEWAY_URL
    proxy: str | None = None
    channel: int | None = None
    staff_channel: int | None = None
    debug_server: int | None = None

    @classmethod
    def of(cls, env: Mapping[str, str], *, checks: bool = False) -> Settings:
        """The settings in this environment, or Misconfigured. With `checks`, the bot's token may be missing."""
        return cls(
            token=_needed(env, "DISCORD_TOKEN", "Get it from Discord's developer portal: Bot, Reset Token."),
            bot_token=(
                env.get("KBSLURM_BOT_TOKEN", "")
                if checks
                else _needed(env, "KBSLURM_BOT_TOKEN", "Give the API and the bot the same long random string.")
            ),
            url=_needed(env, "KBSLURM_URL", "Set it to the address of kbslurm's API."),
            public_url=env.get("KBSLURM_PUBLIC_URL", ""),
            state_file=Path(_needed(env, "KBSLURM_BOT_MEMORY", "Set it to a file where the bot may store its cards.")),
            api_url=env.get("KBSLURM_DISCORD_API") or API_URL,
            gateway_url=env.get("KBSLURM_DISCORD_GATEWAY") or GATEWAY_URL,
            channel=int(env.get("KBSLURM_DISCORD_CHANNEL") or 0) or None,
            staff_channel=int(env.get("KBSLURM_DISCORD_STAFF_CHANNEL") or 0) or None,
            debug_server=int(env.get("KBSLURM_DISCORD_DEBUG_SERVER") or 0) or None,
            proxy=env.get("HTTPS_PROXY") or env.get("https_proxy") or None,
        )

    def channels(self) -> dict[str, int]:
        """The configured channels, by setting name."""
        named = {"channel": self.channel, "staff_channel": self.staff_channel}
        return {name: number for name, number in named.items() if number is not None}


def _needed(env: Mapping[str, str], name: str, fix: str) -> str:
    found = env.get(name, "").strip()
    if not found:
        raise Misconfigured(f"{name} isn't set, so the bot can't start", fix=f"{fix} See docs/discord.md.")
    return found
