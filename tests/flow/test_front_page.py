"""The start page: cards of what runs, a table of what is over, and who is shown what of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm import __version__
from kbslurm.api.pages.boards.front import about
from kbslurm.store.boards import Boards
from kbslurm.store.standings import Standings
from tests.flow.gallery import judged
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import GOOD, ServedApi, served

HOSTILE = "<script>alert(1)</script>"
RTL = "محمد الخوارزمي"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def go(api: ServedApi, seconds: float) -> datetime:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(seconds)
    return api.now


def board(api: ServedApi, name: str, **told: Any) -> None:
    problem = api.store.boards.get("transpose").problem
    api.store.boards.add(name, problem, gpus=told.pop("gpus", ["H100"]), confirm=False, now=api.now, **told)


def card(page: str, name: str) -> str:
    """The card of this board."""
    found: list[str] = re.findall(r'<li class="card front">(.*?)</nav>.*?</li>', page, re.DOTALL)
    return next(one for one in found if f'href="/problem/{name}"' in one)


def row(page: str, name: str) -> str:
    """The row of a board that is over."""
    found: list[str] = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return next(one for one in found if f'href="/problem/{name}"' in one)


def words(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def test_a_card_tells_who_leads_by_how_much_and_until_when(api: ServedApi) -> None:
    api.store.boards.set_deadline("transpose", api.now + timedelta(days=2, hours=3, seconds=5), by="root", now=api.now)
    judged(api.store, "bob", go(api, 60), 4e-3)
    judged(api.store, "ada", go(api, 60), 2e-3)
    judged(api.store, "cyd", go(api, 60), 2.4e-3)
    judged(api.store, "cyd", go(api, 60), 2e-2, gpu="A100")
    with browsing(api) as anybody:
        shown = words(card(anybody.get("/").text, "transpose"))
        assert "closes in 2 days 2 h" in shown
        assert "Record on H100 2.00 ms" in shown and "People 3" in shown and "Lead 20 %" in shown
        assert "ada leads, ahead of cyd" in shown and "Last record by ada" in shown and "bob" not in shown
        found = card(anybody.get("/").text, "transpose")
        assert 'href="/board/transpose/H100"' in found and 'href="/board/transpose/A100"' in found
        assert 'aria-label="The record on H100, 2.00 ms, after 4.00 ms"' in found
        judged(api.store, "dan", go(api, 60), 2.001e-3)
        assert "ada leads, tied with dan" in words(card(anybody.get("/").text, "transpose"))
        judged(api.store, "dan", go(api, 60), 0.5e-3)
        assert "Lead 4×" in words(card(anybody.get("/").text, "transpose"))


def test_who_comes_first_is_told_what_this_is_and_who_is_signed_in_their_places(api: ServedApi) -> None:
    judged(api.store, "ada", go(api, 60), 2e-3)
    judged(api.store, "bob", go(api, 60), 3e-3)
    judged(api.store, "bob", go(api, 60), 3e-3, gpu="A100")
    with browsing(api) as anybody, browsing(api, "bob") as bob, browsing(api, "eve") as eve:
        page = anybody.get("/").text
        assert "Who writes the fastest GPU kernel?" in page and 'href="/login"' in page and "Your place" not in page
        mine = bob.get("/").text
        assert "Your place: 2 of 2 on H100 , 1 of 1 on A100" in words(mine) and "fastest GPU kernel" not in mine
        assert "Your place" not in eve.get("/").text
    with browsing(api) as stale:
        stale.cookies.set("kbslurm_session", "nobody's")
        assert "Who writes the fastest GPU kernel?" in stale.get("/").text


def test_every_page_says_which_kbslurm_it_is_from(api: ServedApi) -> None:
    with browsing(api) as anybody, browsing(api, "bob") as bob:
        for page in (anybody.get("/"), bob.get("/"), anybody.get("/login")):
            assert f'<footer id="foot">kbslurm {__version__}</footer>' in page.text


def test_a_team_has_one_place_for_all_its_members(api: ServedApi) -> None:
    board(api, "teams", teams=True)
    for name in ("ada", "bob"):
        api.store.people.set_team(api.store.people.ensure(name).id, "red", by="root", now=api.now)
    judged(api.store, "cyd", go(api, 60), 1e-3, board="teams")
    judged(api.store, "bob", go(api, 60), 9e-3, board="teams")
    judged(api.store, "ada", go(api, 60), 3e-3, board="teams")
    with browsing(api, "bob") as bob:
        assert "Your place: 2 of 2 on H100" in words(bob.get("/").text)


def test_private_boards_are_for_those_invited_alone(api: ServedApi) -> None:
    board(api, "secret-club", visibility="closed")
    board(api, "old-club", visibility="closed", deadline_at=api.now + timedelta(minutes=1))
    judged(api.store, "zoe", go(api, 30), 2e-3, board="secret-club", role="staff")
    go(api, 3600)
    _, codes = api.store.invites.make(["secret-club", "old-club"], 1, by="root", now=api.now)
    with browsing(api) as anybody, browsing(api, "eve") as eve, browsing(api, "hana", "staff") as hana:
        for outsider in (anybody, eve):
            assert "club" not in outsider.get("/").text and "zoe" not in outsider.get("/").text
        assert "zoe leads" in words(card(hana.get("/").text, "secret-club"))
        api.store.invites.claim(codes[0], api.store.people.ensure("eve").id, now=api.now)
        page = eve.get("/").text
        assert "private" in words(card(page, "secret-club")) and "private" in words(row(page, "old-club"))
        assert "club" not in anybody.get("/").text
        tag = anybody.get("/").headers["etag"]
        api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
        answer = anybody.get("/", headers={"If-None-Match": tag})
        assert answer.status_code == 200 and "transpose" not in answer.text
        assert "No public competition is running." in answer.text


def test_hidden_standings_and_pseudonyms_hold_on_cards_and_rows(api: ServedApi) -> None:
    for name, told in (
        ("masked", {"names": "anonymous"}),
        ("kept", {"standings": "own"}),
        ("dark", {"standings": "hidden"}),
    ):
        board(api, name, **told)
        board(api, f"{name}-over", **told, deadline_at=api.now + timedelta(hours=1))
        for whose in (name, f"{name}-over"):
            judged(api.store, "adelaide", go(api, 60), 0.12345e-3, board=whose)
            judged(api.store, "bobby", go(api, 60), 0.23456e-3, board=whose)
    go(api, 3600)
    with browsing(api) as anybody, browsing(api, "bobby") as bobby:
        page = anybody.get("/").text
        assert "adelaide" not in page and "bobby" not in page
        assert "leads" in words(card(page, "masked")) and "123 µs" in words(card(page, "masked"))
        assert re.search(
            r"Last record by \S+ \S+ , \d{4}-\d{2}-\d{2}$", words(card(page, "masked")).split(" Standings")[0]
        )
        for name in ("kept", "dark"):
            assert "The standings are hidden" in words(card(page, name)) and "not shown" in words(
                row(page, f"{name}-over")
            )
            assert "123" not in card(page, name) + row(page, f"{name}-over")
            assert "People" not in words(card(page, name))
        theirs = bobby.get("/").text
        assert theirs.count("Your place: ") == 2, "masked, and kept, which tells one's own"
        assert "adelaide" not in theirs


def test_a_freeze_holds_and_an_ended_board_tells_its_first_only_once_it_is_thawed(api: ServedApi) -> None:
    api.store.boards.set_deadline("transpose", api.now + timedelta(hours=1), by="root", now=api.now)
    judged(api.store, "ada", go(api, 60), 2e-3)
    api.store.times.freeze("transpose", go(api, 60), by="root", now=api.now)
    judged(api.store, "zoe", go(api, 60), 1.5e-3)
    with browsing(api) as anybody, browsing(api, "zoe") as zoe:
        shown = card(anybody.get("/").text, "transpose")
        assert (
            "ada leads" in words(shown) and "frozen" in words(shown) and "zoe" not in shown and "1.50 ms" not in shown
        )
        assert "Your place" not in zoe.get("/").text, "as the standings froze"
        go(api, 3600)
        shown = row(anybody.get("/").text, "transpose")
        assert "not shown yet: the standings are frozen" in words(shown) and "ada" not in shown and "zoe" not in shown
        api.store.times.unfreeze("transpose", by="root", now=api.now)
        assert "H100 zoe 1.50 ms" in words(row(anybody.get("/").text, "transpose"))


def test_names_and_descriptions_of_others_are_text(api: ServedApi) -> None:
    board(api, "hostile", description=f"# {HOSTILE} `x`\n\nmore", gpus=["H100"])
    judged(api.store, RTL, go(api, 60), 2e-3, board="hostile")
    judged(api.store, HOSTILE, go(api, 60), 3e-3, board="hostile")
    with browsing(api) as anybody:
        page = anybody.get("/").text
        assert HOSTILE not in page and f'<strong class="name">{RTL}</strong>' in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt; x" in card(page, "hostile") and "more" not in card(
            page, "hostile"
        )
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", page)


def test_whoever_asks_again_is_told_that_it_is_the_same(api: ServedApi) -> None:
    judged(api.store, "ada", go(api, 60), 2e-3)
    with browsing(api) as anybody, browsing(api, "ada") as ada:
        first = anybody.get("/")
        assert first.headers["cache-control"] == "no-cache" and first.headers["vary"] == "Cookie, Accept-Encoding"
        again = anybody.get("/", headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304 and again.content == b""
        own = ada.get("/", headers={"If-None-Match": first.headers["etag"]})
        assert own.status_code == 200 and own.headers["cache-control"] == "no-store" and "etag" not in own.headers
        judged(api.store, "bob", go(api, 60), 1e-3)
        assert anybody.get("/", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_an_event_makes_only_the_boards_that_it_concerns_be_read_again(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        board(api, name)
        judged(api.store, "ada", go(api, 60), 2e-3, board=name)
    counts, moved, all_of_them = Counter[str](), Standings.moved, Boards.all

    def counting(what: str, told: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            counts[what] += 1
            return told(*given, **named)

        return call

    with browsing(api) as anybody:
        assert words(anybody.get("/").text).count("ada leads") == 3
        monkeypatch.setattr(Standings, "moved", counting("moved", moved))
        monkeypatch.setattr(Boards, "all", counting("all", all_of_them))
        for _ in range(20):
            anybody.get("/")
        assert counts == {}, "nothing has happened"
        judged(api.store, "bob", go(api, 60), 1e-3, board="two")
        assert "bob leads" in words(anybody.get("/").text)
        assert counts == {"all": 1, "moved": 1}
        api.client("cyd").submit("one", "H100", "test", "k.py", GOOD)
        anybody.get("/")
        assert counts == {"all": 2, "moved": 1}, "a test changes no ranking"
        person = api.store.people.ensure("bob")
        api.store.people.ban(person.id, "", by="root", now=api.now)
        assert "bob" not in anybody.get("/").text


def test_without_boards_it_says_so_and_staff_are_offered_to_make_one(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path, boards=False) as api, browsing(api) as anybody:
        assert "No public competition is running." in anybody.get("/").text and "Over" not in words(
            anybody.get("/").text
        )
        with browsing(api, "hana", "staff") as hana, browsing(api, "eve") as eve:
            assert 'href="/staff/boards/new"' in hana.get("/").text
            assert "once you have joined it" in eve.get("/").text and "/staff/" not in eve.get("/").text


def test_only_the_first_words_of_a_description_are_told() -> None:
    assert about("\n\n## Sort `it`\n\nfast") == "Sort it"
    assert about("") == "" and about("\n#\n") == ""
    long = about("word " * 80)
    assert long.endswith("word …") and len(long) <= 143


def announced(api: ServedApi, name: str, text: str) -> None:
    asked = api.store.questions.ask(api.store.people.ensure("ada").id, "Why?", board=name, now=api.now)
    api.store.questions.answer(asked.id, text, to_all=True, again=False, by="hana", now=api.now)


def test_the_newest_announcement_stands_on_the_card_in_markdown(api: ServedApi) -> None:
    with browsing(api) as anybody:
        announced(api, "transpose", "# Old\n\nnews")
        go(api, 60)
        announced(api, "transpose", f"# Moved\n\nThe **deadline** is\nlater. {HOSTILE} [here](javascript:alert(1))")
        for path in ("/", "/board/transpose/H100"):
            page = anybody.get(path).text
            assert '<p class="heading">Moved</p>' in page, path
            assert "The <strong>deadline</strong> is<br />\nlater." in page.replace("<br>", "<br />"), path
            assert HOSTILE not in page and 'href="javascript' not in page, path
        assert "Old" not in anybody.get("/").text and "Old" in anybody.get("/board/transpose/H100").text
        api.store.boards.set_visibility("transpose", "closed", by="hana", now=api.now)
        go(api, 2)
        assert "deadline" not in anybody.get("/").text, "it is that of a board that they don't see"


def version(page: str) -> str:
    found = re.search(r'data-live="/live/-/front\?seen=([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def test_the_page_is_another_when_its_cards_are_and_not_as_time_goes_by(api: ServedApi) -> None:
    store = api.store
    store.boards.set_deadline("transpose", api.now + timedelta(hours=5), zone="UTC", by="hana", now=api.now)
    with browsing(api) as anybody, browsing(api, "eve") as eve:
        first, hers = version(anybody.get("/").text), version(eve.get("/").text)
        go(api, 600)
        assert "4 h 50 min" in anybody.get("/").text and version(anybody.get("/").text) == first
        assert version(eve.get("/").text) == hers
        judged(store, "eve", api.now, 3e-3)
        go(api, 2)
        second, better = version(anybody.get("/").text), version(eve.get("/").text)
        assert second != first and better != hers
        judged(store, "bob", api.now, 4e-3)
        judged(store, "cyd", api.now, 5e-3)
        go(api, 2)
        third, same = version(anybody.get("/").text), version(eve.get("/").text)
        judged(store, "cyd", api.now, 4.5e-3)  # in the middle of the standings: no card says so
        go(api, 2)
        assert version(anybody.get("/").text) == third and version(eve.get("/").text) == same
        store.boards.set_visibility("transpose", "closed", by="hana", now=api.now)
        go(api, 2)
        assert version(anybody.get("/").text) not in (first, second, third)


def told(stream: Iterator[str]) -> str:
    """The next event's id."""
    return next(line for line in stream if line.startswith("id: ")).removeprefix("id: ")


def test_an_open_page_is_told_once_when_it_shows_something_else(api: ServedApi) -> None:
    with browsing(api) as anybody:
        seen = version(anybody.get("/").text)
        with anybody.stream("GET", f"/live/-/front?seen={seen}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert next(lines).startswith("retry: ")
            judged(api.store, "ada", api.now, 3e-3)
            go(api, 2)
            now = told(lines)
            assert now != seen and now == version(anybody.get("/").text)
        with anybody.stream("GET", f"/live/-/front?seen={seen}") as answer:
            assert told(answer.iter_lines()) == now, "what it missed"
