"""What every command shares: the bot behind an interaction, a safe answer, and the words that Discord completes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import discord
from discord import app_commands

from kbslurm.client import BoardInfo
from kbslurm.errors import KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm_bot.face import Face

Asked = discord.Interaction[Any]
CHOICES = 25
# Discord waits three seconds for completions; a late one is worth less than none.
PATIENCE_S = 2.0
ALL_GPUS = "all"


def face(interaction: Asked) -> Face:
    """The bot that was asked."""
    return cast("Face", interaction.client)


async def boards_of(interaction: Asked) -> list[BoardInfo]:
    """The boards that may be shown to whoever types; none when the API is too slow for that."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await face(interaction).voice.boards(interaction.user.id)
    except (TimeoutError, KbslurmError):
        return []


async def board_of(interaction: Asked, name: str) -> BoardInfo:
    """The board of that name, or NotFound with those that there are."""
    found = await face(interaction).voice.boards(interaction.user.id)
    for board in found:
        if board.name.lower() == name.strip().lower():
            return board
    raise NotFound("board", name, known=[board.name for board in found])


async def complete_board(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """Boards whose names have what was typed; those that take submissions first."""
    found = sorted(await boards_of(interaction), key=lambda board: not board.is_open)
    names = [board.name for board in found if typed.lower() in board.name.lower()]
    return [app_commands.Choice(name=name[:100], value=name[:100]) for name in names[:CHOICES]]


async def complete_gpus(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """GPU types of the board that was named, one after the other with commas, or all of them."""
    wanted = str(getattr(interaction.namespace, "leaderboard", "") or "").strip().lower()
    known: dict[str, None] = {}
    for board in await boards_of(interaction):
        if not wanted or board.name.lower() == wanted:
            known.update(dict.fromkeys(board.gpus))
    *before, last = [part.strip() for part in typed.split(",")]
    chosen = {part.lower() for part in before}
    lead = "".join(f"{part}, " for part in before)
    words = [gpu for gpu in known if gpu.lower() not in chosen and last.lower() in gpu.lower()]
    if len(known) > 1 and not before and ALL_GPUS.startswith(last.lower()):
        words.append(ALL_GPUS)
    found = [f"{lead}{word}" for word in words if len(lead) + len(word) <= 100]
    return [app_commands.Choice(name=one, value=one) for one in found[:CHOICES]]


def gpus_named(text: str | None, board: BoardInfo | None) -> list[str]:
    """`H100, A100` → both; `all` is every type of the board; nothing said is nothing."""
    named = [part.strip() for part in (text or "").split(",") if part.strip()]
    if [one.lower() for one in named] == [ALL_GPUS] and board is not None:
        return list(board.gpus)
    return named


def fitting(lines: list[str], cap: int = 2000) -> str:
    """As many lines as a message takes; a block of code that was cut is ended."""
    text, fence = "", False
    for line in lines:
        if len(text) + len(line) + 8 > cap:
            break
        text += line + "\n"
        fence ^= line == "```"
    return text + ("```" if fence else "")
