"""The bot where there is more than one place, and where what it was told of has changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.run import PersonId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.problems import loading
from kbslurm_bot import alarms, live_cards
from kbslurm_bot.messages import Gone
from tests.fakes import discord as fake
from tests.fakes.discord import Discord, User
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.test_bot import BOT_TOKEN, bot, card, text_of
from tests.flow.test_bot_rights import ELSEWHERE, HOST, TOML
from tests.popcorn.served_api import GOOD, TRANSPOSE, ServedApi, served

ADA, EVE, HOSTESS = User(501, "ada"), User(502, "eve"), User(601, "grace", (int(HOST),))
FILE = ("k.py", GOOD)
STAFF = 3002


@pytest.fixture
def discord() -> Iterator[Discord]:
    with fake.served() as built:
        built.roles = {2000: [int(HOST)]}
        yield built


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", bot=BOT_TOKEN, toml=TOML + ELSEWHERE) as built:
        yield built


def pinned(api: ServedApi, submission: int) -> set[str | None]:
    rows = api.store._all("SELECT pinned FROM run WHERE submission_id = %(n)s", {"n": submission})
    return {row["pinned"] for row in rows}


def works(api: ServedApi, place: str) -> int:
    """The next canary of this place is right; its submission."""
    store, now = api.store, api.now
    attempt = claim(store.queue, free_slots({place: Puppet(slots={"H100": 9, "A100": 9}).capacity()}, []), now)
    assert attempt is not None
    work = store.attempts.work(attempt.id)
    score(store, attempt, sealed_report(work), now)
    return int(work.submission_id)


def test_places_are_completed_as_whoever_types_may_choose_them(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        assert discord.complete(EVE, "run", "backend", "") == [], "nobody knows them yet, and typing makes no person"
        discord.answer(discord.command(ADA, "me"))
        assert discord.complete(ADA, "run", "backend", "") == ["local"]
        assert discord.complete(ADA, "run", "backend", "LO") == ["local"]
        assert discord.complete(ADA, "run", "backend", "git") == []
        assert discord.complete(ADA, "run", "backend", "", gpu="A100, H100") == ["local"]
        assert discord.complete(ADA, "run", "backend", "", gpu="B200") == []
        discord.answer(discord.command(HOSTESS, "me"))
        assert discord.complete(HOSTESS, "run", "backend", "") == ["local"], "runs know nothing of Discord's roles"
        assert discord.complete(HOSTESS, "verify", "backend", "") == ["local", "github"]
        assert discord.complete(HOSTESS, "verify", "backend", "hub") == ["github"]
        assert discord.complete(HOSTESS, "verify", "backend", "", gpu="A100") == ["local"]
        api.store.people.set_role(api.store.people.find("ada").id, "staff", now=api.now)  # type: ignore[union-attr]
        assert discord.complete(ADA, "run", "backend", "") == ["local", "github"]
    assert not discord.refusals


def test_again_goes_where_it_was_sent_or_says_why_not(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    store = api.store
    order: dict[str, Any] = {"file": FILE, "leaderboard": "transpose", "gpu": "H100", "mode": "test"}
    with bot(discord, api, tmp_path):
        for who, place in ((ADA, None), (ADA, "local"), (EVE, "github")):
            if place == "github":
                discord.answer(discord.command(EVE, "me"))
                store.people.set_role(store.people.find("eve").id, "staff", now=api.now)  # type: ignore[union-attr]
            chosen: dict[str, Any] = {"backend": place} if place else {}
            discord.answer(discord.command(who, "run", **order, **chosen))
            number = max(one.id for one in store.submissions.newest())
            store.submissions.cancel(number, None, api.now)
            card(discord, f"#{number}")
            shown = card(discord, "cancelled")
            assert "is accepted" in discord.answer(discord.press(who, shown, "Again"))
            again = max(one.id for one in store.submissions.newest())
            assert again > number and pinned(api, again) == pinned(api, number) == {place}
            store.submissions.cancel(again, None, api.now)
            card(discord, f"#{again}")
            shown = card(discord, "cancelled")
            if place == "github":
                store.people.set_role(PersonId(store.people.find("eve").id), "participant", now=api.now)  # type: ignore[union-attr]
                before = len(store.submissions.newest())
                assert "nly hosts can choose github" in discord.answer(discord.press(EVE, shown, "Again"))
                assert len(store.submissions.newest()) == before
    assert not discord.refusals


def test_the_end_of_each_canary_stirs_the_card_that_shows_them_all(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_cards, "LOOK_S", 86_400.0)  # what isn't stirred isn't looked at
    heard: list[Any] = []
    with bot(discord, api, tmp_path) as client:
        hears = client.live_cards.heard

        def listening(event: Any) -> None:
            hears(event)
            heard.append(event)

        monkeypatch.setattr(client.live_cards, "heard", listening)
        discord.answer(discord.command(HOSTESS, "verify", leaderboard="transpose", gpu="H100"))
        shown = card(discord, "canary on transpose")
        assert "at github waiting" in text_of(shown)
        # What stirs it because they were accepted is over when those of the second one have been heard.
        discord.wait_for(lambda: any(one.subject == "submission:2" for one in heard), "the second one's events")
        discord.wait_for(lambda: not client.live_cards._open[3000][1].is_stirred, "a card at rest")
        assert works(api, "github") == 2
        card(discord, "**H100** at github ✓ works")
    with bot(discord, api, tmp_path):  # which ones it shows is known again after a restart
        assert works(api, "local") == 1
        last = card(discord, "2 of 2 passed")
        assert last["id"] == shown["id"]
    assert not discord.refusals


def test_a_board_made_anew_isnt_the_one_that_was_asked_about(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    store = api.store
    with bot(discord, api, tmp_path):
        asked = discord.command(HOSTESS, "admin delete", leaderboard="transpose", force=True)
        assert "Delete board **transpose**" in discord.answer(asked)
        store.boards.delete("transpose", force=True)
        made = store.boards.add("transpose", loading.load(TRANSPOSE), gpus=["H100"], confirm=False, now=api.now)
        said = discord.answer(discord.press(HOSTESS, asked.said[-1], "Delete"))
        assert "is a different one now" in said and store.boards.find("transpose").id == made.id  # type: ignore[union-attr]
        asked = discord.command(HOSTESS, "admin delete", leaderboard="transpose", force=True)
        discord.answer(asked)
        assert "is deleted" in discord.answer(discord.press(HOSTESS, asked.said[-1], "Delete"))
        assert store.boards.find("transpose") is None
    assert not discord.refusals


# ------------------------------------------------------------------------------------------------------------- alarms


@dataclass
class Channel:
    """The staff's: what is posted, and what each message says at last."""

    posted: list[int] = field(default_factory=list)
    says: dict[int, str] = field(default_factory=dict)
    gone: bool = False

    async def post(self, channel: int, message: dict[str, Any], nonce: str, pictures: Any = ()) -> int:
        number = len(self.posted) + 1
        self.posted.append(number)
        self.says[number] = text_of(message)
        return number

    async def edit(self, channel: int, message_id: int, message: dict[str, Any], pictures: Any = ()) -> None:
        if self.gone:
            self.gone = False
            raise Gone("the message was deleted")
        self.says[message_id] = text_of(message)


