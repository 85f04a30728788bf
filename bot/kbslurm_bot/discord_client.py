"""The bot's Discord client: one connection, its commands, buttons and cards.

It needs no privileged intent: it receives commands and buttons, and of people's messages only those that mention it or
are sent to it directly. It keeps none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

import discord
import yarl
from discord import app_commands
from discord.http import Route

from kbslurm.client.answers import (
    FeedEvent,
)
from kbslurm.observe.logs import teller
from kbslurm_bot import cards, mentions, menus
from kbslurm_bot.alarms import Alarms
from kbslurm_bot.announcements import Announcer
from kbslurm_bot.buttons import BUTTONS
from kbslurm_bot.commands.all import ALL
from kbslurm_bot.confirm import Act, ConfirmButton, Questions
from kbslurm_bot.discord_messages import DiscordMessages
from kbslurm_bot.failures import say_failure
from kbslurm_bot.feed import follow
from kbslurm_bot.live_cards import LiveCards
from kbslurm_bot.permissions import invite_url, missing_here
from kbslurm_bot.service import Service
from kbslurm_bot.settings import Settings
from kbslurm_bot.state import State

tell = teller("bot")
SYNCED = "commands"
SERVERS_LOOKS, SERVERS_GAP_S = 150, 0.2  # Discord may describe a server this long after everything else


def _is_away(guild: discord.Guild) -> bool:
    """Whether only this server's ID is known so far."""
    return guild.unavailable or guild.me is None


def connect_to(settings: Settings) -> None:
    """Discord's addresses, for this process."""
    Route.BASE = settings.api_url
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(settings.gateway_url)


class Tree(app_commands.CommandTree["DiscordClient"]):
    """A command tree that turns every failure into one sentence for the person."""

    async def interaction_check(self, interaction: discord.Interaction[DiscordClient], /) -> bool:
        """A staging bot takes commands in its own server only."""
        only = interaction.client.settings.debug_server
        return only is None or interaction.guild_id == only

    async def on_error(
        self, interaction: discord.Interaction[DiscordClient], error: app_commands.AppCommandError
    ) -> None:
        await say_failure(interaction, getattr(error, "original", error))


class DiscordClient(discord.Client):
    """One per process. `settings` has all addresses; the creator of `state` and `service` closes them."""

    def __init__(self, settings: Settings, state: State, service: Service, **more: Any) -> None:
        super().__init__(
            intents=discord.Intents(guilds=True, guild_messages=True, dm_messages=True),
            max_messages=None,
            allowed_mentions=discord.AllowedMentions.none(),
            proxy=settings.proxy,
            **more,
        )
        self.settings, self.state, self.service = settings, state, service
        self.live_cards = LiveCards(state, service, DiscordMessages(self))
        self.tree = Tree(self)
        self.questions: Questions[Act] = Questions()
        self.menus: Questions[menus.Choose] = Questions()
        self._tasks: list[asyncio.Task[None]] = []
        link = f"\n{settings.public_url}/staff" if settings.public_url else ""
        self.alarms = Alarms(DiscordMessages(self), settings.staff_channel, link)
        self._raising: set[asyncio.Task[None]] = set()
        for one in ALL:
            self.tree.add_command(one, guild=self.only_guild())

    async def setup_hook(self) -> None:
        self.add_dynamic_items(*BUTTONS, ConfirmButton, menus.Menu)
        await self._sync()
        self.live_cards.start()
        listeners: list[Callable[[FeedEvent], None]] = []
        if self.settings.channel is not None:
            announcer = Announcer(self.state, self.service, DiscordMessages(self), self.settings.channel)
            listeners.append(announcer.heard)
            self._tasks.append(asyncio.create_task(announcer.run(), name="announcements"))
        if self.settings.staff_channel is not None:
            listeners.append(self._operators)
        self._tasks.append(asyncio.create_task(follow(self.service, self.live_cards, *listeners), name="feed"))

    async def _sync(self) -> None:
        """Register the commands with Discord, but only if they changed, since registrations are rate-limited."""
        only = self.only_guild()
        payload = [one.to_dict(self.tree) for one in self.tree.get_commands(guild=only)]
        told = json.dumps([self.application_id, only and only.id, payload], sort_keys=True, default=str)
        digest = hashlib.sha256(told.encode()).hexdigest()
        if self.state.word(SYNCED) != digest:
            await self.tree.sync(guild=only)
            self.state.keep(SYNCED, digest)
            tell("commands synced", commands=len(payload))

    def only_guild(self) -> discord.Object | None:
        """The only server of a staging bot; a live bot's commands are everywhere."""
        return None if self.settings.debug_server is None else discord.Object(self.settings.debug_server)

    async def synced_anew(self, guild: int | None) -> int:
        """Register all commands with Discord again; the guild's own ones come from another bot version and are
        cleared."""
        only = self.only_guild()
        count = len(await self.tree.sync(guild=only))
        if guild is not None and only is None:
            await self.tree.sync(guild=discord.Object(guild))
        return count

    async def on_message(self, message: discord.Message) -> None:
        if self.settings.debug_server is None or getattr(message.guild, "id", None) == self.settings.debug_server:
            await mentions.heard(self, message)

    async def on_ready(self) -> None:
        tell("ready", guilds=len(self.guilds), user=str(self.user))
        if not self.guilds and self.application_id is not None:
            tell("the bot isn't in any server", level="warning", fix=f"Open {invite_url(self.application_id)}")
        for _ in range(SERVERS_LOOKS):
            if not any(map(_is_away, self.guilds)):
                break
            await asyncio.sleep(SERVERS_GAP_S)
        for guild in self.guilds:
            if _is_away(guild):
                tell(
                    "a server isn't responding", level="warning", guild=str(guild.id), why="Discord has an outage there"
                )
                continue
            lacking = missing_here(guild.me.guild_permissions)
            if lacking:
                tell(
                    "a permission is missing",
                    level="warning",
                    guild=guild.name,
                    missing=", ".join(lacking),
                    fix="Invite the bot again with the link that kbslurm bot check prints.",
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
                    f"the bot can't write in [discord] {name}",
                    level="warning",
                    channel=where,
                    missing=", ".join(lacking),
                    fix="Allow it in the channel's settings, Permissions, then run kbslurm bot check.",
                )

    def _operators(self, event: FeedEvent) -> None:
        """A run that ends without a result is an infrastructure failure, for an operator to fix."""
        if event.kind != "run.failed":
            return
        told = event.data
        place = " ".join(str(told[name]) for name in ("backend", "node") if told.get(name))
        text = (
            f"Submission {told.get('submission')} got no result on {cards.escaped(str(told.get('gpu')))}:"
            f" {cards.escaped(str(told.get('why') or told.get('ending')))} ({cards.escaped(place)})."
        )
        alarm = asyncio.create_task(self.alarm(text, about=f"{place}: {told.get('ending')}"))
        self._raising.add(alarm)
        alarm.add_done_callback(self._raising.discard)

    async def alarm(self, text: str, *, about: str = "") -> None:
        """Post what an operator has to know in the staff channel, in one card per problem."""
        await self.alarms.raised(text, about=about)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.live_cards.stop()
        await self.alarms.stop()
        await super().close()
