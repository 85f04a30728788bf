"""Autocompletion for Discord."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from discord import app_commands

from kbslurm.client.http import Client
from kbslurm.errors import KbslurmError
from kbslurm_bot.interactions import PATIENCE_S, Asked, boards_of, bot_of, roles_of
from kbslurm_bot.text import ALL_GPUS, gpus_typed

CHOICES = 25


async def complete_board(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """Boards whose names contain the typed text; open ones first."""
    found = sorted(await boards_of(interaction), key=lambda board: not board.is_open)
    names = [board.name for board in found if typed.lower() in board.name.lower()]
    return [app_commands.Choice(name=name[:100], value=name[:100]) for name in names[:CHOICES]]


async def complete_people(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """People by name, for hosts; nothing for anyone else."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await bot_of(interaction).service.for_owner(
                interaction.user.id, lambda client: client.people(typed[:64]), roles=roles_of(interaction)
            )
    except (TimeoutError, KbslurmError):
        return []
    shown = [(f"{one.name} ({one.role}{', banned' if one.banned else ''})", f"person:{one.id}") for one in found]
    return [app_commands.Choice(name=name[:100], value=value) for name, value in shown[:CHOICES]]


async def complete_own(interaction: Asked, typed: int | str) -> list[app_commands.Choice[int]]:
    """One's own latest submissions, by number."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await bot_of(interaction).service.for_owner(
                interaction.user.id, lambda client: client.submissions(limit=CHOICES)
            )
    except (TimeoutError, KbslurmError):
        return []
    shown = [(f"#{one.id} {one.board} {one.file_name}", one.id) for one in found if str(one.id).startswith(str(typed))]
    return [app_commands.Choice(name=name[:100], value=value) for name, value in shown]


async def complete_gpus(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """GPU types of the chosen board, as a comma-separated list, or all of them."""
    wanted = str(getattr(interaction.namespace, "leaderboard", "") or "").strip().lower()
    known: dict[str, None] = {}
    for board in await boards_of(interaction):
        if not wanted or board.name.lower() == wanted:
            known.update(dict.fromkeys(board.gpus))
    return [app_commands.Choice(name=one, value=one) for one in words_typed(typed, list(known))[:CHOICES]]


async def complete_places(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """Places that the person may choose for a test run: a Discord role gives none, since placement ignores it."""
    return await _places(interaction, typed, None)


async def complete_every_place(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """The same for a canary, which hosts by a Discord role may order as well."""
    return await _places(interaction, typed, roles_of(interaction))


async def _places(interaction: Asked, typed: str, roles: str | None) -> list[app_commands.Choice[str]]:
    """Places that have all the GPU types that were typed."""
    gpus = {one.lower() for one in gpus_typed(getattr(interaction.namespace, "gpu", None))} - {ALL_GPUS}
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await bot_of(interaction).service.for_owner(interaction.user.id, Client.places_offered, roles=roles)
    except (TimeoutError, KbslurmError):
        return []
    fit = [name for name, has in found.items() if gpus <= {one.lower() for one in has}]
    return [app_commands.Choice(name=one, value=one) for one in fit if typed.lower() in one.lower()][:CHOICES]


def words_typed(typed: str, known: Sequence[str]) -> list[str]:
    """Completions of a comma-separated list by one more of these words, or by `all`."""
    *before, last = [part.strip() for part in typed.split(",")]
    chosen = {part.lower() for part in before}
    lead = "".join(f"{part}, " for part in before)
    words = [gpu for gpu in known if gpu.lower() not in chosen and last.lower() in gpu.lower()]
    if len(known) > 1 and not before and ALL_GPUS.startswith(last.lower()):
        words.append(ALL_GPUS)
    return [f"{lead}{word}" for word in words if len(lead) + len(word) <= 100]
