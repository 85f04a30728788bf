"""Errors as one sentence for the person who asked, or in the log if Discord no longer accepts an answer."""

from __future__ import annotations

import contextlib
from typing import Any

import discord

from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured
from kbslurm.observe.logs import teller
from kbslurm_bot import cards
from kbslurm_bot.discord_messages import DiscordMessages
from kbslurm_bot.messages import Gone
from kbslurm_bot.text import sentence

tell = teller("bot")
# Discord's codes for an interaction that has been answered, and for one that has expired.
TAKEN, DEAD = 40060, (10015, 10062, 50027)


async def say_failure(interaction: discord.Interaction[Any], error: BaseException) -> None:
    """Send one sentence to the person who asked, or log it if Discord no longer accepts an answer."""
    if isinstance(error, discord.HTTPException):
        if await _not_taken(interaction, error):
            return
        text = "Discord rejected the answer; your command may have worked. Check before you repeat it."
        tell("Discord has a problem", level="warning", why=str(error))
    elif isinstance(error, KbslurmError):
        text = sentence(error)
        if isinstance(error, BackendTrouble | Misconfigured):
            await interaction.client.alarm(f"Someone was told: {cards.escaped(text)}")
    else:
        tell("a bug", level="error", why=repr(error), interaction=interaction.id)
        text = f"This is a bug in kbslurm. Tell a host: interaction {interaction.id} in the bot's log has the details."
        await interaction.client.alarm(f"A bug in the bot: {cards.escaped(repr(error))}")
    await _said(interaction, text)


async def _not_taken(interaction: discord.Interaction[Any], error: discord.HTTPException) -> bool:
    """Whether Discord accepts no answer to this: it is too late, or someone else has answered."""
    if error.code == TAKEN:
        tell("another bot is using our token", level="warning", interaction=interaction.id)
        await interaction.client.alarm("Two bots are running with one token: stop one of them.")
        return True
    if error.code in DEAD:
        tell("an answer was lost", level="warning", why=str(error), interaction=interaction.id)
        if not interaction.response.is_done() and interaction.channel_id is not None:
            who = f"<@{interaction.user.id}>"
            said = f"-# {who} · My answer was too late for Discord, so nothing was done. Please try again."
            with contextlib.suppress(Gone, discord.HTTPException):
                nonce = f"late-{interaction.id}"
                note = cards.note(said, cards.GREY)
                await DiscordMessages(interaction.client).post(interaction.channel_id, note, nonce)
        return True
    return False


async def _said(interaction: discord.Interaction[Any], text: str) -> None:
    try:
        if interaction.response.is_done():
            await interaction.followup.send(text[:2000], ephemeral=True)
        else:
            await interaction.response.send_message(text[:2000], ephemeral=True)
    except discord.HTTPException as failed:
        tell("an answer was lost", level="warning", why=str(failed))
