"""`/admin …` and `/leaderboard delete`: the hosts' commands. The service decides who is a host, at each call and each
press.

Discord hides the group from most people, but nothing relies on that. Only the person who asked sees the answer.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import discord
from discord import app_commands

from kbslurm.client.answers import BoardInfo, PersonInfo
from kbslurm.client.http import Client
from kbslurm.domain import contest, places
from kbslurm.errors import TooLarge
from kbslurm_bot import cards, confirm
from kbslurm_bot.commands.admin_text import rejudging_told, stats_told, submission_told, synced_told
from kbslurm_bot.commands.boards import leaderboard as boards
from kbslurm_bot.commands.completions import complete_board, complete_people
from kbslurm_bot.interactions import Asked, as_asker, bot_of
from kbslurm_bot.text import fitting

EXPORT_CAP = 8_000_000
CODES_SHOWN = 20
Format = Literal["csv", "json"]
Category = Literal["test", "leaderboard"]
Visibility = Literal["public", "private"]
_MENTION = re.compile(r"<@!?([0-9]{1,20})>")
PERSON = "A name, a mention, person:ID, discord:ID or github:ID"
Number = app_commands.Range[int, 1, 2**53]

HOSTS_ONLY = discord.Permissions(manage_guild=True)
group = app_commands.Group(name="admin", description="For hosts", default_permissions=HOSTS_ONLY)


@group.command(name="start", description="Accept submissions again")
async def start(interaction: Asked) -> None:
    await _switched(interaction, True)


@group.command(name="stop", description="Pause submissions, even across restarts; accepted ones still run")
async def stop(interaction: Asked) -> None:
    await _switched(interaction, False)


async def _switched(interaction: Asked, accepting: bool) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    is_on = await as_asker(interaction, lambda client: client.set_accepting(accepting))
    await _say(interaction, "Submissions are accepted." if is_on else "Submissions are paused until `/admin start`.")


@group.command(name="ban", description="Ban a person: reject their submissions and hide them from every board")
@app_commands.describe(person=PERSON, reason="The reason shown to the person")
@app_commands.autocomplete(person=complete_people)
async def ban(interaction: Asked, person: str, reason: app_commands.Range[str, 0, 200] = "") -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await _person(interaction, person)
    name = cards.escaped(found.name)

    async def act(pressed: Asked) -> str:
        await as_asker(pressed, lambda client: client.set_ban(f"person:{found.id}", True, reason))
        return f"{name} (person {found.id}) is banned; `/admin unban` lifts that."

    await confirm.ask(interaction, f"Ban **{name}** ({found.role}, person {found.id})?", "Ban", act)


@group.command(name="unban", description="Lift a ban")
@app_commands.describe(person=PERSON)
@app_commands.autocomplete(person=complete_people)
async def unban(interaction: Asked, person: str) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await _person(interaction, person)
    await as_asker(interaction, lambda client: client.set_ban(f"person:{found.id}", False))
    await _say(interaction, f"{cards.escaped(found.name)} (person {found.id}) may submit again.")


@group.command(name="extend", description="Give one person a deadline extension on a board")
@app_commands.describe(
    leaderboard="The board", person=PERSON, until="2026-12-24 18:00 in the board's time zone; empty removes it"
)
@app_commands.autocomplete(leaderboard=complete_board, person=complete_people)
async def extend(interaction: Asked, leaderboard: str, person: str, until: str | None = None) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await _person(interaction, person)
    await as_asker(interaction, lambda client: client.extend(leaderboard, f"person:{found.id}", until))
    what = (
        f"may submit to {cards.escaped(leaderboard)} until {cards.escaped(until)}"
        if until
        else "no longer has an extension"
    )
    await _say(interaction, f"{cards.escaped(found.name)} {what}.")


@group.command(name="invite", description="Invitations to private boards, one per person")
@app_commands.describe(leaderboards="Boards, with commas between", count="How many (default: 1)")
@app_commands.autocomplete(leaderboards=complete_board)
async def invite(interaction: Asked, leaderboards: str, count: app_commands.Range[int, 1, 10_000] = 1) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    named = [one.strip() for one in leaderboards.split(",") if one.strip()]
    codes = await as_asker(interaction, lambda client: client.invite(named, count))
    head = (
        f"{len(codes)} to {', '.join(map(cards.escaped, named))}; each opens them to one person: `popcorn join CODE`."
    )
    if len(codes) <= CODES_SHOWN:
        await _say(interaction, "\n".join([head, "```", *codes, "```"]))
    else:
        await _say(interaction, head, ("invitations.txt", "\n".join(codes) + "\n"))


@group.command(name="get-submission", description="Show anyone's submission, with source and logs")
@app_commands.describe(submission="Its number")
async def get_submission(interaction: Asked, submission: Number) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await as_asker(interaction, lambda client: client.any_submission(submission))
    files = [
        (f"{submission}{end}.txt", str(found[key]))
        for key, end in (("code", ""), ("log", "-log"), ("secret_log", "-hidden-log"))
        if found[key]
    ]
    await _say(interaction, "\n".join(submission_told(found)), *files)


@group.command(name="delete-submission", description="Delete a submission from every list, with its source")
@app_commands.describe(submission="Its number")
async def delete_submission(interaction: Asked, submission: Number) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    found = await as_asker(interaction, lambda client: client.any_submission(submission))

    async def act(pressed: Asked) -> str:
        await as_asker(pressed, lambda client: client.delete_any(submission))
        return f"Submission {submission} is deleted."

    asked = f"Delete this submission and its source?\n{submission_told(found)[0]}"
    await confirm.ask(interaction, asked, "Delete", act)


@group.command(name="delete", description="Delete a board; with submissions only by force")
@app_commands.describe(leaderboard="The board", force="Even when it has submissions")
@app_commands.autocomplete(leaderboard=complete_board)
async def delete(interaction: Asked, leaderboard: str, force: bool = False) -> None:
    await deleted(interaction, leaderboard, force)


@boards.command(name="delete", description="For hosts: delete a board without submissions")
@app_commands.describe(leaderboard="The board")
@app_commands.autocomplete(leaderboard=complete_board)
async def delete_plainly(interaction: Asked, leaderboard: str) -> None:
    await deleted(interaction, leaderboard, False)


async def deleted(interaction: Asked, leaderboard: str, force: bool) -> None:
    """Ask for confirmation, then delete the board."""
    await interaction.response.defer(ephemeral=True, thinking=True)

    def looked_at(client: Client) -> tuple[BoardInfo, Mapping[str, Any]]:
        client.stats(leaderboard)  # people who aren't hosts are refused first
        found = client.board(leaderboard)
        return found, client.stats(found.name)

    board, counts = await as_asker(interaction, looked_at)
    name = cards.escaped(board.name)

    async def act(pressed: Asked) -> str:
        # By the time of the confirmation, another board may have the name.
        await as_asker(pressed, lambda client: client.delete_board(board.name, force=force, only=board.id))
        return f"Board {name} is deleted."

    asked = f"Delete board **{name}** with {counts['submissions']} submissions by {counts['people']} people?"
    await confirm.ask(interaction, asked, "Delete", act)


@group.command(name="visibility", description="Show a board to everyone, or only to invited people")
@app_commands.describe(leaderboard="The board", visibility="public, or private: only by invitation")
@app_commands.autocomplete(leaderboard=complete_board)
async def visibility_(interaction: Asked, leaderboard: str, visibility: Visibility) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    await as_asker(interaction, lambda client: client.set_visibility(leaderboard, contest.visibility(visibility)))
    await _say(interaction, f"Board {cards.escaped(leaderboard)} is {visibility}.")


@group.command(name="rate-limit", description="Set how many submissions a person may make to a board per hour")
@app_commands.describe(
    leaderboard="The board",
    category="leaderboard: ranked ones; test: all others",
    per_hour="How many (default: no limit)",
)
@app_commands.autocomplete(leaderboard=complete_board)
async def rate_limit(
    interaction: Asked,
    leaderboard: str,
    category: Category,
    per_hour: app_commands.Range[int, 0, 1_000_000] | None = None,
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    await as_asker(interaction, lambda client: client.set_rate_limit(leaderboard, category, per_hour))
    most = "no limit on" if per_hour is None else str(per_hour)
    await _say(interaction, f"Per person per hour: {most} {category} submissions to {cards.escaped(leaderboard)}.")


@group.command(name="update-problems", description="Update boards from a git repository of problems")
@app_commands.describe(
    repository="OWNER/NAME or a URL",
    problem_set="Only this problem set",
    branch="A branch (default: the repository's)",
    force="Also make changed problems live on boards with submissions",
)
async def update_problems(
    interaction: Asked,
    repository: str,
    problem_set: str | None = None,
    branch: str | None = None,
    force: bool = False,
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)

    async def act(asked: Asked) -> str:
        told = await as_asker(
            asked, lambda client: client.update_problems(repository, problem_set, branch=branch, force=force)
        )
        return fitting(synced_told(told))

    if not force:
        await _say(interaction, await act(interaction))
        return
    await as_asker(interaction, Client.overview)  # refuses people who aren't hosts before asking anything
    question = f"Make everything in {cards.escaped(repository)} live, even on boards with submissions?"
    await confirm.ask(interaction, question, "Make it live", act)


@group.command(name="rejudge-preview", description="Judge runs again and preview the new verdicts; nothing counts yet")
@app_commands.describe(
    leaderboard="The board",
    chosen="Which runs: gpu=H100 verdict=wrong mode=… person=… submission=… (default: all)",
    version="The problem version to judge by (default: the live one)",
)
@app_commands.rename(chosen="filter")
@app_commands.autocomplete(leaderboard=complete_board)
async def rejudge_preview(
    interaction: Asked, leaderboard: str, chosen: str = "", version: Number | None = None
) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    told = await as_asker(interaction, lambda client: client.rejudge_preview(leaderboard, chosen.split(), version))
    await _say(interaction, fitting(rejudging_told(told)))


@group.command(name="export", description="Export a board's standings as a file, with unrounded scores")
@app_commands.describe(leaderboard="The board", form="csv (default) or json")
@app_commands.rename(form="format")
@app_commands.autocomplete(leaderboard=complete_board)
async def export(interaction: Asked, leaderboard: str, form: Format = "csv") -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    rows = await as_asker(interaction, lambda client: client.places(leaderboard))
    text = places.as_csv(rows) if form == "csv" else json.dumps(rows, indent=2) + "\n"
    cap = min(EXPORT_CAP, interaction.filesize_limit or EXPORT_CAP)
    if (size := len(text.encode())) > cap:
        raise TooLarge(
            f"the export has {size:,} bytes, over the limit of {cap:,}",
            hint=f"Run on the server: kbslurm export {leaderboard}",
        )
    name = re.sub(r"[^a-z0-9._-]", "-", leaderboard.lower())[:60]
    await _say(interaction, f"{len(rows)} places of {cards.escaped(leaderboard)}.", (f"{name}.{form}", text))


@group.command(name="show-stats", description="Count submissions, people, verdicts and GPU time, of one board or all")
@app_commands.describe(leaderboard="Only this board", last_day="Only the last 24 hours")
@app_commands.autocomplete(leaderboard=complete_board)
async def show_stats(interaction: Asked, leaderboard: str | None = None, last_day: bool = False) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    counts, seen = await as_asker(
        interaction, lambda client: (client.stats(leaderboard, last_day=last_day), client.overview())
    )
    of = f"**{cards.escaped(leaderboard)}**" if leaderboard else "**All boards**"
    await _say(interaction, fitting([f"{of}{', last 24 hours' if last_day else ''}", *stats_told(counts, seen)]))


@group.command(name="resync", description="Register all commands with Discord again, and clear another bot's leftovers")
async def resync(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    await as_asker(interaction, Client.resync)
    count = await bot_of(interaction).synced_anew(interaction.guild_id)
    await _say(interaction, f"{count} commands registered again. If you see old ones, reload your client.")


async def _person(interaction: Asked, text: str) -> PersonInfo:
    mention = _MENTION.fullmatch(text.strip())
    whom = f"discord:{mention[1]}" if mention else text.strip()
    return await as_asker(interaction, lambda client: client.person(whom))


async def _say(interaction: Asked, text: str, *files: tuple[str, str]) -> None:
    sent = [discord.File(io.BytesIO(body.encode("utf-8", "replace")), filename=name) for name, body in files]
    await interaction.followup.send(text[:2000], files=sent, ephemeral=True)
