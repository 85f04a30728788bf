"""`/ping`, `/help` and `/leaderboard help`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from discord import app_commands

from kbslurm.errors import KbslurmError
from kbslurm_bot.interactions import PATIENCE_S, Asked, bot_of, may
from kbslurm_bot.text import fitting

HOSTS_WORDS = ("admin", "verify", "verifyruns", "verifydb")


@app_commands.command(name="ping", description="Are the bot and the service up?")
async def ping(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    here = bot_of(interaction)
    try:
        async with asyncio.timeout(5 * PATIENCE_S):
            await here.service.ask(lambda client: client.check())
        service = "up"
    except (KbslurmError, TimeoutError):
        service = "not reachable; accepted submissions go on"
    delay = here.latency
    shown = f"{delay * 1000:.0f} ms" if delay < float("inf") else "not measured yet"
    await interaction.followup.send(f"Pong. Discord: {shown}. The service: {service}.", ephemeral=True)


@app_commands.command(name="help", description="List the commands")
async def help_(interaction: Asked) -> None:
    await listed(interaction)


@app_commands.command(name="help", description="List the commands, like /help")
async def help_there(interaction: Asked) -> None:
    await listed(interaction)


async def listed(interaction: Asked) -> None:
    """Every command that the person may use."""
    await interaction.response.defer(ephemeral=True, thinking=True)
    try:
        async with asyncio.timeout(5 * PATIENCE_S):
            rights = await may(interaction)
        shown = {None} | ({"host", "creator"} if rights.host else {"creator"} if rights.creator else set())
    except (KbslurmError, TimeoutError):
        shown = {None}
    lines: dict[bool, list[str]] = {False: [], True: []}
    here = bot_of(interaction)
    for one in sorted(here.tree.walk_commands(guild=here.only_guild()), key=lambda one: one.qualified_name):
        if isinstance(one, app_commands.Command) and audience(one) in shown:
            lines[audience(one) is not None].append(f"`/{one.qualified_name}` {one.description}")
    for told in lines.values():
        if told:
            await interaction.followup.send(fitting(told), ephemeral=True)


def audience(command: app_commands.Command[Any, ..., Any]) -> Literal["host", "creator"] | None:
    """Who may use a command, if not everyone."""
    name = command.qualified_name
    if name == "leaderboard create":
        return "creator"
    return "host" if name.split()[0] in HOSTS_WORDS or name == "leaderboard delete" else None
