"""Live cards: each open submission's message follows it, is edited sparingly, and is found again after a restart.

A card is due when the feed names its submission, and every `LOOK_S` for what has no event (place, progress). One task
per channel does the editing, since Discord limits edits per channel; finished ones go first, and while many wait, mere
progress isn't shown. So a channel with 200 simultaneous submissions has about two edits per card, the last of which is
the verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kbslurm.client.answers import FeedEvent
from kbslurm.client.errors import NoSuch
from kbslurm.domain import access
from kbslurm.observe.logs import teller
from kbslurm_bot import cards, plot
from kbslurm_bot.messages import Gone, Messages, NoFiles, Shelved, Worn
from kbslurm_bot.service import Away, Service
from kbslurm_bot.state import Card, State

tell = teller("bot")
LOOK_S = 15.0
GAP_S = 2.0
AWAY_S = 5.0
CROWD = 5
NOBODY = 0  # the owner of a canary's card: it belongs to nobody and is read as the bot itself


@dataclasses.dataclass
class _LiveCard:
    card: Card
    lost: Callable[[], Awaitable[None]] | None = None
    also: frozenset[int] = frozenset()  # the other submissions that it covers
    looked_at: float = -LOOK_S
    is_stirred: bool = True

    @property
    def due_at(self) -> float:
        return self.looked_at + (GAP_S if self.is_stirred else LOOK_S)


class LiveCards:
    """All open cards. `start` once, `stop` at the end; `add` after every receipt; `heard` for every event."""

    def __init__(
        self, state: State, service: Service, board: Messages, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._state, self._service, self._board, self._steady = state, service, board, steady
        self._open: dict[int, dict[int, _LiveCard]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}

    def start(self) -> None:
        """Resume every open card."""
        found = self._state.open_cards()
        for card in found:
            self._keep(card)
        if found:
            tell("cards resumed", cards=len(found))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def add(
        self,
        submission: int,
        channel: int,
        owner: int,
        lost: Callable[[], Awaitable[None]] | None = None,
        *,
        also: Sequence[int] = (),
    ) -> None:
        """A new submission: its card is stored before anyone sees it. `lost` is called if it can't be posted. `also`:
        other submissions that this card follows."""
        card = Card(submission=submission, channel=channel, owner=owner)
        self._state.put(card)
        self._keep(card, lost, also)

    def heard(self, event: FeedEvent) -> None:
        """Something happened to a submission."""
        number = event.data.get("submission")
        if number is None and event.subject.startswith("submission:"):
            number = event.subject.partition(":")[2]
        named = int(number or 0)
        for channel, kept in self._open.items():
            for one in [kept[named]] if named in kept else [one for one in kept.values() if named in one.also]:
                one.is_stirred = True
                self._wakes[channel].set()

    def stir(self) -> None:
        """The feed was unreachable: check everything."""
        for channel, kept in self._open.items():
            for one in kept.values():
                one.is_stirred = True
            self._wakes[channel].set()

    def _keep(self, card: Card, lost: Callable[[], Awaitable[None]] | None = None, also: Sequence[int] = ()) -> None:
        self._open.setdefault(card.channel, {})[card.submission] = _LiveCard(card, lost, frozenset(also))
        self._wakes.setdefault(card.channel, asyncio.Event()).set()
        if card.channel not in self._tasks:
            self._tasks[card.channel] = asyncio.create_task(self._tend(card.channel), name=f"cards-{card.channel}")

    async def _tend(self, channel: int) -> None:
        kept = self._open[channel]
        while True:
            self._wakes[channel].clear()
            now = self._steady()
            # Events before routine checks, older before newer.
            due = sorted(
                (one for one in kept.values() if one.due_at <= now),
                key=lambda one: (not one.is_stirred, one.card.submission),
            )
            for one in due:
                one.looked_at, one.is_stirred = self._steady(), False
                try:
                    await self._freshen(channel, one)
                except Away as error:
                    tell("cards are waiting for the service", level="warning", cards=len(kept), why=error.why)
                    one.is_stirred = True
                    await asyncio.sleep(AWAY_S)
                    break
                except Exception as error:  # noqa: BLE001 - what can't be drawn now is drawn later, whatever it was
                    tell("a card is delayed", level="warning", submission=one.card.submission, why=repr(error))
            await self._rest(channel)

    async def _rest(self, channel: int) -> None:
        """Sleep until the next card is due, or an event makes one due sooner."""
        while True:
            wait_s = min((one.due_at for one in self._open[channel].values()), default=math.inf) - self._steady()
            if wait_s <= 0:
                return
            self._wakes[channel].clear()
            try:
                async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                    await self._wakes[channel].wait()
            except TimeoutError:
                return

    async def _freshen(self, channel: int, kept: _LiveCard) -> None:
        number, owner = kept.card.submission, kept.card.owner
        if owner == NOBODY:
            try:
                told = await self._service.ask(lambda client: client.verification(number))
            except NoSuch:
                await self._put_up(channel, kept, cards.taken_back(number, None), done=True)
                return
            kept.also = frozenset(told["submission_ids"])  # needed after a restart
            await self._put_up(channel, kept, cards.verification(told), done=told["done"])
            return
        try:
            full = await self._service.for_owner(owner, lambda client: client.full_submission(number))
        except NoSuch:
            await self._put_up(channel, kept, cards.taken_back(number, owner), done=True)
            return
        done = full["submission"]["done"]
        crowd = sum(one.is_stirred or one.card.message is None for one in self._open[channel].values())
        if kept.card.message is not None and not done and crowd >= CROWD:
            return  # many are waiting for an edit, and this one would only show progress
        contexts = await self._service.score_contexts(owner, full) if done and not cards.is_kept_back(full) else {}
        shown = cards.Shown(full=full, owner=owner, contexts=contexts)
        if pictures := await self._pictures(owner, full, contexts):
            try:
                more = dataclasses.replace(shown, pictures=pictures)
                await self._put_up(channel, kept, cards.message(more), done=done, pictures=pictures)
                return
            except (NoFiles, OSError) as error:
                tell("a card is posted without its picture", level="warning", submission=number, why=str(error))
        await self._put_up(channel, kept, cards.message(shown), done=done)

    async def _pictures(
        self, owner: int, full: cards.Row, contexts: Mapping[str, cards.ScoreContext]
    ) -> list[cards.Picture]:
        """The owner's histories where this submission has a score, on a public board."""
        told = full["submission"]
        found: list[cards.Picture] = []
        wanted = {gpu: stands.history for gpu, stands in contexts.items() if len(stands.history) > 1}
        try:
            boards = await self._service.boards(owner) if wanted else []
            if not any(one.name == told["board"] and access.is_for_everybody(one.visibility) for one in boards):
                return []
            for gpu, history in list(wanted.items())[: cards.PICTURES]:
                data = await plot.picture(history, (), f"{told['board']} on {gpu}")
                if data is not None:
                    says = cards.history_told(told["board"], gpu, history)
                    found.append(cards.Picture(name=f"history-{len(found)}.png", says=says, data=data))
        except Exception as error:  # noqa: BLE001 - a verdict never waits for its picture
            tell("a history couldn't be drawn", level="warning", submission=told["id"], why=repr(error))
            return []
        return found

    async def _put_up(
        self,
        channel: int,
        kept: _LiveCard,
        sent: dict[str, Any],
        *,
        done: bool,
        pictures: Sequence[cards.Picture] = (),
    ) -> None:
        digest, card = cards.digest(sent), kept.card
        try:
            if card.message is None:
                number = await self._board.post(channel, sent, f"kb-{card.submission}", pictures)
                card = dataclasses.replace(card, message=number, shown=digest)
            elif digest != card.shown:
                card = await self._edited(channel, card, sent, done, pictures)
        except Gone as error:
            tell("a card was deleted", level="warning", submission=card.submission, why=str(error))
            done = True
            if card.message is None and kept.lost is not None:
                with contextlib.suppress(Exception):
                    await kept.lost()
        card = dataclasses.replace(card, done=done)
        if card != kept.card:
            self._state.put(card)
            kept.card = card
        if done:
            del self._open[channel][card.submission]

    async def _edited(
        self, channel: int, card: Card, sent: dict[str, Any], done: bool, pictures: Sequence[cards.Picture]
    ) -> Card:
        """Post or edit the card. In an archived thread it is left alone until there is a result to post; where an old
        message takes no more edits, it goes on in a fresh one."""
        assert card.message is not None
        message = card.message
        try:
            await self._board.edit(channel, message, sent, pictures)
        except Shelved:
            if done:
                message = await self._board.post(channel, sent, f"kb-{card.submission}-end", pictures)
        except Worn as error:
            tell("a card moves to a fresh message", submission=card.submission, why=str(error))
            message = await self._board.post(channel, sent, f"kb-{message}", pictures)
        return dataclasses.replace(card, message=message, shown=cards.digest(sent))
