"""[discord]: the bot's channels and roles, and signing in with Discord."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kbslurm.config.sections.checks import web_address
from kbslurm.errors import Invalid


def discord_id(text: str) -> str:
    """The ID, or Invalid; empty for none."""
    if not re.fullmatch(r"[0-9]{0,20}", text):
        raise Invalid(f"{text!r} isn't a Discord ID", hint="In Discord: Developer Mode, right click, Copy ID.")
    return text


def _discord_roles(roles: Mapping[str, str]) -> Mapping[str, str]:
    for number in roles:
        if not re.fullmatch(r"[0-9]{1,20}", number):
            raise Invalid(f"{number!r} isn't a role ID", hint="In Discord: Developer Mode, right click, Copy Role ID.")
    return dict(roles)


def _gateway_url(text: str) -> str:
    if not re.match(r"wss?://[^/]+", text):
        raise Invalid(f"{text!r} isn't a valid gateway address", hint='Write "wss://gateway.discord.gg/".')
    return text


@dataclass(frozen=True, kw_only=True)
class DiscordSection:
    """The Discord bot. Its secret is DISCORD_TOKEN, with `--debug` DISCORD_DEBUG_TOKEN; the one for signing in with
    Discord is CLI_DISCORD_CLIENT_SECRET.

    The bot identifies itself to the API with KBSLURM_BOT_TOKEN; `kbslurm up` makes one if none is set.
    """

    client_id: str = field(
        default="", metadata={"doc": "Client ID of the OAuth application; empty: no signing in with Discord."}
    )
    oauth_url: str = field(default="https://discord.com", metadata={"doc": "Discord's address.", "check": web_address})
    channel: str = field(
        default="",
        metadata={
            "doc": "ID of the channel for announcements (records, boards, deadlines, daily digest); empty: none.",
            "check": discord_id,
        },
    )
    staff_channel: str = field(
        default="",
        metadata={
            "doc": "ID of the channel for operators' alarms; empty: none.",
            "check": discord_id,
        },
    )
    debug_server: str = field(
        default="",
        metadata={
            "doc": "ID of the only server where `--debug` registers the bot's commands; or $DISCORD_DEBUG_SERVER.",
            "check": discord_id,
        },
    )
    roles: Mapping[str, Literal["host", "creator"]] = field(
        default_factory=dict,
        metadata={
            "doc": "What Discord roles grant, by role ID: host (the hosts' commands) or creator (new boards).",
            "check": _discord_roles,
        },
    )
    api_url: str = field(
        default="https://discord.com/api/v10",
        metadata={"doc": "The address of Discord's API for the bot.", "check": web_address},
    )
    gateway_url: str = field(
        default="wss://gateway.discord.gg/",
        metadata={"doc": "The address of Discord's gateway for the bot.", "check": _gateway_url},
    )
