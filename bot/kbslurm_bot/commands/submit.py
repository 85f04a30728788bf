"""`/submit` and `/leaderboard submit …`: submit a file, with a card in the channel that follows it."""

from __future__ import annotations

import discord
from discord import app_commands

from kbslurm.domain.source import SOURCE_CAP
from kbslurm.errors import Invalid, TooLarge
from kbslurm_bot.commands.completions import complete_board, complete_gpus
from kbslurm_bot.interactions import Asked, board_of, bot_of
from kbslurm_bot.permissions import missing_here
from kbslurm_bot.service import Away
from kbslurm_bot.text import gpus_named

MODE_CHOICES = [
    app_commands.Choice(name="ranked", value="leaderboard"),
    app_commands.Choice(name="test", value="test"),
    app_commands.Choice(name="benchmark", value="benchmark"),
    app_commands.Choice(name="profile", value="profile"),
]
WORDS = {
    "file": "Your kernel, as a file",
    "leaderboard": "The board, unless a #!POPCORN line in the file names it",
    "gpu": "GPU types, separated by commas, unless a #!POPCORN line in the file names them",
}

ONE_BENCHMARK = "Profile only this benchmark, from 0"
Benchmark = app_commands.Range[int, 0, 10_000]

modes = app_commands.Group(name="submit", description="Submit a file")


@app_commands.command(name="submit", description="Submit a file; ranked by default")
@app_commands.describe(**WORDS, mode="The mode (default: ranked)", benchmark=f"{ONE_BENCHMARK}; with the mode profile")
@app_commands.choices(mode=MODE_CHOICES)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def submit(
    interaction: Asked,
    file: discord.Attachment,
    leaderboard: str | None = None,
    gpu: str | None = None,
    mode: str = "leaderboard",
    benchmark: Benchmark | None = None,
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, mode, benchmark=benchmark)


@modes.command(name="test", description="Check correctness only")
@app_commands.describe(**WORDS)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def only_test(
    interaction: Asked, file: discord.Attachment, leaderboard: str | None = None, gpu: str | None = None
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, "test")


@modes.command(name="benchmark", description="Check correctness and measure the time, unranked")
@app_commands.describe(**WORDS)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def benchmark(
    interaction: Asked, file: discord.Attachment, leaderboard: str | None = None, gpu: str | None = None
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, "benchmark")


@modes.command(name="profile", description="Profile where the time goes")
@app_commands.describe(**WORDS, benchmark=ONE_BENCHMARK)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def profile(
    interaction: Asked,
    file: discord.Attachment,
    leaderboard: str | None = None,
    gpu: str | None = None,
    benchmark: Benchmark | None = None,
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, "profile", benchmark=benchmark)


@modes.command(name="ranked", description="Submit to the leaderboard, including hidden cases")
@app_commands.describe(**WORDS)
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def ranked(
    interaction: Asked, file: discord.Attachment, leaderboard: str | None = None, gpu: str | None = None
) -> None:
    await handed_in(interaction, file, leaderboard, gpu, "leaderboard")


async def handed_in(
    interaction: Asked,
    file: discord.Attachment,
    leaderboard: str | None,
    gpu: str | None,
    mode: str,
    on: str | None = None,
    benchmark: int | None = None,
) -> None:
    """Submit an attached file, for the board and GPU types as typed."""
    await interaction.response.defer(ephemeral=True, thinking=True)
    source = await fetched(file)
    board = await board_of(interaction, leaderboard) if leaderboard else None
    name = board.name if board else None
    await submitted(interaction, name, gpus_named(gpu, board), mode, file.filename, source, on, benchmark)


async def fetched(file: discord.Attachment) -> bytes:
    """What was attached, from Discord; never more than a submission may have."""
    if file.size > SOURCE_CAP:
        raise TooLarge(f"the file has {file.size} bytes", hint=f"The limit is {SOURCE_CAP} bytes.")
    try:
        return await file.read()
    except discord.HTTPException as error:
        raise Invalid(f"the file couldn't be fetched from Discord ({error.status})", hint="Attach it again.") from error


async def submitted(
    interaction: Asked,
    board: str | None,
    gpus: list[str],
    mode: str,
    file_name: str,
    source: bytes,
    on: str | None = None,
    benchmark: int | None = None,
) -> None:
    """Submit it for the person, post its card, and confirm. The interaction has been deferred."""
    here, user = bot_of(interaction), interaction.user
    await here.service.person(user.id, user.display_name)
    try:
        receipt = await here.service.for_user(
            user.id,
            user.display_name,
            lambda client: client.submit_to_many(board, gpus, mode, file_name, source, on=on, benchmark=benchmark),
        )
    except Away as error:
        raise Away(error.why, hint="Your file may have been accepted: check `/me` before you submit again.") from error
    number = receipt.submission_id
    lacks = lacking(interaction)
    if interaction.channel_id is None or lacks:
        said = f"Submission {number} is accepted. I can't post its card here: I lack {', '.join(lacks) or 'a channel'}."
        await interaction.followup.send(f"{said} Use `/leaderboard get-submission` to see it.", ephemeral=True)
        return

    async def lost() -> None:
        said = f"I'm not allowed to write in this channel, so submission {number} has no card here. Tell a host."
        await interaction.followup.send(f"{said} Use `/leaderboard get-submission` to see it.", ephemeral=True)

    here.live_cards.add(number, interaction.channel_id, user.id, lost)
    await interaction.followup.send(
        f"Submission {number} is accepted; its card in this channel follows it.", ephemeral=True
    )


def lacking(interaction: Asked) -> list[str]:
    """The permissions that a card needs and the bot lacks in this channel."""
    if interaction.guild_id is None:
        return []
    in_thread = isinstance(interaction.channel, discord.Thread)
    return [name for name in missing_here(interaction.app_permissions, in_thread=in_thread) if name != "Attach Files"]
