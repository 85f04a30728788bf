"""`/run`: a try that never ranks. `/verify`: do the places work? A canary, and one message that follows it."""

from __future__ import annotations

from typing import Literal

import discord
from discord import app_commands

from kbslurm.errors import Invalid, Refused
from kbslurm_bot import cards
from kbslurm_bot.commands.admin import HOSTS_ONLY
from kbslurm_bot.commands.asking import (
    Asked,
    as_asker,
    boards_of,
    complete_board,
    complete_gpus,
    face,
    gpus_named,
    gpus_typed,
)
from kbslurm_bot.commands.submitting import WORDS, handed_in
from kbslurm_bot.desk import HOUSE

Try = Literal["test", "benchmark"]


@app_commands.command(name="run", description="Try a file on a GPU type of your choice; it never ranks")
@app_commands.describe(
    file=WORDS["file"],
    gpu="GPU types, with commas between",
    leaderboard=WORDS["leaderboard"],
    mode="benchmark (default) measures, test only checks",
)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def run(
    interaction: Asked, file: discord.Attachment, gpu: str, leaderboard: str | None = None, mode: Try = "benchmark"
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, mode)


@app_commands.command(
    name="verify", description="For hosts: run what is known to be right on every GPU type of a board"
)
@app_commands.describe(
    leaderboard="The board (default: the open one with the most GPU types)",
    gpu="Only these GPU types, with commas between",
    mode="test (default) or benchmark",
)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
@app_commands.default_permissions(HOSTS_ONLY)
async def verify(
    interaction: Asked, leaderboard: str | None = None, gpu: str | None = None, mode: Try = "test"
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    here = face(interaction)
    channel = here.settings.staff_channel or interaction.channel_id
    if channel is None:
        raise Refused("there is no channel to report into", hint="Type it in a channel, or set staff_channel.")
    known = await boards_of(interaction)
    name = leaderboard or max((one for one in known if one.is_open), key=lambda one: len(one.gpus), default=None)
    if name is None:
        raise Invalid("there is no open board to verify on", hint="Name one, or make one: /leaderboard create.")
    board = name if isinstance(name, str) else name.name
    gpus = gpus_named(gpu, next((one for one in known if one.name.lower() == board.strip().lower()), None))
    ordered = await as_asker(interaction, lambda client: client.verify(board, gpus or gpus_typed(gpu), mode))
    here.desk.add(ordered.submission_id, channel, HOUSE)
    said = [f"Verifying on {cards.plain(ordered.board)}: submission {ordered.submission_id}; <#{channel}> follows it."]
    if ordered.left_out:
        said.append(f"Not verified, since this board hasn't them: {', '.join(map(cards.plain, ordered.left_out))}.")
    await interaction.followup.send("\n".join(said), ephemeral=True)
