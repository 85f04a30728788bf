"""What every command shares: the bot behind an interaction, a safe answer, and the words that Discord completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import discord
from discord import app_commands

from kbslurm.client.answers import BoardInfo, May
from kbslurm.client.errors import NoSuch
from kbslurm.client.http import Client
from kbslurm.errors import KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm_bot.face import Face

Asked = discord.Interaction[Any]
T = TypeVar("T")
CHOICES = 25
# Discord waits three seconds for completions; a late one is worth less than none.
PATIENCE_S = 2.0
ALL_GPUS = "all"


def face(interaction: Asked) -> Face:
    """The bot that was asked."""
    return cast("Face", interaction.client)


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
    return await face(interaction).voice.for_user(user.id, user.display_name, call, roles=roles_of(interaction))


async def may(interaction: Asked) -> May:
    """What whoever asks may beside submitting. Makes nobody a person who has no role here."""
    try:
        if roles_of(interaction):
            return await as_asker(interaction, Client.may)
        return await face(interaction).voice.for_owner(interaction.user.id, Client.may)
    except NoSuch:
        return May(host=False, creator=False, gpus=())


async def boards_of(interaction: Asked) -> list[BoardInfo]:
    """The boards that may be shown to whoever types; none when the API is too slow for that."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await face(interaction).voice.boards(interaction.user.id, roles_of(interaction))
    except (TimeoutError, KbslurmError):
        return []


async def board_of(interaction: Asked, name: str) -> BoardInfo:
    """The board of that name, or NotFound with those that there are."""
    found = await face(interaction).voice.boards(interaction.user.id, roles_of(interaction))
    for board in found:
        if board.name.lower() == name.strip().lower():
            return board
    raise NotFound("board", name, known=[board.name for board in found])


async def complete_board(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """Boards whose names have what was typed; those that take submissions first."""
    found = sorted(await boards_of(interaction), key=lambda board: not board.is_open)
    names = [board.name for board in found if typed.lower() in board.name.lower()]
    return [app_commands.Choice(name=name[:100], value=name[:100]) for name in names[:CHOICES]]


async def complete_people(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """People by name, for hosts; nobody for anybody else."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await face(interaction).voice.for_owner(
                interaction.user.id, lambda client: client.people(typed[:64]), roles=roles_of(interaction)
            )
    except (TimeoutError, KbslurmError):
        return []
    shown = [(f"{one.name} ({one.role}{', banned' if one.banned else ''})", f"person:{one.id}") for one in found]
    return [app_commands.Choice(name=name[:100], value=value) for name, value in shown[:CHOICES]]


async def complete_own(interaction: Asked, typed: int | str) -> list[app_commands.Choice[int]]:
    """One's own last submissions, by their numbers."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await face(interaction).voice.for_owner(
                interaction.user.id, lambda client: client.submissions(limit=CHOICES)
            )
    except (TimeoutError, KbslurmError):
        return []
    shown = [(f"#{one.id} {one.board} {one.file_name}", one.id) for one in found if str(one.id).startswith(str(typed))]
    return [app_commands.Choice(name=name[:100], value=value) for name, value in shown]


async def complete_gpus(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """GPU types of the board that was named, one after the other with commas, or all of them."""
    wanted = str(getattr(interaction.namespace, "leaderboard", "") or "").strip().lower()
    known: dict[str, None] = {}
    for board in await boards_of(interaction):
        if not wanted or board.name.lower() == wanted:
            known.update(dict.fromkeys(board.gpus))
    return [app_commands.Choice(name=one, value=one) for one in words_typed(typed, list(known))[:CHOICES]]


async def complete_places(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """Places that whoever types may choose for a try: a Discord role chooses none, runs know nothing of it."""
    return await _places(interaction, typed, None)


async def complete_every_place(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """The same for what goes as the house, which a host by a Discord role may order, too."""
    return await _places(interaction, typed, roles_of(interaction))


async def _places(interaction: Asked, typed: str, roles: str | None) -> list[app_commands.Choice[str]]:
    """Those that have all the GPU types that were typed."""
    gpus = {one.lower() for one in gpus_typed(getattr(interaction.namespace, "gpu", None))} - {ALL_GPUS}
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await face(interaction).voice.for_owner(interaction.user.id, Client.places_offered, roles=roles)
    except (TimeoutError, KbslurmError):
        return []
    fit = [name for name, has in found.items() if gpus <= {one.lower() for one in has}]
    return [app_commands.Choice(name=one, value=one) for one in fit if typed.lower() in one.lower()][:CHOICES]


def words_typed(typed: str, known: Sequence[str]) -> list[str]:
    """What a list with commas may become by one more word of these, or by `all`."""
    *before, last = [part.strip() for part in typed.split(",")]
    chosen = {part.lower() for part in before}
    lead = "".join(f"{part}, " for part in before)
    words = [gpu for gpu in known if gpu.lower() not in chosen and last.lower() in gpu.lower()]
    if len(known) > 1 and not before and ALL_GPUS.startswith(last.lower()):
        words.append(ALL_GPUS)
    return [f"{lead}{word}" for word in words if len(lead) + len(word) <= 100]


def gpus_named(text: str | None, board: BoardInfo | None) -> list[str]:
    """`H100, A100` → both; `all` is every type of the board; nothing said is nothing."""
    named = gpus_typed(text)
    if [one.lower() for one in named] == [ALL_GPUS] and board is not None:
        return list(board.gpus)
    return named


def gpus_typed(text: str | None) -> list[str]:
    """The words between the commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def fitting(lines: list[str], cap: int = 2000) -> str:
    """As many lines as a message takes, one that is too long cut; a block of code that was cut is ended."""
    text, fence = "", False
    for line in lines:
        room = cap - len(text) - 8
        if len(line) > room:
            text += f"{line[: room - 1]}…\n" if room > 40 and not fence else ""
            break
        text += line + "\n"
        fence ^= line == "```"
    return text + ("```" if fence else "")
