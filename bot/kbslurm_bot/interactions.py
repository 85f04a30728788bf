"""What all commands and buttons share: the bot behind an interaction, and calls to the service in the person's name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import discord
from discord import app_commands

from kbslurm.client.answers import (
    BoardInfo,
    May,
)
from kbslurm.client.errors import (
    NoSuch,
)
from kbslurm.client.http import Client
from kbslurm.errors import KbslurmError, NotFound
from kbslurm_bot.live_cards import LiveCards
from kbslurm_bot.service import Service
from kbslurm_bot.settings import Settings

T = TypeVar("T")

Asked = discord.Interaction[Any]
# Discord waits three seconds for completions; a late one is worse than none.
PATIENCE_S = 2.0


class Bot(Protocol):
    """The parts of the bot that commands and buttons use."""

    settings: Settings
    service: Service
    live_cards: LiveCards

    @property
    def tree(self) -> app_commands.CommandTree[Any]: ...
    @property
    def latency(self) -> float: ...
    def only_guild(self) -> discord.Object | None: ...
    async def synced_anew(self, guild: int | None) -> int: ...


def bot_of(interaction: Asked) -> Bot:
    """The bot that received the interaction."""
    return cast("Bot", interaction.client)


def roles_of(interaction: Asked) -> str | None:
    """The person's Discord roles here, as sent to the service, which decides what rights they give.

    None outside a server, and in one that the bot isn't in: roles are unknown there.
    """
    who = interaction.user
    if interaction.guild_id is None or not isinstance(who, discord.Member):
        return None
    held = [str(one.id) for one in who.roles if not one.is_default()]
    return f"{interaction.guild_id}:{','.join(held)}" if held else None


async def as_asker(interaction: Asked, call: Callable[[Client], T]) -> T:
    """Call the service in the name of the person who typed or pressed, with the rights from their Discord roles."""
    user = interaction.user
    return await bot_of(interaction).service.for_user(user.id, user.display_name, call, roles=roles_of(interaction))


async def may(interaction: Asked) -> May:
    """The person's rights beyond submitting. Doesn't create people who have no role here."""
    try:
        if roles_of(interaction):
            return await as_asker(interaction, Client.may)
        return await bot_of(interaction).service.for_owner(interaction.user.id, Client.may)
    except NoSuch:
        return May(host=False, creator=False, gpus=())


async def boards_of(interaction: Asked) -> list[BoardInfo]:
    """The boards that may be shown to the person; none if the API is too slow."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await bot_of(interaction).service.boards(interaction.user.id, roles_of(interaction))
    except (TimeoutError, KbslurmError):
        return []


async def board_of(interaction: Asked, name: str) -> BoardInfo:
    """The board with that name, or NotFound with the existing ones."""
    found = await bot_of(interaction).service.boards(interaction.user.id, roles_of(interaction))
    for board in found:
        if board.name.lower() == name.strip().lower():
            return board
    raise NotFound("board", name, known=[board.name for board in found])
