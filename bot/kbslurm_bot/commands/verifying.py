"""`/verifyruns` and `/verifydb`: hosts check that every board's runs work at every place, and how the database is."""

from __future__ import annotations

from functools import partial

from discord import app_commands

from kbslurm.client.answers import BoardInfo, Verifying
from kbslurm.client.http import Client
from kbslurm.domain.amounts import counted, span
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm_bot import cards, confirm
from kbslurm_bot.commands.admin import HOSTS_ONLY
from kbslurm_bot.commands.completions import complete_every_place
from kbslurm_bot.commands.run import Try, boards_shown, followed_in
from kbslurm_bot.interactions import Asked, as_asker, bot_of
from kbslurm_bot.live_cards import NOBODY
from kbslurm_bot.service import Away
from kbslurm_bot.text import fitting, sentence

MOST = 20  # each gets a message of its own


@app_commands.command(
    name="verifyruns", description="For hosts: run a known-correct kernel on every open board, at every place"
)
@app_commands.describe(
    leaderboards="Only these boards, separated by commas (default: all open ones)",
    mode="test (default) or benchmark",
    backend="Only at this place",
)
@app_commands.autocomplete(backend=complete_every_place)
@app_commands.default_permissions(HOSTS_ONLY)
async def verifyruns(
    interaction: Asked, leaderboards: str | None = None, mode: Try = "test", backend: str | None = None
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    await as_asker(interaction, Client.overview)  # whoever isn't a host is told that first
    channel = followed_in(interaction)
    chosen = _chosen(await boards_shown(interaction), leaderboards)

    async def verify(pressed: Asked) -> str:
        return await _ordered(pressed, chosen, mode, backend, channel)

    names = ", ".join(cards.escaped(one.name) for one in chosen)
    where = f"at {cards.escaped(backend)}" if backend else "at every place that has its GPU types"
    question = f"Run a known-correct kernel on {counted(len(chosen), 'board')} ({names}), {where}?"
    await confirm.ask(interaction, question[:1900], "Verify", verify)


def _chosen(known: list[BoardInfo], text: str | None) -> list[BoardInfo]:
    """The boards that were named, or all open ones."""
    if text is None:
        found = [one for one in known if one.is_open]
    else:
        by_name = {one.name: one for one in known}
        words = [word.strip().lower() for word in text.split(",") if word.strip()]
        for word in words:
            if word not in by_name:
                raise NotFound("public board", word, known=list(by_name))
        found = [by_name[word] for word in dict.fromkeys(words)]
    if not found:
        raise Invalid("there is no open board to verify", hint="Name the boards.")
    if len(found) > MOST:
        raise Invalid(f"{len(found)} boards are too many at once", hint=f"Name at most {MOST} of them.")
    return found


def _verified(board: str, mode: Try, backend: str | None, client: Client) -> Verifying:
    return client.verify(board, [], mode, on=backend)


async def _ordered(interaction: Asked, boards: list[BoardInfo], mode: Try, backend: str | None, channel: int) -> str:
    here, done, lines = bot_of(interaction), 0, []
    for board in boards:
        try:
            told = await as_asker(interaction, partial(_verified, board.name, mode, backend))
        except Away:
            raise
        except KbslurmError as error:  # one board without a canary doesn't keep the others from theirs
            lines.append(f"**{cards.escaped(board.name)}**: {cards.escaped(sentence(error))}")
            continue
        here.live_cards.add(told.submission_id, channel, NOBODY, also=told.submission_ids)
        done += 1
    return fitting([f"Verifying on {counted(done, 'board')}; <#{channel}> follows them.", *lines])


@app_commands.command(
    name="verifydb", description="For hosts: check the database: its schema, the leader, how late it is, the last event"
)
@app_commands.default_permissions(HOSTS_ONLY)
async def verifydb(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await as_asker(interaction, Client.database)
    event = found["last_event"]
    lag = "" if found["lag_s"] is None else f", its lease renewed {span(found['lag_s'])} ago"
    lines = [
        "✗ The database needs attention." if found["troubles"] else "✓ The database is fine.",
        f"Schema {found['revision']} is {found['schema']}.",
        f"{found['server']}, {found['size_bytes'] / 1e6:.1f} MB, answers in {found['round_trip_ms']:g} ms.",
        f"Leader: {cards.escaped(found['leader'] or 'none')}{lag}.",
        f"Last event: {event['kind']} (number {event['id']}), {span(event['age_s'])} ago."
        if event
        else "There is no event yet.",
        *(f"⚠ {cards.escaped(one)}" for one in found["troubles"]),
    ]
    await interaction.followup.send(fitting(lines), ephemeral=True)
