"""The hall shows what everybody may see, as large as the screen; the reveal opens a frozen board for the room alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flow.gallery import judged
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing, csrf
from tests.popcorn.served_api import GOOD, ServedApi, served

HALL = "/board/transpose/H100/hall"
REVEAL = "/staff/board/transpose/reveal"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def go(api: ServedApi, seconds: float) -> datetime:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(seconds)
    return api.now


def rank(api: ServedApi, scores: dict[str, float], **told: Any) -> None:
    for name, score_s in scores.items():
        judged(api.store, name, go(api, 60), score_s, **told)


def words(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><span class="name">(.*?)</span>', page)


def frozen(api: ServedApi, before: dict[str, float], since: dict[str, float], **told: Any) -> None:
    """A board on which these scores came before the freeze and those since, and that has closed."""
    api.store.boards.set_deadline("transpose", api.now + timedelta(hours=2), by="root", now=api.now)
    rank(api, before, **told)
    api.store.times.freeze("transpose", go(api, 60), by="root", now=api.now)
    rank(api, since, **told)
    go(api, 7200)


BEFORE = {"ada": 1e-3, "bob": 2e-3, "cyd": 3e-3, "dan": 4e-3}
SINCE = {"dan": 1.111e-3, "bob": 0.777e-3, "newton": 3.456e-3, "cyd": 8.888e-3}
LATE = ("1.11", "777 µs", "777.0", "3.46", "3.456", "newton")  # what the freeze keeps back


def test_the_hall_shows_places_the_record_and_the_time_left(api: ServedApi) -> None:
    api.store.boards.set_deadline("transpose", api.now + timedelta(hours=5, seconds=30), by="root", now=api.now)
    rank(api, {"bob": 4e-3, "ada": 2e-3, "cyd": 2.4e-3, HOSTILE: 9e-3})
    with browsing(api) as anybody:
        page = anybody.get(HALL.replace("transpose", "TRANSPOSE").replace("H100", "h100")).text
        assert names(page)[:3] == ["ada", "cyd", "bob"] and HOSTILE not in page
        shown = words(page)
        assert "closes in 4 h 56 min" in shown and "4 ranked" in shown
        assert "★ Record ada 2.00 ms 50 % faster than bob" in shown
        assert "+20 %" in shown and "4.5×" in shown, "how far the others are behind"
        assert 'data-live="/live/transpose?gpu=H100"' in page and 'href="/board/transpose/A100/hall"' in page
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", page)
        first = re.search(r'data-record="(.*?)"', page)
        rank(api, {"cyd": 2.3e-3})
        same = re.search(r'data-record="(.*?)"', anybody.get(HALL).text)
        rank(api, {"cyd": 1e-3})
        other = re.search(r'data-record="(.*?)"', anybody.get(HALL).text)
        assert first and same and other and first[1] == same[1] != other[1]
        empty = anybody.get("/board/transpose/A100/hall")
        assert "Nobody has ranked yet." in empty.text and 'data-record="' not in empty.text


def test_a_hall_shows_no_more_than_the_board(api: ServedApi) -> None:
    rank(api, {"adelaide": 2e-3, "bobby": 3e-3})
    with browsing(api) as anybody, browsing(api, "hana", "staff") as hana:
        for told in ({"names": "anonymous"}, {"standings": "hidden"}, {"standings": "own"}):
            api.store.boards.edit("transpose", by="root", names="real", standings="shown", now=go(api, 60))
            assert "adelaide" in anybody.get(HALL).text
            api.store.boards.edit("transpose", by="root", now=go(api, 60), **told)  # type: ignore[arg-type]
            for page in (anybody.get(HALL).text, hana.get(HALL).text):
                assert "adelaide" not in page and "bobby" not in page
                assert ("2.000 ms" in page) is ("names" in told)
                assert ("The standings are hidden" in page) is ("names" not in told)
        api.store.boards.edit("transpose", by="root", names="real", standings="shown", now=go(api, 60))
        api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
        assert anybody.get(HALL).status_code == 404 and hana.get(HALL).status_code == 200
        assert anybody.get("/board/nowhere/H100/hall").status_code == 404
        assert hana.get("/board/transpose/T4/hall").status_code == 404


def test_a_frozen_hall_says_so_and_keeps_back_what_came_since(api: ServedApi) -> None:
    frozen(api, BEFORE, SINCE)
    with browsing(api) as anybody:
        page = anybody.get(HALL).text
        assert names(page) == ["ada", "bob", "cyd", "dan"] and "Frozen since" in words(page)
        assert not any(secret in page for secret in LATE)


def steps(browser: httpx.Client, gpu: str = "H100") -> list[str]:
    """Every step's page, by its own links."""
    pages = [browser.get(REVEAL, params={"gpu": gpu}).text]
    while link := re.search(r'data-next href="(.*?)"', pages[-1]):
        pages.append(browser.get(link[1].replace("&amp;", "&")).text)
    return pages


