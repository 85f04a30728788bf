"""What an operator has to know, in the staff channel: one card per problem. While the problem repeats, its card is
edited with the latest numbers and the count; after a quiet while it gets a new card.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import discord

from kbslurm.observe.logs import teller
from kbslurm_bot import cards
from kbslurm_bot.messages import Gone, Messages

tell = teller("bot")
QUIET_S = 600.0
EDIT_GAP_S = 10.0
# Seconds, submissions, interactions, addresses. Digits that are part of a word are a name: node17, A100.
NUMBER = re.compile(r"0x[0-9a-f]+|(?<![\w-])\d[\d.,:]*", re.IGNORECASE)


@dataclass
class _Alarm:
    text: str
    since: int
    at: float
    times: int = 1
    message: int | None = None
    shown_at: float = 0.0
    is_due: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Alarms:
    """Posts into one channel; without one it posts nothing. `link`: where an operator looks next."""

    def __init__(
        self, board: Messages, channel: int | None, link: str = "", steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._board, self._channel, self._link, self._steady = board, channel, link, steady
        self._known: dict[str, _Alarm] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def raised(self, text: str, *, about: str = "") -> None:
        """Post an alarm, or count a repeat. Two alarms are the same if `about` is, or without it if their words are."""
        if self._channel is None:
            return
        now, about = self._steady(), about or NUMBER.sub("#", text)
        self._known = {key: one for key, one in self._known.items() if now - one.at < QUIET_S}
        known = self._known.get(about)
        if known is None:
            known = self._known[about] = _Alarm(text, int(time.time()), now)
            await self._show(known)
            return
        known.text, known.at, known.times = text, now, known.times + 1
        if not known.is_due:
            known.is_due = True
            task = asyncio.create_task(self._again(known), name="alarm")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _again(self, alarm: _Alarm) -> None:
        """Many repeats become an edit now and then."""
        await asyncio.sleep(EDIT_GAP_S - (self._steady() - alarm.shown_at))
        alarm.is_due = False
        await self._show(alarm)

    async def _show(self, alarm: _Alarm) -> None:
        assert self._channel is not None
        async with alarm.turn:
            alarm.shown_at = self._steady()
            often = f"\n-# {alarm.times} times since {cards.when(alarm.since, 't')}" if alarm.times > 1 else ""
            note = cards.note(f"{alarm.text}{often}{self._link}", cards.ORANGE)
            try:
                if alarm.message is not None:
                    try:
                        await self._board.edit(self._channel, alarm.message, note)
                        return
                    except Gone:
                        alarm.message = None  # someone deleted the card, and the problem persists
                nonce = hashlib.sha256(f"{alarm.text}{alarm.shown_at}".encode()).hexdigest()[:24]
                alarm.message = await self._board.post(self._channel, note, nonce)
            except (Gone, discord.HTTPException) as error:
                tell("can't post in the staff channel", level="error", why=str(error))
