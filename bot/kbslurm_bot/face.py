"""The bot as Discord knows it: one connection, its commands, its buttons, and the cards on its desk.

It asks for no privileged intent: commands and buttons come to it by themselves, messages of people never do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import discord
import yarl
from discord import app_commands
from discord.http import Route

from kbslurm.client.answers import FeedEvent
from kbslurm.errors import BackendTrouble, KbslurmError, Misconfigured
from kbslurm.observe.logs import teller
from kbslurm_bot import cards, commands
from kbslurm_bot.alarms import Alarms
from kbslurm_bot.announce import Crier
from kbslurm_bot.buttons import BUTTONS
from kbslurm_bot.desk import Desk, Gone, NoFiles, Shelved, follow
from kbslurm_bot.memory import Memory
from kbslurm_bot.rights import invite_url, missing_here
from kbslurm_bot.settings import Settings
from kbslurm_bot.sure import Questions, Sure
from kbslurm_bot.voice import Voice, sentence

tell = teller("bot")
SYNCED = "commands"
# Discord's codes for an interaction that has been answered, and for one that can't be any more.
TAKEN, DEAD = 40060, (10015, 10062, 50027)
SERVERS_LOOKS, SERVERS_GAP_S = 150, 0.2  # so long after everything else Discord may tell of a server
ARCHIVED = 50083  # a thread that must be opened again first


def _is_away(guild: discord.Guild) -> bool:
    """Whether nothing but its number is known of this server yet."""
    return guild.unavailable or guild.me is None


def connect_to(settings: Settings) -> None:
    """Where Discord is, for this process."""
    Route.BASE = settings.api_url
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(settings.gateway_url)


class Tree(app_commands.CommandTree["Face"]):
    """Commands whose every failure is one sentence for whoever typed it."""

    async def on_error(self, interaction: discord.Interaction[Face], error: app_commands.AppCommandError) -> None:
        await say_failure(interaction, getattr(error, "original", error))


class Face(discord.Client):
    """One for a process. `settings` say where everything is; `memory` and `voice` are closed by whoever made them."""

    def __init__(self, settings: Settings, memory: Memory, voice: Voice, **more: Any) -> None:
        super().__init__(
            intents=discord.Intents(guilds=True),
            allowed_mentions=discord.AllowedMentions.none(),
            proxy=settings.proxy,
            **more,
        )
        self.settings, self.memory, self.voice = settings, memory, voice
        self.desk = Desk(memory, voice, Pinboard(self))
        self.tree = Tree(self)
        self.questions = Questions()
        self._tasks: list[asyncio.Task[None]] = []
        link = f"\n{settings.public_url}/staff" if settings.public_url else ""
        self.alarms = Alarms(Pinboard(self), settings.staff_channel, link)
        self._raising: set[asyncio.Task[None]] = set()
        for one in commands.ALL:
            self.tree.add_command(one)

    async def setup_hook(self) -> None:
        self.add_dynamic_items(*BUTTONS, Sure)
        await self._sync()
        self.desk.start()
        listeners: list[Callable[[FeedEvent], None]] = []
        if self.settings.channel is not None:
            crier = Crier(self.memory, self.voice, Pinboard(self), self.settings.channel)
            listeners.append(crier.heard)
            self._tasks.append(asyncio.create_task(crier.run(), name="announcements"))
        if self.settings.staff_channel is not None:
            listeners.append(self._operators)
        self._tasks.append(asyncio.create_task(follow(self.voice, self.desk, *listeners), name="feed"))

    async def _sync(self) -> None:
        """Tell Discord of the commands, but only when they have changed: it counts how often it is told."""
        payload = [one.to_dict(self.tree) for one in self.tree.get_commands()]
        told = json.dumps([self.application_id, payload], sort_keys=True, default=str)
        digest = hashlib.sha256(told.encode()).hexdigest()
        if self.memory.word(SYNCED) != digest:
            await self.tree.sync()
            self.memory.keep(SYNCED, digest)
            tell("commands synced", commands=len(payload))

    async def synced_anew(self, guild: int | None) -> int:
        """Tell Discord of all commands whatever it knows; what this guild has of its own is another bot version's."""
        count = len(await self.tree.sync())
        if guild is not None:
            await self.tree.sync(guild=discord.Object(guild))
        return count

    async def on_ready(self) -> None:
        tell("ready", guilds=len(self.guilds), user=str(self.user))
        if not self.guilds and self.application_id is not None:
            tell("the bot is in no server", level="warning", fix=f"Open {invite_url(self.application_id)}")
        for _ in range(SERVERS_LOOKS):
            if not any(map(_is_away, self.guilds)):
                break
            await asyncio.sleep(SERVERS_GAP_S)
        for guild in self.guilds:
            if _is_away(guild):
                tell("a server doesn't answer", level="warning", guild=str(guild.id), why="Discord has an outage there")
                continue
            lacking = missing_here(guild.me.guild_permissions)
            if lacking:
                tell(
                    "a permission is missing",
                    level="warning",
                    guild=guild.name,
                    missing=", ".join(lacking),
                    fix="Invite the bot anew by the link that kbslurm bot check prints.",
                )
        for name, number in self.settings.channels().items():
            channel = self.get_channel(number)
            if not isinstance(channel, discord.abc.GuildChannel):
                if any(map(_is_away, self.guilds)):
                    continue
                lacking, where = ["View Channels"], str(number)
            else:
                lacking = [
                    one for one in missing_here(channel.permissions_for(channel.guild.me)) if one != "Attach Files"
                ]
                where = f"#{channel.name} of {channel.guild.name}"
            if lacking:
                tell(
                    f"the bot can't write into [discord] {name}",
                    level="warning",
                    channel=where,
                    missing=", ".join(lacking),
                    fix="Allow it in the channel's settings, Permissions; kbslurm bot check looks again.",
                )

    def _operators(self, event: FeedEvent) -> None:
        """A run that ends without a result is the machines' fault, and an operator's to mend."""
        if event.kind != "run.failed":
            return
        told = event.data
        place = " ".join(str(told[name]) for name in ("backend", "node") if told.get(name))
        text = (
            f"Submission {told.get('submission')} got no result on {cards.plain(str(told.get('gpu')))}:"
            f" {cards.plain(str(told.get('why') or told.get('ending')))} ({cards.plain(place)})."
        )
        alarm = asyncio.create_task(self.alarm(text, about=f"{place}: {told.get('ending')}"))
        self._raising.add(alarm)
        alarm.add_done_callback(self._raising.discard)

    async def alarm(self, text: str, *, about: str = "") -> None:
        """Tell the staff's channel what an operator has to know; of the same trouble it is told in one card."""
        await self.alarms.raised(text, about=about)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.desk.stop()
        await self.alarms.stop()
        await super().close()


