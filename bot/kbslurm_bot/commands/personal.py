"""`/me`, `/queue`, `/cancel`, `/link` and `/leaderboard show-personal`: a person's own things."""

from __future__ import annotations

import io
from typing import Any

import discord
from discord import app_commands

from kbslurm.client.answers import Queue, SubmissionSummary
from kbslurm.domain.amounts import seconds
from kbslurm.domain.contest import known_gpu
from kbslurm_bot import cards, plot
from kbslurm_bot.commands.boards import leaderboard
from kbslurm_bot.commands.completions import complete_board, complete_gpus, complete_own
from kbslurm_bot.interactions import Asked, board_of, bot_of, roles_of
from kbslurm_bot.service import history_of
from kbslurm_bot.text import fitting

LINES = 15
HISTORY = 100


@app_commands.command(name="me", description="Show who you are here, and your latest submissions")
async def me(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    service, user = bot_of(interaction).service, interaction.user
    person, found = await service.for_user(
        user.id, user.display_name, lambda client: (client.me(), client.submissions(limit=LINES))
    )
    banned = " · banned, so your submissions are rejected" if person.banned else ""
    head = f"You are **{cards.escaped(person.name)}** ({person.role}, person {person.id}){banned}."
    rows = [summary_text(one) for one in found] or ["No submissions yet. Submit one with `/submit`."]
    await interaction.followup.send(fitting([head, *rows]), ephemeral=True)


@app_commands.command(name="queue", description="Show how long the queues are, by GPU type")
@app_commands.describe(leaderboard="Only the GPU types of this board")
@app_commands.autocomplete(leaderboard=complete_board)
async def queue(interaction: Asked, leaderboard: str | None = None) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    service = bot_of(interaction).service
    if leaderboard:
        boards = [await board_of(interaction, leaderboard)]
    else:
        boards = await service.boards(interaction.user.id, roles_of(interaction))
    gpus = list(dict.fromkeys(gpu for board in boards for gpu in board.gpus))[:25]
    found = await service.ask(lambda client: [client.queue(gpu) for gpu in gpus])
    await interaction.followup.send(
        fitting([queue_text(one) for one in found] or ["There are no boards, so there are no queues."]), ephemeral=True
    )


@app_commands.command(name="cancel", description="Cancel one of your submissions; existing verdicts stay")
@app_commands.describe(submission="Its number")
@app_commands.autocomplete(submission=complete_own)
async def cancel(interaction: Asked, submission: app_commands.Range[int, 1, 2**53]) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    await cancelled(interaction, submission)


async def cancelled(interaction: Asked, submission: int) -> None:
    """Cancel its open runs, and confirm. The interaction has been deferred."""
    service, user = bot_of(interaction).service, interaction.user
    await service.for_user(user.id, user.display_name, lambda client: client.cancel(submission))
    await interaction.followup.send(f"Submission {submission} is cancelled; existing verdicts stay.", ephemeral=True)


@app_commands.command(name="link", description="Link a token from popcorn register or kbslurm login --register to you")
@app_commands.describe(token="The pending token, cli_id in ~/.popcorn.yaml: only use one that you made yourself")
async def link(interaction: Asked, token: app_commands.Range[str, 1, 512]) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    service, user = bot_of(interaction).service, interaction.user
    person = await service.for_user(user.id, user.display_name, lambda client: client.link_mine(token.strip()))
    await interaction.followup.send(
        f"Linked, {cards.escaped(person.name)}: that device now submits as you.", ephemeral=True
    )


@leaderboard.command(
    name="show-personal", description="Show your own submissions to a board, with a plot of their history"
)
@app_commands.describe(leaderboard="The board", gpu="One GPU type (default: the board's first)")
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def show_personal(interaction: Asked, leaderboard: str, gpu: str | None = None) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    board = await board_of(interaction, leaderboard)
    known = known_gpu(gpu, board.gpus) if gpu else board.gpus[0]
    service, user = bot_of(interaction).service, interaction.user
    found, lines, places = await service.for_user(
        user.id,
        user.display_name,
        lambda client: (
            client.submissions(board.name, limit=LINES),
            client.submission_rows(board.name, limit=HISTORY),
            client.ranking(board.name, known, limit=HISTORY),
        ),
    )
    head = f"Yours on **{cards.escaped(board.name)}**, {cards.escaped(known)}"
    rows = [summary_text(one) for one in found] or ["No submissions yet. Submit one with `/submit`."]
    mine = [one for _, one in history_of(lines, known)]
    others = [plot.Point(at=one.at, score_s=one.score_s) for one in places]
    picture = await plot.picture(mine, others, f"{board.name} on {known}")
    more: dict[str, Any] = {}
    if picture is not None:
        says = cards.history_told(board.name, known, mine)
        more["file"] = discord.File(io.BytesIO(picture), filename="history.png", description=says)
    await interaction.followup.send(fitting([head, *rows]), ephemeral=True, **more)


def summary_text(one: SubmissionSummary) -> str:
    """One's own submission in one line."""
    scores = ", ".join(f"{gpu} {seconds(score)}" for gpu, score in one.scores.items() if score is not None)
    state = ", ".join(part for part in (scores or one.status, "not ranked" if one.unranked else "") if part)
    at = cards.when(one.submitted_at, "R")
    return f"`#{one.id}` {cards.escaped(one.board)} · {cards.MODES[one.mode]} · {cards.escaped(state)} · {at}"


def queue_text(one: Queue) -> str:
    """A GPU type's queue in one line."""
    if one.queued is None:
        return f"**{cards.escaped(one.gpu)}** {cards.escaped(one.error or 'not available')}"
    why = f" · {cards.escaped(one.error)}" if one.error else ""
    return f"**{cards.escaped(one.gpu)}** {one.queued} waiting · {one.running} running · {one.free} free{why}"
