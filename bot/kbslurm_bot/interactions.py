"""What every command and button shares: the bot behind an interaction, and the service asked in the asker's name."""

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
# Discord waits three seconds for completions; a late one is worth less than none.
PATIENCE_S = 2.0


class Bot(Protocol):
    """What commands and buttons use of the bot."""

    settings: Settings
    service: Service
    live_cards: LiveCards

    @property
    def tree(self) -> app_commands.CommandTree[Any]: ...
    @property
    def latency(self) -> float: ...
    async def synced_anew(self, guild: int | None) -> int: ...


def bot_of(interaction: Asked) -> Bot:
    """The bot that was asked."""
    return cast("Bot", interaction.client)


def roles_of(interaction: Asked) -> str | None:
    """Which Discord roles whoever asks has here, as the service is told of them; it decides what they give.

    None outside of a server, and in one that the bot isn't in: there nothing is known of roles.
    """
    who = interaction.user
    if interaction.guild_id is None or not isinstance(who, discord.Member):
        return None
    held = [str(one.id) for one in who.roles if not one.is_default()]
    return f"{interaction.guild_id}:{','.join(held)}" if held else None


async def as_asker(interaction: Asked, call: Callable[[Client], T]) -> T:
    """Ask in the name of whoever typed or pressed just now, with what their Discord roles give them."""
    user = interaction.user
    return await bot_of(interaction).service.for_user(user.id, user.display_name, call, roles=roles_of(interaction))


async def may(interaction: Asked) -> May:
    """What whoever asks may beside submitting. Makes nobody a person who has no role here."""
    try:
        if roles_of(interaction):
            return await as_asker(interaction, Client.may)
        return await bot_of(interaction).service.for_owner(interaction.user.id, Client.may)
    except NoSuch:
        return May(host=False, creator=False, gpus=())


async def boards_of(interaction: Asked) -> list[BoardInfo]:
    """The boards that may be shown to whoever types; none when the API is too slow for that."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await bot_of(interaction).service.boards(interaction.user.id, roles_of(interaction))
    except (TimeoutError, KbslurmError):
        return []


async def board_of(interaction: Asked, name: str) -> BoardInfo:
    """The board of that name, or NotFound with those that there are."""
    found = await bot_of(interaction).service.boards(interaction.user.id, roles_of(interaction))
    for board in found:
        if board.name.lower() == name.strip().lower():
            return board
    raise NotFound("board", name, known=[board.name for board in found])
