"""`/leaderboard list|show|task|template|get-submission`: boards, standings, tasks, templates."""

from __future__ import annotations

import io

import discord
from discord import app_commands

from kbslurm.client.answers import BoardInfo, StandingInfo
from kbslurm.domain.amounts import score
from kbslurm.domain.contest import known_gpu
from kbslurm.errors import NotFound
from kbslurm_bot import cards
from kbslurm_bot.commands.completions import complete_board, complete_gpus, complete_own
from kbslurm_bot.interactions import Asked, board_of, bot_of, roles_of
from kbslurm_bot.text import fitting

PLACES = 20
BOARDS = 20
CASES = 12
ABOUT = 700

leaderboard = app_commands.Group(name="leaderboard", description="Boards: list, standings, submit")


@leaderboard.command(name="list", description="List the boards, with deadline and GPU types")
async def list_(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await bot_of(interaction).service.boards(interaction.user.id, roles_of(interaction))
    lines = [board_line(board) for board in found[:BOARDS]]
    if len(found) > BOARDS:
        lines.append(f"-# and {len(found) - BOARDS} more")
    await interaction.followup.send(fitting(lines) or "There are no boards yet.", ephemeral=True)


@leaderboard.command(name="show", description="Show the top places of a board")
@app_commands.describe(leaderboard="The board", gpu="One GPU type (default: the board's first)")
@app_commands.autocomplete(leaderboard=complete_board, gpu=complete_gpus)
async def show(interaction: Asked, leaderboard: str, gpu: str | None = None) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    board = await board_of(interaction, leaderboard)
    known = known_gpu(gpu, board.gpus) if gpu else board.gpus[0]
    service, user = bot_of(interaction).service, interaction.user
    places = await service.for_user(
        user.id, user.display_name, lambda client: client.ranking(board.name, known, limit=PLACES)
    )
    await interaction.followup.send(fitting(places_told(board.name, known, places)), ephemeral=True)


@leaderboard.command(name="task", description="Show a board's task: description, cases, limits")
@app_commands.describe(leaderboard="The board")
@app_commands.autocomplete(leaderboard=complete_board)
async def task(interaction: Asked, leaderboard: str) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    board = await board_of(interaction, leaderboard)
    await interaction.followup.send(fitting(task_told(board)), ephemeral=True)


@leaderboard.command(name="template", description="Get a template to start from")
@app_commands.describe(leaderboard="The board")
@app_commands.autocomplete(leaderboard=complete_board)
async def template(interaction: Asked, leaderboard: str) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    board = await board_of(interaction, leaderboard)
    templates = board.task.get("templates") or {}
    if not templates:
        raise NotFound("template of board", board.name)
    files = [
        discord.File(io.BytesIO(str(text).encode()), filename=_file_name(board, language))
        for language, text in list(templates.items())[:10]
    ]
    await interaction.followup.send(f"A template for {cards.escaped(board.name)}.", files=files, ephemeral=True)


@leaderboard.command(name="get-submission", description="Show one of your submissions")
@app_commands.describe(submission="Its number")
@app_commands.autocomplete(submission=complete_own)
async def get_submission(interaction: Asked, submission: app_commands.Range[int, 1, 2**53]) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    service, user = bot_of(interaction).service, interaction.user
    full = await service.for_user(user.id, user.display_name, lambda client: client.full_submission(submission))
    lines = cards.lines(cards.Shown(full=full, owner=user.id, contexts=await service.score_contexts(user.id, full)))
    source = str(full["submission"]["source"] or "")
    files = (
        [discord.File(io.BytesIO(source.encode("utf-8", "replace")), filename=f"{submission}.txt")] if source else []
    )
    await interaction.followup.send(fitting(lines), files=files, ephemeral=True)


def board_line(board: BoardInfo) -> str:
    """A board in one line."""
    ends = "no deadline" if board.deadline is None else cards.deadline(board.deadline, board.zone)
    state = ends if board.is_open else "closed"
    closed = "" if board.visibility == "public" else " · private"
    return f"**{cards.escaped(board.name)}** · {', '.join(map(cards.escaped, board.gpus))} · {state}{closed}"


def places_told(board: str, gpu: str, places: list[StandingInfo]) -> list[str]:
    """The top places as a fixed-width table; ties within measurement error are marked."""
    head = f"**{cards.escaped(board)}** on {cards.escaped(gpu)}"
    if not places:
        return [head, "Nobody has ranked yet."]
    rows = [f"{one.rank:>3}{'=' if one.tied_with else ' '} {_time(one):<22} {_cell(one.person)}" for one in places]
    return [head, "```", *rows, "```"]


def _time(one: StandingInfo) -> str:
    return score(one.score_s, one.low_s, one.high_s, ranked=True)


def task_told(board: BoardInfo) -> list[str]:
    """The task, as far as a competitor may know it."""
    told = board.task
    lines = [board_line(board), *about_told(board.description or "")]
    limits = ", ".join(f"{name} {told[key]:g} s" for name, key in LIMITS if told.get(key))
    lines += [f"-# language {told.get('lang')} · ranked by {told.get('ranking_by')} · limits: {limits}"]
    for name in ("tests", "benchmarks"):
        cases = list(told.get(name) or ())
        lines += [f"**{name}**", "```"]
        lines += [_cell("; ".join(f"{key}: {value}" for key, value in case.items()), 90) for case in cases[:CASES]]
        lines += [f"and {len(cases) - CASES} more"] if len(cases) > CASES else []
        lines += ["```"]
    return lines


def about_told(text: str) -> list[str]:
    """The description's lines, cut so that the cases have room."""
    if len(text) > ABOUT:
        text = f"{text[:ABOUT].rstrip()}…"
    return [cards.escaped(line) for line in text.splitlines() if line.strip()]


LIMITS = (("test", "test_timeout"), ("benchmark", "benchmark_timeout"), ("ranked", "ranked_timeout"))


def _cell(text: str, width: int = 32) -> str:
    """Text inside a code block, made unable to close it."""
    return " ".join(text.replace("`", "'").split())[:width]


def _file_name(board: BoardInfo, language: str) -> str:
    ending = {"python": "py", "py": "py", "triton": "py", "cuda": "cu", "cu": "cu", "hip": "hip", "cpp": "cpp"}
    return f"{board.name}-{language}.{ending.get(language.lower(), 'txt')}".replace(" ", "-").lower()
