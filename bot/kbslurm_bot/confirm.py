"""Confirmation before what can't be undone: only the person who asked can answer, once, and not for long.

The pending action is kept only in memory. After a restart the question has expired, and its button says so.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import discord

from kbslurm.errors import KbslurmError, Refused
from kbslurm_bot.failures import say_failure

GOOD_FOR_S = 600.0
MOST = 1000
SAID = re.compile(r"kb:sure:(?P<say>yes|no):(?P<key>[0-9a-f]{16})")
Act = Callable[[discord.Interaction[Any]], Awaitable[str]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Question(Generic[T]):
    """`act` runs when `user` answers, and returns what was done."""

    user: int
    act: T
    at: float


class Questions(Generic[T]):
    """The pending questions. `take` returns what to do for each once."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._open: dict[str, Question[T]] = {}

    def put(self, user: int, act: T) -> str:
        """Store it under an unguessable key."""
        now = self._steady()
        fresh = {key: one for key, one in self._open.items() if now - one.at < GOOD_FOR_S}
        self._open = dict(list(fresh.items())[-MOST + 1 :])
        key = secrets.token_hex(8)
        self._open[key] = Question(user=user, act=act, at=now)
        return key

    def take(self, key: str, user: int, *, again: str = "Use the command again.") -> T:
        """The pending action, for the person who asked; Refused if it isn't theirs, was answered, or has expired."""
        found = self._open.get(key)
        if found is None or self._steady() - found.at >= GOOD_FOR_S:
            raise Refused("this question has been answered or has expired", hint=again)
        if found.user != user:
            raise Refused("only the person who used the command can answer this", hint="Use the command yourself.")
        del self._open[key]
        return found.act


class ConfirmButton(discord.ui.DynamicItem[discord.ui.Button[Any]], template=SAID):
    """The two buttons."""

    def __init__(self, button: discord.ui.Button[Any], say: str, key: str) -> None:
        super().__init__(button)
        self.say, self.key = say, key

    @classmethod
    def of(cls, label: str, say: str, key: str) -> Self:
        """A button with this label."""
        style = discord.ButtonStyle.danger if say == "yes" else discord.ButtonStyle.secondary
        return cls(discord.ui.Button(label=label, style=style, custom_id=f"kb:sure:{say}:{key}"), say, key)

    @classmethod
    async def from_custom_id(
        cls, interaction: discord.Interaction[Any], item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        assert isinstance(item, discord.ui.Button)
        return cls(item, match["say"], match["key"])

    async def callback(self, interaction: discord.Interaction[Any]) -> None:
        try:
            await interaction.response.defer(ephemeral=True, thinking=True)
            act = interaction.client.questions.take(self.key, interaction.user.id)
            said = "Nothing was done." if self.say == "no" else await act(interaction)
            await interaction.followup.send(said[:2000], ephemeral=True)
        except Exception as error:
            await say_failure(interaction, error)
            if not isinstance(error, KbslurmError | discord.HTTPException):
                raise


async def ask(interaction: discord.Interaction[Any], question: str, label: str, act: Act) -> None:
    """Ask the person who used the command, and no one else. The interaction has been deferred."""
    key = interaction.client.questions.put(interaction.user.id, act)
    view = discord.ui.View(timeout=None)
    view.add_item(ConfirmButton.of(label, "yes", key)).add_item(ConfirmButton.of("Cancel", "no", key))
    view.stop()  # the buttons are recognised by their IDs: nothing about the message is stored
    await interaction.followup.send(question[:2000], view=view, ephemeral=True)
