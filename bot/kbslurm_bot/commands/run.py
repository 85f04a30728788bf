"""`/run`: a test run that never ranks, or a host's script without a board. `/verify`: test the places with a canary,
and one message that follows it."""

from __future__ import annotations

from typing import Literal

import discord
from discord import app_commands

from kbslurm.client.answers import BoardInfo
from kbslurm.client.http import Client
from kbslurm.domain import access
from kbslurm.domain.scripts import DEFAULT_S, MOST_S
from kbslurm.domain.source import directives
from kbslurm.errors import NotFound, Refused
from kbslurm_bot import cards
from kbslurm_bot.commands.admin import HOSTS_ONLY
from kbslurm_bot.commands.completions import complete_board, complete_every_place, complete_gpus, complete_places
from kbslurm_bot.commands.scripts import run_script
from kbslurm_bot.commands.submit import WORDS, fetched, handed_in, lacking, submitted
from kbslurm_bot.interactions import Asked, as_asker, bot_of, may, roles_of
from kbslurm_bot.live_cards import NOBODY
from kbslurm_bot.text import gpus_named, gpus_typed

Try = Literal["test", "benchmark"]


@app_commands.command(name="run", description="Test a file on a GPU type or at a place of your choice; it never ranks")
@app_commands.describe(
    file=WORDS["file"],
    gpu="GPU types, separated by commas",
    leaderboard="The board, unless the file names it; hosts may leave it out to run a script",
    mode="benchmark (default) measures, test only checks",
    backend="The only place to run it at (default: whichever is free)",
    timeout_s="For hosts, without a leaderboard: how many seconds the script may take (default: 60)",
)
@app_commands.rename(timeout_s="timeout")
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus, backend=complete_places)
async def run(
    interaction: Asked,
    file: discord.Attachment,
    gpu: str,
    leaderboard: str | None = None,
    mode: Try = "benchmark",
    backend: str | None = None,
    timeout_s: app_commands.Range[int, 1, MOST_S] | None = None,
) -> None:
    if leaderboard is not None:
        await handed_in(interaction, file, leaderboard, gpu, mode, backend)
        return
    await interaction.response.defer(ephemeral=True, thinking=True)
    source = await fetched(file)
    if _names_board(source) or not (await may(interaction)).host:
        await submitted(interaction, None, gpus_typed(gpu), mode, file.filename, source, backend)
    else:
        await run_script(interaction, file.filename, source, gpu, timeout_s or DEFAULT_S, backend)


def _names_board(source: bytes) -> bool:
    """Whether the file says which board it is for."""
    return directives(source.decode("utf-8", "replace")).leaderboard is not None


@app_commands.command(
    name="verify", description="For hosts: run a known-correct kernel at every place that has a board's GPU types"
)
@app_commands.describe(
    leaderboard="The board (default: the open one with the most GPU types)",
    gpu="Only these GPU types, separated by commas",
    mode="test (default) or benchmark",
    backend="Only at this place",
)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus, backend=complete_every_place)
@app_commands.default_permissions(HOSTS_ONLY)
async def verify(
    interaction: Asked,
    leaderboard: str | None = None,
    gpu: str | None = None,
    mode: Try = "test",
    backend: str | None = None,
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    here, channel = bot_of(interaction), followed_in(interaction)
    known = await boards_shown(interaction)
    found = next((one for one in known if leaderboard and one.name == leaderboard.strip().lower()), None)
    if leaderboard is None:
        found = max((one for one in known if one.is_open), key=lambda one: len(one.gpus), default=None)
    if found is None:
        await as_asker(interaction, Client.overview)  # people who aren't hosts are told that instead
        raise NotFound("public board", leaderboard or "", known=[one.name for one in known])
    board, gpus = found.name, gpus_named(gpu, found)
    ordered = await as_asker(interaction, lambda client: client.verify(board, gpus, mode, on=backend))
    here.live_cards.add(ordered.submission_id, channel, NOBODY, also=ordered.submission_ids)
    said = [
        f"Verifying on {cards.escaped(ordered.board)}: submission {ordered.submission_id}; <#{channel}> follows it."
    ]
    if ordered.left_out:
        said.append(
            f"Not verified, since this board doesn't have them: {', '.join(map(cards.escaped, ordered.left_out))}."
        )
    await interaction.followup.send("\n".join(said), ephemeral=True)


def followed_in(interaction: Asked) -> int:
    """The channel where canaries are followed: the staff's if there is one, else this one."""
    channel = bot_of(interaction).settings.staff_channel or interaction.channel_id
    if channel is None:
        raise Refused("there is no channel to report in", hint="Use the command in a channel, or set staff_channel.")
    if channel == interaction.channel_id and (lacks := lacking(interaction)):
        raise Refused(
            f"I can't write in this channel: I lack {', '.join(lacks)}",
            hint="Use the command elsewhere, or ask a host for these permissions.",
        )
    return channel


async def boards_shown(interaction: Asked) -> list[BoardInfo]:
    """The boards whose names may be read there: everyone can in an open channel."""
    here = bot_of(interaction)
    seen = await here.service.boards(interaction.user.id, roles_of(interaction))
    return [one for one in seen if here.settings.staff_channel or access.is_for_everybody(one.visibility)]
