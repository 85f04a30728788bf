"""Final standings: finals are run, what they come to is fixed and announced, and only another act changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from kbslurm.client.http import Client
from kbslurm.errors import Invalid, Refused
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm_bot import state
from kbslurm_bot.announcements import Announcer
from kbslurm_bot.service import Service
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_board_times import clock, due, names
from tests.flow.test_bot_announce import Pinned
from tests.flow.test_pages import browsing, csrf, judged
from tests.popcorn.served_api import ADMIN, ServedApi, served

BOT = "bot-token-for-finalising"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot=BOT) as built:
        built.store.boards.edit("transpose", by="host", gpus=["H100"], now=built.now)
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def over(api: ServedApi) -> None:
    """A board whose deadline has passed: ada, then bea."""
    due(api, hours=1)
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.6)
    clock(api).go(2 * 3600)


def final_measured(api: ServedApi, *took: float) -> None:
    """The final's job comes to its end; it has these times, in the order of the places before."""
    slots = {"puppet": Puppet(slots={"H100": 9}).capacity()}
    attempt = claim(api.store.queue, free_slots(slots, api.store.attempts.open()), api.now)
    assert attempt is not None
    score(api.store, attempt, sealed_report(api.store.attempts.work(attempt.id), rivals=list(took)), api.now)


def test_standings_are_fixed_by_their_finals_and_changed_only_by_another_act(api: ServedApi, host: Client) -> None:
    over(api)
    told = host.finalise("transpose")
    assert (told["state"], told["measuring"], told["finalised_at"]) == ("measuring", ["H100"], None)
    assert host.finalise("transpose")["state"] == "measuring", "asked twice, ordered once"
    final_measured(api, 0.7, 0.4)
    clock(api).go(60)
    told = host.finalise("transpose", note="as the rules say")
    assert (told["state"], told["finalised_at"]) == ("final", api.now.isoformat())
    assert names(api) == ["bea", "ada"], "the final decided"
    with browsing(api) as anybody:
        page = anybody.get("/board/transpose/H100").text
        assert "These standings are final since 2026-05-01" in page
        assert page.index(">bea<") < page.index(">gold<") < page.index(">ada<") < page.index(">silver<")
        assert host.board_rows()[0]["finalised_at"] == told["finalised_at"]

        # whatever happens to verdicts and submissions now
        with api.store._pool.statement() as connection:
            connection.execute(b"UPDATE final_score SET score_s = 9, low_s = 9, high_s = 9")
        bea = api.store.people.ensure("bea")
        for one in api.store.submissions.newest(person=bea.id):
            remove(api.store.submissions, one.id, bea.id, "bea", api.now)
        api.store.boards.set_deadline("transpose", api.now + timedelta(days=1), by="host", now=api.now)
        judged(api, "cyd", 0.1)
        assert names(api) == names(api, live=True) == ["bea", "ada"]
        assert ">cyd<" not in anybody.get("/board/transpose/H100").text.partition("The record over time")[0]
        clock(api).go(2 * 86_400)
        with pytest.raises(Refused, match=r"are final since 2026-05-01 14:0. UTC"):
            host.finalise("transpose")
        host.finalise("transpose", again=True, finals=False, note="after the appeals")
        assert names(api) == ["cyd", "ada"]
        host.unfinalise("transpose")
        assert ">cyd<" in anybody.get("/board/transpose/H100").text
    with pytest.raises(Invalid, match="aren't final"):
        host.unfinalise("transpose")
    acts = [event.kind for event in api.store.events.audit_log(limit=9) if "final" in event.kind]
    assert acts == ["staff.unfinalise", "staff.finalise", "staff.finalise", "staff.final_applied", "staff.final"]


def test_whoever_is_banned_disappears_from_final_standings_too(api: ServedApi, host: Client) -> None:
    over(api)
    host.finalise("transpose", finals=False)
    host.ban("person:ada")
    assert names(api) == ["bea"]


def test_nothing_is_fixed_while_it_can_still_change(api: ServedApi, host: Client) -> None:
    with pytest.raises(Refused, match="has no deadline and isn't closed"):
        host.finalise("transpose")
    due(api, hours=1)
    judged(api, "ada", 0.5)
    with pytest.raises(Refused, match="is open until 2026-05-01 13:00 UTC"):
        host.finalise("transpose")
    api.store.people.ensure("bea")
    host.extend("transpose", "person:bea", "2026-05-03 12:00")
    clock(api).go(2 * 3600)
    with pytest.raises(Refused, match="open until 2026-05-03 12:00 UTC for somebody with an extension"):
        host.finalise("transpose")
    host.extend("transpose", "person:bea", None)
    host.freeze("transpose")
    with pytest.raises(Refused, match="are frozen"):
        host.finalise("transpose")
    host.unfreeze("transpose")
    host.rejudge_preview("transpose")
    with pytest.raises(Refused, match=r"haven't ended yet|a rejudge of transpose is open"):
        host.finalise("transpose")
    host.rejudge_cancel("transpose")
    assert host.finalise("transpose")["state"] == "final", "one person needs no final"


def test_the_bot_announces_it_once(api: ServedApi, host: Client, tmp_path: Path) -> None:
    over(api)
    pinned = Pinned()

    def look() -> list[str]:
        with closing(Service(api.url, BOT)) as service, state.opened(tmp_path / "bot.sqlite") as kept:
            asyncio.run(Announcer(kept, service, pinned, 3000, lambda: api.now).look())
        return pinned.texts()

    look()
    host.finalise("transpose", finals=False)
    (said,) = look()
    assert said.startswith("### The standings of transpose are final\nH100 1. ada ") and "H100 2. bea " in said
    assert look() == []


def test_the_staff_page_does_the_same(api: ServedApi) -> None:
    over(api)
    with browsing(api, "hana", "staff") as hana:
        path = "/staff/board/transpose"
        key = csrf(hana.get(path).text)
        assert hana.post(f"{path}/finalise", data={"csrf": key, "finals": "yes"}).status_code == 303
        assert "The final on H100 is being measured" in hana.get(path).text
        final_measured(api, 0.4, 0.7)
        assert hana.post(f"{path}/finalise", data={"csrf": key, "finals": "yes"}).status_code == 303
        assert "These standings are final since" in hana.get(path).text
        assert hana.post(f"{path}/unfinalise", data={"csrf": key}).status_code == 303
        assert "Make the standings final" in hana.get(path).text