def test_a_reveal_opens_one_result_a_step_and_tells_nothing_before(api: ServedApi) -> None:
    frozen(api, BEFORE, SINCE)
    with browsing(api, "hana", "staff") as hana, browsing(api) as anybody:
        pages = steps(hana)
        assert [names(one) for one in pages] == [
            ["ada", "bob", "cyd", "dan"],
            ["ada", "bob", "cyd", "newton", "dan"],
            ["ada", "dan", "bob", "cyd", "newton"],
            ["ada", "dan", "bob", "cyd", "newton"],
            ["bob", "ada", "dan", "cyd", "newton"],
        ]
        for page, secrets in zip(pages, (LATE, LATE[:3], LATE[1:3], LATE[1:3], ()), strict=True):
            assert not any(one in page for one in secrets), secrets
        assert "8.88" not in "".join(pages), "what was slower than before is nobody's result"
        said = [words(re.search(r'role="status">(.*?)</p>', one, re.DOTALL)[1]) for one in pages]  # type: ignore[index]
        assert said == [
            "The standings as everybody knows them.",
            "newton comes in with 3.46 ms : place 4",
            "dan 4.00 ms → 1.11 ms : ▲ 3 , from place 5 to place 2",
            "cyd keeps 3.00 ms : place 4",
            "bob 2.00 ms → 777 µs : ▲ 2 , from place 3 to place 1",
        ]
        assert [one.count(">waits<") for one in pages] == [3, 3, 2, 1, 0]
        assert "Open a newcomer’s result" in words(pages[0]) and "Open the result of dan" in words(pages[1])
        assert hana.get(REVEAL, params={"gpu": "h100", "step": 99}).text.count("data-next") == 0
        # and nobody else has seen any of it
        for path in (HALL, "/board/transpose/H100", "/"):
            assert not any(secret in anybody.get(path).text for secret in LATE), path
        assert api.store.boards.get("transpose").frozen_at is not None
        # the last step offers to show it to everybody, which a host confirms
        assert [("/unfreeze" in one) for one in pages] == [False] * 4 + [True]
        answer = hana.post("/staff/board/transpose/unfreeze", data={"csrf": csrf(pages[-1])})
        assert answer.status_code == 303 and names(anybody.get(HALL).text) == ["bob", "ada", "dan", "cyd", "newton"]


def test_one_begins_with_the_first_few(api: ServedApi) -> None:
    before = {f"p{n}": 1e-3 * (1 + n / 10) for n in range(14)}
    frozen(api, before, {"p13": 0.9e-3, "p12": 1.9e-3, "p2": 0.8e-3})
    with browsing(api, "hana", "staff") as hana:
        assert "top=10" in hana.get(REVEAL).text and "top=20" not in hana.get(REVEAL).text
        answer = hana.get(REVEAL, params={"gpu": "H100", "top": 10})
        assert answer.headers["location"] == f"{REVEAL}?gpu=H100&step=2#opened"
        page = hana.get(answer.headers["location"]).text
        assert names(page)[0] == "p13" and "Open the result of p2" in words(page)