def test_the_same_trouble_is_one_card_whatever_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "EDIT_GAP_S", 0.0)
    now, channel = 0.0, Channel()

    async def play() -> None:
        nonlocal now
        staff = alarms.Alarms(channel, STAFF, "\nlink", lambda: now)

        async def raised(text: str, **about: str) -> list[str]:
            await staff.raised(text, **about)
            while staff._tasks:
                await asyncio.gather(*staff._tasks)
            return list(channel.says.values())

        assert await raised("github is left alone for 12 s") == ["github is left alone for 12 s\nlink"]
        (said,) = await raised("github is left alone for 24.5 s")
        assert said.startswith("github is left alone for 24.5 s\n-# 2 times since <t:") and said.endswith("\nlink")
        assert len(await raised("node17 died")) == 2, "another trouble"
        assert len(await raised("node18 died")) == 3, "and another node's: its number is its name"
        assert "3 times" in (await raised("github is left alone for 60 s"))[0]
        assert len(await raised("Submission 7 got no result", about="here: died")) == 4
        assert (
            "Submission 8 got no result\n-# 2 times"
            in (await raised("Submission 8 got no result", about="here: died"))[3]
        )
        now += alarms.QUIET_S - 1
        assert len(await raised("github is left alone for 8 s")) == 4, "it never was quiet"
        now += alarms.QUIET_S - 1
        assert len(await raised("github is left alone for 9 s")) == 4
        now += alarms.QUIET_S
        assert len(await raised("github is left alone for 9 s")) == 5, "after a while it is said again"
        channel.gone = True
        assert len(await raised("github is left alone for 10 s")) == 6, "somebody removed the card"
        await staff.stop()

    asyncio.run(play())


def test_a_storm_of_one_trouble_is_an_edit_now_and_then() -> None:
    channel = Channel()

    async def play() -> None:
        staff = alarms.Alarms(channel, STAFF)
        await asyncio.gather(*(staff.raised(f"trouble {n}") for n in range(500)))
        assert len(staff._tasks) == 1
        await staff.stop()

    asyncio.run(play())
    assert channel.posted == [1]


def test_whoever_is_told_of_trouble_with_numbers_makes_one_card_of_it(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "EDIT_GAP_S", 0.1)
    discord.add_guild(2001, STAFF)
    with bot(discord, api, tmp_path, staff_channel=STAFF) as client:
        loop = client.loop
        for seconds in (12, 24, 48):
            said = f"Somebody was told: the service is left alone for {seconds} s."
            asyncio.run_coroutine_threadsafe(client.alarm(said), loop).result(60)
        told = card(discord, "for 48 s", channel=STAFF)
        assert "3 times since" in text_of(card(discord, "3 times", channel=STAFF)) and "/staff" in text_of(told)
    assert len(discord.shown(STAFF)) == 1 and not discord.refusals
