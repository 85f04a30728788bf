"""What went wrong, as one sentence for whoever asked; where Discord takes no answer any more, in the log."""

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
# Discord's codes for an interaction that has been answered, and for one that can't be any more.
TAKEN, DEAD = 40060, (10015, 10062, 50027)


async def say_failure(interaction: discord.Interaction[Any], error: BaseException) -> None:
    """One sentence, for the one who asked; where Discord takes no answer any more, in the log."""
    if isinstance(error, discord.HTTPException):
        if await _not_taken(interaction, error):
            return
        text = "Discord didn't take the answer; what you asked for may have been done. Look before you ask again."
        tell("Discord is in trouble", level="warning", why=str(error))
    elif isinstance(error, KbslurmError):
        text = sentence(error)
        if isinstance(error, BackendTrouble | Misconfigured):
            await interaction.client.alarm(f"Somebody was told: {cards.escaped(text)}")
    else:
        tell("a bug", level="error", why=repr(error), interaction=interaction.id)
        text = f"A bug of ours. Tell a host: interaction {interaction.id} in the bot's log says more."
        await interaction.client.alarm(f"A bug of the bot's: {cards.escaped(repr(error))}")
    await _said(interaction, text)


async def _not_taken(interaction: discord.Interaction[Any], error: discord.HTTPException) -> bool:
    """Whether Discord wants no answer to this: it came too late, or somebody else has given one."""
    if error.code == TAKEN:
        tell("another bot answers with our token", level="warning", interaction=interaction.id)
        await interaction.client.alarm("Two bots run with one token: end one of them.")
        return True
    if error.code in DEAD:
        tell("an answer was lost", level="warning", why=str(error), interaction=interaction.id)
        if not interaction.response.is_done() and interaction.channel_id is not None:
            who = f"<@{interaction.user.id}>"
            said = f"-# {who} · Discord took my answer as too late, so nothing was done. Please do it again."
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
