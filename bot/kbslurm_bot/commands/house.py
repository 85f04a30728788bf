"""`/ping` and `/help`."""

from __future__ import annotations

import asyncio

from discord import app_commands

from kbslurm.errors import KbslurmError
from kbslurm_bot.commands.asking import PATIENCE_S, Asked, face


@app_commands.command(name="ping", description="Are the bot and the service up?")
async def ping(interaction: Asked) -> None:
    await interaction.response.defer(ephemeral=True, thinking=True)
    here = face(interaction)
    try:
        async with asyncio.timeout(5 * PATIENCE_S):
            await here.voice.ask(lambda client: client.check())
        service = "up"
    except (KbslurmError, TimeoutError):
        service = "not reachable; what was accepted goes on"
    delay = here.latency
    shown = f"{delay * 1000:.0f} ms" if delay < float("inf") else "not measured yet"
    await interaction.followup.send(f"Pong. Discord: {shown}. The service: {service}.", ephemeral=True)


@app_commands.command(name="help", description="What can be typed here")
async def help_(interaction: Asked) -> None:
    lines = []
    for one in sorted(face(interaction).tree.walk_commands(), key=lambda one: one.qualified_name):
        if isinstance(one, app_commands.Command):
            lines.append(f"`/{one.qualified_name}` {one.description}")
    await interaction.response.send_message("\n".join(lines)[:2000], ephemeral=True)
