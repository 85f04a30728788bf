"""What the channel is told, once: the real API's boards and places, a memory, and a board to pin things to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.access import NamesShown
from kbslurm.domain.run import Ending
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from kbslurm_bot import state
from kbslurm_bot.announcements import Announcer
from kbslurm_bot.cards import Picture
from kbslurm_bot.service import Service
from tests.fakes.discord import Discord, strict
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import START, HandClock
from tests.flow.test_bot import ADA, BOT_TOKEN, api, bot, card, discord, text_of
from tests.popcorn.served_api import GOOD, TRANSPOSE, ServedApi, served

__all__ = ["api", "discord"]


@dataclass
class Pinned:
    """What was said, in order; refuses what Discord would."""

    said: list[str] = field(default_factory=list)
    nonces: set[str] = field(default_factory=set)
    broken: bool = False

    async def post(self, channel: int, message: dict[str, Any], nonce: str, pictures: Sequence[Picture] = ()) -> int:
        if self.broken:
            raise OSError("503")
        strict.message({**message, "nonce": nonce, "enforce_nonce": True})
        assert message["allowed_mentions"] == {"parse": []} and nonce not in self.nonces
        self.nonces.add(nonce)
        self.said.append(message["components"][0]["components"][0]["content"])
        return len(self.said)

    async def edit(
        self, channel: int, message_id: int, message: dict[str, Any], pictures: Sequence[Picture] = ()
    ) -> None:
        raise AssertionError("an announcement isn't edited")

    def texts(self) -> list[str]:
        found, self.said = self.said, []
        return found

    def headlines(self) -> list[str]:
        found, self.said = self.said, []
        return [one.splitlines()[0].removeprefix("### ") for one in found]


def ranks(api: ServedApi, by: str, score_s: float, board: str = "transpose") -> None:
    store, now = api.store, api.now
    accept(store.intake, store.people.ensure(by).id, board, "k.py", GOOD, "leaderboard", ["H100"], now)
    slots = {"puppet": Puppet(slots={"H100": 9}).capacity()}
    attempt = claim(store.queue, free_slots(slots, store.attempts.open()), now)
    assert attempt is not None
    report = sealed_report(
        store.attempts.work(attempt.id), score_s=score_s, interval_s=[score_s * 0.999, score_s * 1.001]
    )
    score(store, attempt, report, now)


def test_each_thing_is_told_once_and_an_absence_is_caught_up_in_silence(database_url: str, tmp_path: Path) -> None:
    clock, pinned = HandClock(at=START.replace(hour=5)), Pinned()
    with (
        served(database_url, tmp_path / "service", clock=clock, bot=BOT_TOKEN) as api,
        contextlib.closing(Service(api.url, BOT_TOKEN)) as service,
    ):
        memory_file = tmp_path / "bot.sqlite"

        def look_at(file: Path) -> None:
            """By a bot that was just started: it knows what its memory knows."""
            with state.opened(file) as kept:
                asyncio.run(Announcer(kept, service, pinned, 3000, clock.now).look())

        def look() -> list[str]:
            look_at(memory_file)
            return pinned.headlines()

        ranks(api, "ada", 0.5)
        assert look() == [], "what was there before the bot is not announced"
        ranks(api, "bea", 0.4)
        assert look() == ["★ bea leads transpose on H100"]
        assert look() == []
        ranks(api, "cyd", 0.6)
        ranks(api, "dan", 0.7)
        assert look() == ["cyd is on the podium of transpose on H100, rank 3"]
        api.store.people.ban(api.store.people.ensure("bea").id, by="host", now=clock.now())
        assert look() == [], "who moves up because somebody went has done nothing"
        ends = clock.now() + timedelta(hours=30)
        problem = loading.load(TRANSPOSE)
        store = api.store
        store.boards.add("second", problem, gpus=["H100"], confirm=False, deadline_at=ends, now=clock.now())
        store.boards.add("hidden", problem, gpus=["H100"], confirm=False, visibility="closed", now=clock.now())
        look_at(memory_file)
        (new,) = pinned.texts()
        first, about, gpus, until = new.split("\n")
        moment = int(ends.timestamp())
        closes = f"closes <t:{moment}:f> (<t:{moment}:R>; {ends.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"
        assert (first, gpus) == ("### New board: second", "H100")
        assert about.startswith("Transpose a greyscale image") and until == closes
        ranks(api, "ada", 0.3)
        clock.go(3600)
        assert look() == [], "too long ago"
        clock.at = ends - timedelta(hours=23)
        look()
        clock.at = ends - timedelta(minutes=65)
        look()
        clock.go(600)
        look_at(memory_file)
        assert pinned.texts() == [f"### second closes soon\n{closes}"]
        assert look() == []
        clock.go(-1200)
        assert look() == [], "a clock that goes back says nothing twice"
        clock.go(1200)
        clock.at = START.replace(hour=7, minute=55) + timedelta(days=3)
        look()
        clock.go(600)
        assert look() == ["The day, 2026-05-04 UTC"]
        assert look() == []


def test_other_names_put_nobody_on_the_podium_anew(database_url: str, tmp_path: Path) -> None:
    """Nor does what a board calls people make the same submissions news, in either direction."""
    clock, pinned = HandClock(at=START.replace(hour=5)), Pinned()
    with (
        served(database_url, tmp_path / "service", clock=clock, bot=BOT_TOKEN) as api,
        contextlib.closing(Service(api.url, BOT_TOKEN)) as service,
    ):

        def look() -> list[str]:
            with state.opened(tmp_path / "bot.sqlite") as kept:
                asyncio.run(Announcer(kept, service, pinned, 3000, clock.now).look())
            return pinned.headlines()

        def edited(names: NamesShown) -> None:
            api.store.boards.edit("transpose", by="root", names=names, now=clock.now())

        look()
        ranks(api, "ada", 0.5)
        ranks(api, "bea", 0.4)
        assert len(look()) == 2
        several: tuple[NamesShown, ...] = ("anonymous", "nicknames", "real")
        for names in several:
            edited(names)
            assert look() == [], names
        edited("anonymous")
        ranks(api, "cyd", 0.3)
        (told,) = look()
        assert "leads transpose on H100" in told and "cyd" not in told, "what is new is told as ever"


def test_what_discord_doesnt_take_is_said_at_the_next_look(database_url: str, tmp_path: Path) -> None:
    clock, pinned = HandClock(at=START.replace(hour=5)), Pinned()
    with (
        served(database_url, tmp_path / "service", clock=clock, bot=BOT_TOKEN) as api,
        contextlib.closing(Service(api.url, BOT_TOKEN)) as service,
        state.opened(tmp_path / "bot.sqlite") as kept,
    ):
        announcer = Announcer(kept, service, pinned, 3000, clock.now)
        asyncio.run(announcer.look())
        ranks(api, "ada", 0.5)
        pinned.broken = True
        with pytest.raises(OSError, match="503"):
            asyncio.run(announcer.look())
        pinned.broken = False
        asyncio.run(announcer.look())
        assert pinned.headlines() == ["★ ada leads transpose on H100"]
        about, ends = "words and words " * 240, clock.now() + timedelta(hours=30)
        api.store.boards.add(
            "long", loading.load(TRANSPOSE), gpus=["H100"], description=about, deadline_at=ends, now=clock.now()
        )
        asyncio.run(announcer.look())
        (told,) = pinned.texts()
        assert f"<t:{int(ends.timestamp())}:R>" in told


def test_the_running_bot_announces_and_tells_staff(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2001, 3001, 3002)
    with bot(discord, api, tmp_path, channel=3001, staff_channel=3002) as client:
        discord.wait_for(lambda: client.state.word("announce:seen_at"), "the first look")
        ranks(api, "bea", 0.4)
        card(discord, "★ bea leads transpose on H100", channel=3001)
        client.service.client.close()
        asked = discord.command(ADA, "me")
        assert "bug in kbslurm" in discord.answer(asked)
        card(discord, "A bug in the bot", channel=3002)
    assert sum("leads" in text_of(one) for one in discord.shown(3001)) == 1 and not discord.refusals


def test_staff_are_told_of_runs_that_the_machines_lost(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2001, 3002)
    store, now, lost = api.store, api.now, Puppet(slots={"H100": 9})

    def lose_one() -> bool:
        accept(store.intake, store.people.ensure("ada").id, "transpose", "k.py", GOOD, "test", ["H100"], now)
        while (
            attempt := claim(store.queue, free_slots({"puppet": lost.capacity()}, store.attempts.open()), now)
        ) is not None:
            store.attempts.give_up(attempt, Ending.NODE_FAILURE, "the node @everyone died", now)
        return True

    with bot(discord, api, tmp_path, staff_channel=3002):
        # What happens before it follows the feed isn't told.
        discord.wait_for(lambda: lose_one() and discord.shown(3002), "a word to staff")
        lose_one()
        told = text_of(card(discord, "got no result", channel=3002))
        assert "got no result on H100: the node \\@everyone died (puppet)." in told
        assert told.endswith("https://kb.example/staff")
    assert len(discord.shown(3002)) == 1, "the same trouble once in a while"
    assert not discord.refusals and not discord.pings
