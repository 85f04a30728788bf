"""[discord]: the bot's channels and roles, and signing in with Discord."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kbslurm.config.sections.checks import web_address
from kbslurm.errors import Invalid


def _discord_id(text: str) -> str:
    if not re.fullmatch(r"[0-9]{0,20}", text):
        raise Invalid(f"{text!r} is no channel's number", hint="Discord, Developer Mode, right click, Copy Channel ID.")
    return text


def _discord_roles(roles: Mapping[str, str]) -> Mapping[str, str]:
    for number in roles:
        if not re.fullmatch(r"[0-9]{1,20}", number):
            raise Invalid(f"{number!r} is no role's number", hint="Discord, Developer Mode, right click, Copy Role ID.")
    return dict(roles)


def _gateway_url(text: str) -> str:
    if not re.match(r"wss?://[^/]+", text):
        raise Invalid(f"{text!r} is no address of a gateway", hint='Write "wss://gateway.discord.gg/".')
    return text


@dataclass(frozen=True, kw_only=True)
class DiscordSection:
    """The Discord face. Its secret is DISCORD_TOKEN; that of signing on with Discord CLI_DISCORD_CLIENT_SECRET.

    The bot shows itself to the API with KBSLURM_BOT_TOKEN; `kbslurm up` makes one where none is set.
    """

    client_id: str = field(default="", metadata={"doc": "Of the OAuth application; empty: no sign-on with Discord."})
    oauth_url: str = field(default="https://discord.com", metadata={"doc": "Where Discord is.", "check": web_address})
    channel: str = field(
        default="",
        metadata={
            "doc": "Number of the channel where records, boards, deadlines and the day are announced; empty: nowhere.",
            "check": _discord_id,
        },
    )
    staff_channel: str = field(
        default="",
        metadata={
            "doc": "Number of the channel where operators' errors are told; empty: nowhere.",
            "check": _discord_id,
        },
    )
    roles: Mapping[str, Literal["host", "creator"]] = field(
        default_factory=dict,
        metadata={
            "doc": "What Discord roles give whoever has them: host (the hosts' commands) or creator (new boards),"
            " by the role's number.",
            "check": _discord_roles,
        },
    )
    api_url: str = field(
        default="https://discord.com/api/v10", metadata={"doc": "Where the bot's API is.", "check": web_address}
    )
    gateway_url: str = field(
        default="wss://gateway.discord.gg/", metadata={"doc": "Where the bot's gateway is.", "check": _gateway_url}
    )
