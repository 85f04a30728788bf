"""A message that mentions the bot and brings a file: submitted like `/submit`.

Discord shows a bot the text and the files of a message only if it mentions the bot or is sent to it directly, so this
needs no privileged intent. Nothing else of a message is read, and none is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

import discord

from kbslurm.client.errors import ServerGone
from kbslurm.domain import access
from kbslurm.domain.source import directives
from kbslurm.errors import (
    BackendTrouble,
    Invalid,
    KbslurmError,
    Misconfigured,
    NotAccepting,
    Refused,
    Unauthenticated,
)
from kbslurm.observe.logs import teller
from kbslurm_bot import cards, menus
from kbslurm_bot.commands.submit import fetched
from kbslurm_bot.confirm import Questions
from kbslurm_bot.interactions import Bot
from kbslurm_bot.permissions import missing_here
from kbslurm_bot.text import sentence

tell = teller("bot")
MODE = "leaderboard"
EXPIRED = "This menu has expired; mention me again with the file."


class Here(Bot, Protocol):
    """The parts of the bot that a message needs."""

    menus: Questions[menus.Choose]

    @property
    def user(self) -> discord.ClientUser | None: ...
    async def alarm(self, text: str, *, about: str = "") -> None: ...


def is_for(bot: discord.ClientUser | None, message: discord.Message) -> bool:
    """Whether a person sent this to the bot, with a file."""
    if bot is None or message.author.bot or message.webhook_id is not None or not message.attachments:
        return False
    if message.guild is None:
        return True
    # Discord also counts whoever is replied to as mentioned. A file in a reply to one of our cards is talk about the
    # card, unless its text asks us too.
    is_named = re.search(rf"<@!?{bot.id}>", message.content) is not None
    return is_named and any(one.id == bot.id for one in message.mentions)


async def heard(client: Here, message: discord.Message) -> None:
    """Submit its file, or say in one sentence why not."""
    if not is_for(client.user, message):
        return
    if lacks := _lacking(message):
        tell("a mention can't be answered", level="warning", channel=str(message.channel.id), missing=", ".join(lacks))
        return
    try:
        await _submitted(client, message)
    except KbslurmError as error:
        if isinstance(error, BackendTrouble | Misconfigured):
            await client.alarm(f"Someone was told: {cards.escaped(sentence(error))}")
        if message.guild is not None and _is_personal(error):
            await _said_alone(message, sentence(error))
        else:
            await _said(message, sentence(error))
    except discord.HTTPException as error:
        tell("Discord has a problem", level="warning", why=str(error))
    except Exception as error:
        tell("a bug", level="error", why=repr(error), message=message.id)
        await client.alarm(f"A bug in the bot: {cards.escaped(repr(error))}")
        await _said(message, f"This is a bug in kbslurm. Tell a host: message {message.id} in the bot's log.")
        raise


async def _submitted(client: Here, message: discord.Message) -> None:
    if len(message.attachments) > 1:
        raise Invalid("a submission is one file", hint="Attach one file, or a zip of several.")
    (file,) = message.attachments
    source = await fetched(file)
    if directives(source.decode("utf-8", "replace")).leaderboard is not None:
        await _hand_in(client, message, None, file.filename, source)
        return
    user = message.author
    # In a channel everybody reads the menu: it has what everybody may see.
    seen = await client.service.boards(user.id)
    shown = [one for one in seen if message.guild is None or access.is_for_everybody(one.visibility)]
    names = [one.name for one in shown if one.is_open]
    if not names:
        raise NotAccepting(
            "there is no open leaderboard to choose from here", hint="Begin the file with #!POPCORN leaderboard NAME."
        )

    async def choose(interaction: discord.Interaction[Any], chosen: Sequence[str]) -> str:
        again = await fetched(file)  # not kept meanwhile: many may be asked, and few choose
        number = await _hand_in(client, message, chosen[0], file.filename, again)
        return f"Submission {number} is accepted; its card in this channel follows it."

    async def send(view: discord.ui.View) -> discord.Message:
        more = "" if len(names) <= menus.MOST else f" These are {menus.MOST} of {len(names)}; `/submit` knows them all."
        text = f"<@{user.id}> Which leaderboard is {cards.escaped(file.filename)} for?{more}"
        return await message.channel.send(text, view=view)

    await menus.offer(
        client, user.id, send, names, choose, placeholder="Choose a leaderboard", expired=EXPIRED
    )  # fmt: skip


async def _hand_in(client: Here, message: discord.Message, board: str | None, file_name: str, source: bytes) -> int:
    user = message.author
    # Discord may deliver a message twice; its number says that it is the same.
    key = f"discord-{message.id}"
    try:
        receipt = await client.service.for_user(
            user.id,
            user.display_name,
            lambda service: service.submit_to_many(board, [], MODE, file_name, source, key=key),
        )
    except ServerGone as error:
        error.hint = "Your file may have been accepted: check `/me` before you submit again."
        raise
    client.live_cards.add(receipt.submission_id, message.channel.id, user.id, None)
    return receipt.submission_id


def _lacking(message: discord.Message) -> list[str]:
    """The permissions that a card needs and the bot lacks in the message's channel."""
    if message.guild is None:
        return []
    allowed = message.channel.permissions_for(message.guild.me)
    in_thread = isinstance(message.channel, discord.Thread)
    return [name for name in missing_here(allowed, in_thread=in_thread) if name != "Attach Files"]


def _is_personal(error: KbslurmError) -> bool:
    """Whether a refusal may tell what others needn't know: a ban and its reason, a quota, a deadline of one's own.
    What is wrong with a file, a board's name or the service isn't about anybody."""
    return isinstance(error, Refused | Unauthenticated) and not isinstance(error, NotAccepting)


async def _said_alone(message: discord.Message, text: str) -> None:
    """Tell the author by direct message; where those are closed, only where they can ask for it."""
    try:
        await message.author.send(f"Your file wasn't submitted ({message.jump_url}). {text}"[:2000])
    except discord.HTTPException as failed:
        tell("a direct message wasn't taken", level="warning", why=str(failed))
        await _said(
            message, "Your file wasn't submitted, and I can't send you a direct message. `/submit` tells you why."
        )


async def _said(message: discord.Message, text: str) -> None:
    try:
        await message.channel.send(f"<@{message.author.id}> {text}"[:2000])
    except discord.HTTPException as failed:
        tell("an answer was lost", level="warning", why=str(failed))
