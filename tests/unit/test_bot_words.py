"""What the bot says when a text is long, and how it outlives an event that it can't read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kbslurm.client.answers import BoardInfo, FeedEvent, PersonInfo
from kbslurm.client.errors import NoSuch
from kbslurm_bot import buttons, cards, live_cards
from kbslurm_bot import feed as feed_module
from kbslurm_bot.commands.boards import task_told
from kbslurm_bot.feed import follow
from kbslurm_bot.service import Service
from kbslurm_bot.state import Card
from kbslurm_bot.text import (
    fitting,
)

AT = datetime(2026, 5, 1, tzinfo=UTC)


def board(description: str) -> BoardInfo:
    task = {"lang": "py", "ranking_by": "last", "tests": [{"size": 64}], "benchmarks": [{"size": 128}]}
    return BoardInfo(
        id=1, name="sort", description=description, deadline=None, zone="UTC", gpus=("H100",), is_open=True,
        visibility="public", task=task,
    )  # fmt: skip


def test_a_long_description_leaves_room_for_the_cases() -> None:
    told = fitting(task_told(board("first line\nsecond *line*\n" + "words and words " * 200)))
    assert "first line\nsecond \\*line\\*\n" in told
    assert "size: 64" in told and "size: 128" in told and len(told) <= 2000


def test_a_line_that_is_too_long_is_cut_and_not_all_that_there_is() -> None:
    told = fitting(["x" * 5000])
    assert told.startswith("xxx") and told.endswith("…\n") and len(told) <= 2000


class Feed:
    """Tells each list of events once, an exception instead of one as it is; then nothing any more."""

    def __init__(self, *runs: list[Any]) -> None:
        self.runs, self.asked, self.drained = list(runs), list[str](), asyncio.Event()

    async def follow(self, since: str) -> AsyncIterator[FeedEvent]:
        self.asked.append(since)
        if not self.runs:
            self.drained.set()
            await asyncio.Event().wait()
        for one in self.runs.pop(0):
            if isinstance(one, Exception):
                raise one
            yield one


def event(token: str, subject: str = "submission:1") -> FeedEvent:
    return FeedEvent(token=token, kind="run.scored", subject=subject, data={}, at=AT)


def test_an_event_that_cant_be_read_is_not_the_end_of_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "BACK_OFF_S", (0.001, 0.001))
    feed = Feed([event("1"), event("2"), KeyError("type")], [event("3")])
    heard: list[str] = []

    def broken(one: FeedEvent) -> None:
        raise ValueError("invalid literal for int()")

    async def played() -> None:
        service: Any = SimpleNamespace(client=feed)
        table: Any = SimpleNamespace(heard=broken, stir=lambda: None)
        task = asyncio.create_task(follow(service, table, lambda one: heard.append(one.token)))
        async with asyncio.timeout(60):
            await asyncio.wait({task, asyncio.create_task(feed.drained.wait())}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(played())
    assert heard == ["1", "2", "3"]
    assert feed.asked[:2] == ["now", "now"], "what can't be read isn't asked for again"


def test_a_canary_that_is_gone_ends_its_card() -> None:
    posted: list[dict[str, Any]] = []
    kept: list[Card] = []
    ended = asyncio.Event()

    def put(card: Card) -> None:
        kept.append(card)
        if card.done:
            ended.set()

    class Pins:
        async def post(self, channel: int, message: dict[str, Any], nonce: str, pictures: Any = ()) -> int:
            posted.append(message)
            return 1

    class Silent:
        async def ask(self, call: Any) -> Any:
            raise NoSuch("there is no verification 7")

    async def played() -> None:
        memory: Any = SimpleNamespace(put=put)
        service: Any = Silent()
        pins: Any = Pins()
        table = live_cards.LiveCards(memory, service, pins)
        table.add(7, 3000, live_cards.NOBODY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await ended.wait()
        await table.stop()

    asyncio.run(played())
    assert kept[-1].done
    assert "canary · deleted" in str(posted) and "<@0>" not in str(posted)


def test_who_is_known_waits_for_nobody_who_is_new() -> None:
    async def played() -> None:
        service = Service("http://127.0.0.1:1", "token", patience_s=0.05)
        service._people[501] = PersonInfo(id=1, name="ada", role="participant", banned=False)
        try:
            async with service._meeting:
                assert (await service.person(501, "ada")).name == "ada"
        finally:
            service.close()

    asyncio.run(played())


def test_a_log_with_half_a_character_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(cards, "log", lambda full: "\ud800" + "x" * 3000)

    async def told(*_: Any) -> dict[str, Any]:
        return {}

    async def send(text: str, *, file: Any, ephemeral: bool) -> None:
        sent.append(file.fp.read())

    client = SimpleNamespace(service=SimpleNamespace(for_user=told))
    pressed: Any = SimpleNamespace(
        client=client, user=SimpleNamespace(id=501, display_name="ada"), followup=SimpleNamespace(send=send)
    )
    asyncio.run(buttons.log(pressed, 1))
    assert sent[0].startswith(b"?xxx")
