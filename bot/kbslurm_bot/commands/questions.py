"""`/ask` and `/answers`: questions to the hosts, appeals, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from discord import app_commands

from kbslurm.domain.questions import TEXT_CAP, outcome_in_words
from kbslurm.errors import Invalid
from kbslurm_bot import cards
from kbslurm_bot.commands.completions import complete_board, complete_own
from kbslurm_bot.interactions import Asked, board_of, bot_of
from kbslurm_bot.text import fitting

LINES = 10


@app_commands.command(name="ask", description="Ask the hosts about a board or a submission of yours, or appeal")
@app_commands.describe(
    text="The question; only you and the hosts see it",
    leaderboard="The board that it is about",
    submission="The submission of yours that it is about",
    appeal="Ask for the submission to be judged again",
)
@app_commands.autocomplete(leaderboard=complete_board)
@app_commands.autocomplete(submission=complete_own)
async def ask(
    interaction: Asked,
    text: app_commands.Range[str, 1, TEXT_CAP],
    leaderboard: str | None = None,
    submission: app_commands.Range[int, 1, 2**53] | None = None,
    appeal: bool = False,
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    if leaderboard is None and submission is None:
        raise Invalid("it isn't clear what the question is about", hint="Choose a board or a submission.")
    board = (await board_of(interaction, leaderboard)).name if leaderboard else None
    service, user = bot_of(interaction).service, interaction.user
    found = await service.for_user(
        user.id,
        user.display_name,
        lambda client: client.ask(text, board=board, submission=submission, appeal=appeal),
    )
    what = "Appeal" if found["appeal"] else "Question"
    await interaction.followup.send(
        f"{what} {found['id']} is sent to the hosts; `/answers` shows what they say.", ephemeral=True
    )


@app_commands.command(name="answers", description="Show your questions to the hosts, and their answers")
async def answers(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    service, user = bot_of(interaction).service, interaction.user
    found = await service.for_user(user.id, user.display_name, lambda client: client.own_questions(limit=LINES))
    rows = [line for one in found for line in question_lines(one)]
    await interaction.followup.send(fitting(rows or ["No questions yet. Ask one with `/ask`."]), ephemeral=True)


def question_lines(one: Mapping[str, Any]) -> list[str]:
    """One's own question with its answer."""
    about = f" · submission {one['submission']}" if one["submission"] is not None else ""
    at = cards.when(datetime.fromisoformat(one["asked_at"]), "R")
    lines = [f"`#{one['id']}` {cards.escaped(one['leaderboard'])}{about} · {one['state']} · {at}"]
    lines.append(f"> {cards.escaped(one['text'][:300])}")
    lines += [f"Judged again: {cards.escaped(outcome_in_words(changed))}" for changed in one["outcome"] or ()]
    if one["answer"] is not None:
        lines.append(f"{'To everyone' if one['to_all'] else 'To you'}: {cards.escaped(one['answer'][:600])}")
    return lines