def test_a_reveal_is_for_who_may_see_all_standings(api: ServedApi) -> None:
    frozen(api, BEFORE, SINCE)
    board = api.store.boards.get("transpose")
    for name, role in (("gia", "grader"), ("obi", "observer")):
        person = api.store.people.ensure(name)
        api.store.roster.set_role_on(
            board.id,
            person.id,
            role,  # type: ignore[arg-type]
            by="root",
            now=api.now,
        )
    with browsing(api) as nobody:
        answer = nobody.get(REVEAL)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login?next=/staff/board")
    for name, status in (("dan", 403), ("obi", 403), ("gia", 200)):
        with browsing(api, name) as browser:
            answer = browser.get(REVEAL, params={"step": 99})
            assert answer.status_code == status, name
            assert any(secret in answer.text for secret in LATE) is (status == 200)
            assert "/unfreeze" not in answer.text, "that is a host's"
            assert answer.headers["cache-control"] == "no-store"
    with browsing(api, "hana", "staff") as hana:
        assert hana.get(REVEAL, params={"gpu": "T4"}).status_code == 404
        assert hana.get("/staff/board/nowhere/reveal").status_code == 404
        assert hana.get(REVEAL, params={"step": -1}).status_code == 422


def test_a_room_sees_pseudonyms_where_everybody_does(api: ServedApi) -> None:
    api.store.boards.edit("transpose", by="root", names="anonymous", now=api.now)
    frozen(api, {"adelaide": 1e-3, "bobby": 2e-3}, {"bobby": 0.5e-3, "newcomer-nell": 3e-3})
    numbers = [str(api.store.people.ensure(name).id) for name in ("adelaide", "bobby", "newcomer-nell")]
    with browsing(api, "hana", "staff") as hana:
        pages = steps(hana)
        assert len(pages) == 3
        for page in pages:
            assert not re.search(r"adelaide|bobby|nell", page) and "Nobody" not in page
            assert not {*re.findall(r'data-key="(.*?)"', page)} & {*numbers}
        api.store.times.unfreeze("transpose", by="root", now=api.now)
        assert names(hana.get(HALL).text) == names(pages[-1])


def test_a_board_that_isnt_frozen_has_nothing_to_reveal(api: ServedApi) -> None:
    rank(api, {"ada": 1e-3})
    with browsing(api, "hana", "staff") as hana:

        def shown() -> str:
            return hana.get(REVEAL).text

        assert "so there is nothing to reveal" in words(shown()) and "data-next" not in shown()
        api.store.times.freeze("transpose", api.now + timedelta(hours=1), by="root", now=api.now)
        assert "so there is nothing to reveal" in words(shown()), "not yet"
        go(api, 3601)
        assert "Nobody has submitted since the freeze." in words(shown()) and "/unfreeze" in shown()
        rank(api, {"ada": 0.5e-3})
        assert "transpose still takes submissions" in words(shown()) and "data-next" in shown()
        api.client("bob").submit("transpose", "H100", "leaderboard", "k.py", GOOD)
        api.store.boards.close("transpose", by="root", now=go(api, 60))
        assert "1 ranked run of transpose hasn’t ended yet" in words(shown()) and "still takes" not in shown()


def test_who_submitted_since_waits_on_teams_and_gpu_types_of_their_own(api: ServedApi) -> None:
    api.store.boards.edit("transpose", by="root", teams=True, now=api.now)
    for name in ("ada", "bob"):
        api.store.people.set_team(api.store.people.ensure(name).id, "red", by="root", now=api.now)
    frozen(api, {"ada": 2e-3, "cyd": 1e-3}, {"bob": 5e-3})
    with browsing(api, "hana", "staff") as hana:
        pages = steps(hana)
        assert [names(one) for one in pages] == [["cyd", "red"], ["cyd", "red"]]
        assert "red keeps 2.00 ms : place 2" in words(pages[1])
        assert len(steps(hana, "A100")) == 1


def test_a_large_board_shows_the_places_around_what_is_opened(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.staff.reveal.SHOWN", 4)
    before = {f"p{n:02}": 1e-3 * (1 + n / 10) for n in range(12)}
    frozen(api, before, {"p10": 1.55e-3, "p00": 0.9e-3})

    def part(page: str) -> tuple[list[str], list[tuple[str, str]]]:
        return names(page), re.findall(r"(\d+) places (above|below)", page)

    with browsing(api, "hana", "staff") as hana:
        pages = steps(hana)
    assert part(pages[0]) == (["p08", "p09", "p10", "p11"], [("8", "above")])
    assert part(pages[1]) == (["p04", "p05", "p10", "p06"], [("4", "above"), ("4", "below")])
    assert part(pages[2]) == (["p00", "p01", "p02", "p03"], [("8", "below")])
