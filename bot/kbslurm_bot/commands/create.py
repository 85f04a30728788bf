"""`/leaderboard create`: create a board from a problem. The service decides who may: hosts, and creators by a role."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import discord
from discord import app_commands

from kbslurm.client.answers import MadeBoard
from kbslurm.domain import contest
from kbslurm.errors import Invalid, KbslurmError, NoGpuType, TooLarge
from kbslurm_bot import cards, menus
from kbslurm_bot.commands.completions import CHOICES, words_typed
from kbslurm_bot.interactions import PATIENCE_S, Asked, as_asker, may
from kbslurm_bot.text import ALL_GPUS, fitting, gpus_typed

FILE_CAP = 4_000_000
Visibility = Literal["public", "private"]


async def complete_offered(interaction: Asked, typed: str) -> list[app_commands.Choice[str]]:
    """GPU types that places offer, as a comma-separated list, or all; nothing for people who may not create boards."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            known = (await may(interaction)).gpus
    except (TimeoutError, KbslurmError):
        return []
    found = words_typed(typed, known)
    return [app_commands.Choice(name=one, value=one) for one in found[:CHOICES]]


@app_commands.command(name="create", description="For hosts and creators: create a board")
@app_commands.describe(
    leaderboard="Its name: a-z, digits, . _ -",
    problem="A zip of the problem's folder (with its task.yml), or one reference file",
    gpu="GPU types, separated by commas (default: the problem's, else you choose)",
    deadline="2026-12-24 or 2026-12-24 18:00 (default: none)",
    zone="The deadline's time zone, like Europe/Berlin (default: UTC)",
    visibility="public (default), or private (by invitation)",
    description="A one-sentence description (default: the problem's)",
)
@app_commands.autocomplete(gpu=complete_offered)
async def create(
    interaction: Asked,
    leaderboard: app_commands.Range[str, 1, 64],
    problem: discord.Attachment,
    gpu: str | None = None,
    deadline: str | None = None,
    zone: str = "UTC",
    visibility: Visibility = "public",
    description: str | None = None,
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    if problem.size > FILE_CAP:
        raise TooLarge(f"the file has {problem.size:,} bytes", hint=f"The limit is {FILE_CAP:,} bytes.")

    async def created(asked: Asked, gpus: Sequence[str]) -> str:
        data = await _read(problem)
        made = await as_asker(
            asked,
            lambda client: client.create_board(
                leaderboard,
                problem.filename,
                data,
                gpus=gpus,
                deadline=deadline,
                zone=zone,
                visibility=contest.visibility(visibility),
                description=description,
            ),
        )
        return fitting(made_told(made))

    gpus = gpus_typed(gpu)
    if [one.lower() for one in gpus] == [ALL_GPUS]:
        gpus = list((await may(interaction)).gpus)
    try:
        said = await created(interaction, gpus)
    except Invalid as error:
        offered = (await may(interaction)).gpus if error.kind == NoGpuType.__name__ else ()
        if not offered:
            raise
        await _ask_for_gpus(interaction, leaderboard, offered, created)
    else:
        await interaction.followup.send(said, ephemeral=True)


async def _read(problem: discord.Attachment) -> bytes:
    try:
        return await problem.read()
    except discord.HTTPException as error:
        raise Invalid(f"the file couldn't be fetched from Discord ({error.status})", hint="Attach it again.") from error


async def _ask_for_gpus(interaction: Asked, board: str, offered: Sequence[str], created: menus.Choose) -> None:
    """Neither the command nor the problem names a GPU type: offer those that places have."""

    async def send(view: discord.ui.View) -> discord.WebhookMessage:
        text = f"Which GPU types is {cards.escaped(board)} for? The problem names none. It is created when you choose."
        return await interaction.followup.send(text, view=view, ephemeral=True, wait=True)

    await menus.offer(
        interaction.client,
        interaction.user.id,
        send,
        offered,
        created,
        placeholder="Choose one or more GPU types",
        expired=f"This menu has expired, and {cards.escaped(board)} wasn't created. Use the command again.",
        most=menus.MOST,
    )


def made_told(made: MadeBoard) -> list[str]:
    """A new board, and remarks on it."""
    return [
        f"Board **{cards.escaped(made.name)}** is created, on {', '.join(map(cards.escaped, made.gpus))}.",
        *(f"⚠ {cards.escaped(one)}" for one in made.warnings),
    ]
