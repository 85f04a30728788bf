"""Select menus below a message: for the person who asked and nobody else, once, and until they say that they expired.

What choosing does is kept only in memory, as with the buttons that confirm. After a restart a menu has expired, and
says so to whoever uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self

import discord

from kbslurm.errors import KbslurmError
from kbslurm_bot.confirm import GOOD_FOR_S
from kbslurm_bot.failures import say_failure

SAID = re.compile(r"kb:menu:(?P<key>[0-9a-f]{16})")
MOST = 25
AGAIN = "Use the command again, or mention me again with the file."
Choose = Callable[[discord.Interaction[Any], Sequence[str]], Awaitable[str]]
_waiting: set[asyncio.Task[None]] = set()


class Shown(Protocol):
    """A message that was sent, wherever that was."""

    async def edit(self, *, content: str | None, view: discord.ui.View | None) -> Any: ...


class Menu(discord.ui.DynamicItem[discord.ui.Select[Any]], template=SAID):
    """The menu itself; it is recognised by its ID."""

    def __init__(self, select: discord.ui.Select[Any], key: str) -> None:
        super().__init__(select)
        self.key = key

    @classmethod
    def of(cls, key: str, options: Sequence[str], placeholder: str, most: int) -> Self:
        """A menu of these, of which up to so many may be chosen."""
        shown = options[:MOST]
        select: discord.ui.Select[Any] = discord.ui.Select(
            custom_id=f"kb:menu:{key}",
            placeholder=placeholder[:150],
            min_values=1,
            max_values=min(most, len(shown)),
            options=[discord.SelectOption(label=one[:100], value=one[:100]) for one in shown],
        )
        return cls(select, key)

    @classmethod
    async def from_custom_id(
        cls, interaction: discord.Interaction[Any], item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        assert isinstance(item, discord.ui.Select)
        return cls(item, match["key"])

    async def callback(self, interaction: discord.Interaction[Any]) -> None:
        try:
            await interaction.response.defer(ephemeral=True, thinking=True)
            choose = interaction.client.menus.take(self.key, interaction.user.id, again=AGAIN)
            said = await choose(interaction, self.item.values)
            await interaction.followup.send(said[:2000], ephemeral=True)
        except Exception as error:
            await say_failure(interaction, error)
            if not isinstance(error, KbslurmError | discord.HTTPException):
                raise


async def offer(
    client: Any,
    user: int,
    send: Callable[[discord.ui.View], Awaitable[Shown]],
    options: Sequence[str],
    choose: Choose,
    *,
    placeholder: str,
    expired: str,
    most: int = 1,
) -> None:
    """Send a menu for this user. It disappears from its message once it was used, and gives way to `expired` later."""

    shown: asyncio.Future[Shown] = asyncio.get_running_loop().create_future()
    over = asyncio.create_task(_expiring(shown, expired), name="menu")
    _waiting.add(over)
    over.add_done_callback(_waiting.discard)

    async def used(interaction: discord.Interaction[Any], chosen: Sequence[str]) -> str:
        said = await choose(interaction, [one for one in options if one[:100] in chosen])
        over.cancel()
        await _closed(await shown, None)
        return said

    key = client.menus.put(user, used)
    view = discord.ui.View(timeout=None)
    view.add_item(Menu.of(key, options, placeholder, most))
    view.stop()
    try:
        shown.set_result(await send(view))
    except BaseException:
        over.cancel()
        raise


async def _expiring(shown: asyncio.Future[Shown], expired: str) -> None:
    await asyncio.sleep(GOOD_FOR_S)
    await _closed(await shown, expired)


async def _closed(message: Shown, content: str | None) -> None:
    with contextlib.suppress(discord.HTTPException):  # it was deleted, or can't be edited any more
        if content is None:
            await message.edit(content=getattr(message, "content", None), view=None)
        else:
            await message.edit(content=content, view=None)