class Pinboard:
    """Discord's messages, in the JSON that cards are."""

    def __init__(self, face: Face) -> None:
        self._face = face

    async def post(
        self, channel: int, message: dict[str, Any], nonce: str, pictures: Sequence[cards.Picture] = ()
    ) -> int:
        # Posted again within minutes, after a kill in between, it is the same message: Discord keeps the nonce.
        sent = {**message, "nonce": nonce, "enforce_nonce": True}
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel)
        return int((await self._sent(route, sent, pictures))["id"])

    async def edit(
        self, channel: int, message_id: int, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> None:
        path = "/channels/{channel_id}/messages/{message_id}"
        route = Route("PATCH", path, channel_id=channel, message_id=message_id)
        await self._sent(route, message, pictures)

    async def _sent(
        self, route: Route, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> dict[str, Any]:
        files = [discord.File(io.BytesIO(one.data), filename=one.name) for one in pictures]
        try:
            if files:
                form: list[dict[str, Any]] = [
                    {"name": "payload_json", "value": json.dumps(message), "content_type": "application/json"},
                    *(
                        {"name": f"files[{n}]", "value": one.fp, "filename": one.filename, "content_type": "image/png"}
                        for n, one in enumerate(files)
                    ),
                ]
                told: dict[str, Any] = await self._face.http.request(route, form=form, files=files)
            else:
                told = await self._face.http.request(route, json=message)
        except discord.NotFound as error:
            raise Gone("the message or its channel was deleted") from error
        except discord.HTTPException as error:
            if error.code == ARCHIVED:
                raise Shelved("the thread is archived") from error
            if files and error.status in (400, 403, 413):
                raise NoFiles(str(error)) from error
            if error.status == 403:
                raise Gone("the bot may not write there: allow it View Channel and Send Messages") from error
            raise
        return told


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
            await interaction.client.alarm(f"Somebody was told: {cards.plain(text)}")
    else:
        tell("a bug", level="error", why=repr(error), interaction=interaction.id)
        text = f"A bug of ours. Tell a host: interaction {interaction.id} in the bot's log says more."
        await interaction.client.alarm(f"A bug of the bot's: {cards.plain(repr(error))}")
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
                await Pinboard(interaction.client).post(interaction.channel_id, note, nonce)
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
