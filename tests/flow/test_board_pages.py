"""Boards are drawn once for everybody: nobody sees what only others may see, nor what was true before."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api.listener import EventListener
from kbslurm.api.pages.boards.board_views import BoardViews, Found, Place, Reader
from kbslurm.api.pages.boards.drawn_boards import DrawnBoards
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.api.waiting import Histories
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotFound
from kbslurm.flow.remove import remove
from kbslurm.store.standings import Standings
from kbslurm.store.tokens import Tokens
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing, csrf, judged
from tests.popcorn.served_api import GOOD, ServedApi, served

PATIENCE_S = 120.0
PAGE = "/board/transpose/H100"
HEADER = re.compile(r"<header>.*?</header>", re.DOTALL)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def later(api: ServedApi, seconds: float) -> None:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(seconds)


def ranked(text: str) -> list[str]:
    return re.findall(r'data-side="\w+"[^>]*>.*?<th scope="row"><(?:a|span) class="name"[^>]*>(\w+)</', text)


def test_each_reader_gets_the_same_board_under_their_own_header(api: ServedApi) -> None:
    judged(api, "grace")
    with browsing(api, "hana", "staff") as hana, browsing(api, "ada") as ada, browsing(api) as anybody:
        texts = {}
        for _ in range(2):  # drawn for whoever came first, and then for the others
            texts = {name: one.get(PAGE).text for name, one in (("hana", hana), ("ada", ada), ("", anybody))}
        assert len({HEADER.sub("", text) for text in texts.values()}) == 1
        headers = {name: HEADER.findall(text) for name, text in texts.items()}
        for name, found in headers.items():
            assert len(found) == 1
            assert {other for other in ("hana", "ada") if f"<span>{other}</span>" in found[0]} == ({name} - {""})
            assert ("/staff" in found[0]) is (name == "hana") and ("csrf" in found[0]) is bool(name)
        assert csrf(texts["ada"]) != csrf(texts["hana"])
        assert ada.post("/logout", data={"csrf": csrf(texts["hana"])}).status_code == 403
        assert ada.post("/logout", data={"csrf": csrf(texts["ada"])}).status_code == 303
        assert ada.get(PAGE).text == anybody.get(PAGE).text, "she is nobody in particular again"


def test_whoever_helps_is_led_to_the_staffs_pages_from_a_board_too(api: ServedApi) -> None:
    judged(api, "grace")
    gina = api.store.people.ensure("gina")
    with browsing(api, "gina") as hers, browsing(api, "ada") as ada:
        assert 'href="/staff"' not in hers.get(PAGE).text
        api.store.roster.set_role_on(api.store.boards.get("transpose").id, gina.id, "grader", by="host", now=api.now)
        assert 'href="/staff"' in hers.get(PAGE).text and 'href="/staff"' not in ada.get(PAGE).text


def test_a_board_by_invitation_is_never_shown_to_others_whoever_had_it_drawn(api: ServedApi) -> None:
    store = api.store
    judged(api, "grace")
    store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    codes = store.invites.make(["transpose"], 2, by="host", now=api.now)[1]
    ada = store.people.ensure("ada")
    store.invites.claim(codes[0], ada.id, now=api.now)
    with ExitStack() as open_ones:
        eve = open_ones.enter_context(browsing(api, "eve"))
        readers = {
            "hana": open_ones.enter_context(browsing(api, "hana", "staff")),
            "ada": open_ones.enter_context(browsing(api, "ada")),
            "eve": eve,
            "": open_ones.enter_context(browsing(api)),
        }

        def seen() -> set[str]:
            answers = {name: one.get(PAGE) for name, one in readers.items()}
            assert {answer.headers["cache-control"] for answer in answers.values()} == {"no-store"}
            assert all((answer.status_code == 200) is ("grace" in answer.text) for answer in answers.values())
            return {name for name, answer in answers.items() if answer.status_code == 200}

        for _ in range(2):
            assert seen() == {"hana", "ada"}
        for path in (PAGE, "/board/transpose/NOSUCH", "/live/transpose?gpu=NOSUCH", "/live/transpose"):
            assert eve.get(path).text == eve.get(path.replace("transpose", "nowhere")).text.replace(
                "nowhere", "transpose"
            ), "as if there were none"
        store.invites.revoke(codes[0], by="host", now=api.now)
        assert seen() == {"hana"}
        store.invites.claim(codes[1], ada.id, now=api.now)
        assert seen() == {"hana", "ada"}
        store.people.ban(ada.id, "", by="root", now=api.now)
        assert seen() == {"hana"}
        store.people.set_role(store.people.ensure("hana").id, "participant", by="root", now=api.now)
        assert seen() == set()


def test_whoever_kept_a_public_board_gets_nothing_of_it_once_it_is_private(api: ServedApi) -> None:
    judged(api, "grace")
    with browsing(api) as anybody:
        kept = anybody.get(PAGE)
        api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
        for wanted in (kept.headers["etag"], "*"):
            assert anybody.get(PAGE, headers={"If-None-Match": wanted}).status_code == 404
        api.store.boards.set_visibility("transpose", "public", by="host", now=api.now)
        assert anybody.get(PAGE, headers={"If-None-Match": kept.headers["etag"]}).status_code == 304


def test_a_browser_keeps_what_everybody_sees_while_it_holds(api: ServedApi) -> None:
    judged(api, "grace")
    with browsing(api) as anybody, browsing(api, "ada") as ada:
        first = anybody.get(PAGE)
        etag = first.headers["etag"]
        assert first.headers["cache-control"] == "no-cache" and first.headers["vary"] == "Cookie, Accept-Encoding"
        for named in (etag, f'"other", {etag}', etag.removeprefix("W/"), "*"):
            again = anybody.get(PAGE, headers={"If-None-Match": named})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), named
        hers = ada.get(PAGE, headers={"If-None-Match": etag})
        assert hers.status_code == 200 and "<span>ada</span>" in hers.text, "hers is another page"
        assert hers.headers["cache-control"] == "no-store" and "etag" not in hers.headers
        judged(api, "ada", 0.25)
        changed = anybody.get(PAGE, headers={"If-None-Match": etag})
        assert changed.status_code == 200 and ranked(changed.text) == ["ada", "grace"]
        assert anybody.head(PAGE).headers["etag"] == changed.headers["etag"] != etag


@dataclass(frozen=True)
class Happening:
    """Something that happens to a board on which grace leads before ada, and whether the page shows it."""

    name: str
    act: Callable[[ServedApi, SubmissionId], object]
    shows: Callable[[str], bool]


HAPPENINGS = [
    Happening("verdict", lambda api, _: judged(api, "eve", 0.1), lambda text: ranked(text) == ["eve", "grace", "ada"]),
    Happening(
        "ban",
        lambda api, _: api.store.people.ban(api.store.people.ensure("grace").id, "", by="root", now=api.now),
        lambda text: ranked(text) == ["ada"],
    ),
    Happening(
        "removal",
        lambda api, number: remove(
            api.store.submissions, number, api.store.people.ensure("grace").id, "grace", api.now
        ),
        lambda text: ranked(text) == ["ada"],
    ),
    Happening(
        "close",
        lambda api, _: api.store.boards.close("transpose", by="root", now=api.now),
        lambda text: "board is closed" in text,
    ),
    Happening(
        "other GPU types",
        lambda api, _: api.store.boards.edit("transpose", by="root", gpus=["H100", "B200"], now=api.now),
        lambda text: "B200</a>" in text and "A100" not in text,
    ),
    Happening(
        "a deadline, without an event",
        lambda api, _: api.store.boards.set_deadline("transpose", api.now + timedelta(days=3), now=api.now),
        lambda text: "Open until" in text,
    ),
    Happening(
        "deletion",
        lambda api, _: api.store.boards.delete("transpose", force=True, by="root", now=api.now),
        lambda text: "there is no board" in text,
    ),
    Happening(
        "submission",
        lambda api, _: api.client("eve").submit("transpose", "H100", "test", "k.py", GOOD),
        lambda text: "1 waiting" in text,
    ),
    Happening("rejudging", lambda api, _: rejudged(api), lambda text: ranked(text) == []),
]


def rejudged(api: ServedApi) -> None:
    """A new version of the problem goes live, for which nothing is judged yet."""
    board = api.store.boards.get("transpose")
    version = api.store.problems.add(dataclasses.replace(board.problem, tests=({"rows": 3, "cols": 3, "seed": 1},)))
    api.store.boards.set_live("transpose", version, by="root", now=api.now)


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda one: one.name)
def test_the_page_shows_at_once_what_has_happened(api: ServedApi, happening: Happening) -> None:
    judged(api, "ada", 0.5)
    number = SubmissionId(judged(api, "grace", 0.25))
    with browsing(api) as anybody, browsing(api, "eve") as signed_in:
        for one in (anybody, signed_in):
            assert ranked(one.get(PAGE).text) == ["grace", "ada"] and not happening.shows(one.get(PAGE).text)
        happening.act(api, number)
        for one in (anybody, signed_in):
            assert happening.shows(one.get(PAGE).text)


def test_what_passes_without_an_event_is_noticed_too(api: ServedApi) -> None:
    """A deadline, and a daemon that no longer renews its lease."""
    store = api.store
    store.boards.set_deadline("transpose", api.now + timedelta(seconds=90), by="host", now=api.now)
    assert store.leases.hold("daemon", "me", 30, api.now)
    with browsing(api) as anybody:
        text = anybody.get(PAGE).text
        assert "Open until" in text and "board is closed" not in text and "the scheduler is down" not in text
        before = store.events.last()
        later(api, 31)
        assert "the scheduler is down" in anybody.get(PAGE).text
        later(api, 60)
        text = anybody.get(PAGE).text
        assert "Open until" not in text and "board is closed" in text
        assert store.events.last() == before


def test_pages_and_gpu_types_of_a_board_are_apart(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.boards.drawn_boards.PAGE", 1)
    judged(api, "ada", 0.5, 0.0001)
    judged(api, "grace", 0.25, 0.0001)
    with browsing(api) as anybody:
        for _ in range(2):
            assert ranked(anybody.get(PAGE).text) == ["grace"]
            assert ranked(anybody.get(f"{PAGE}?from=1").text) == ["ada"]
            assert "on A100" in anybody.get("/board/transpose/A100").text
            assert ranked(anybody.get("/board/transpose/A100").text) == []
            assert anybody.get("/board/transpose/nowhere").status_code == 404


def test_a_board_has_as_many_pages_as_it_fills_however_many_are_asked_for(api: ServedApi) -> None:
    """Each page that is open anywhere is drawn after every event, so nobody may invent more of them."""
    judged(api, "ada")
    with browsing(api) as anybody:
        first = anybody.get(PAGE)
        for inside in (1, 99):
            assert anybody.get(f"{PAGE}?from={inside}").headers["etag"] == first.headers["etag"], "the same page"
        for beyond in (100, 2**31 - 1):
            answer = anybody.get(f"{PAGE}?from={beyond}")
            assert answer.status_code == 404 and "Only 1 place is taken here" in answer.text
            assert anybody.get(f"/live/transpose?gpu=H100&from={beyond}").status_code == 404
        with Open.of(anybody, "/live/transpose?gpu=H100&from=99") as page:
            page.until(lambda: bool(page.named("standings")))
            assert page.version in first.text


class Open:
    """An open page's stream, read in a thread."""

    def __init__(self, browser: httpx.Client, path: str, last_seen: str | None = None) -> None:
        self.events: list[tuple[str, Any]] = []
        self.version = ""
        self._heard = threading.Condition()
        place = browser.base_url
        self._connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE_S)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"Cookie": cookies} | ({"Last-Event-ID": last_seen} if last_seen else {})
        self._connection.request("GET", path, headers=headers)
        self._thread = threading.Thread(target=self._read)

    @classmethod
    @contextmanager
    def of(cls, browser: httpx.Client, path: str, last_seen: str | None = None) -> Iterator[Open]:
        found = cls(browser, path, last_seen)
        found._thread.start()
        try:
            found.until(lambda: bool(found.events))
            yield found
        finally:
            with suppress(OSError):
                found._connection.sock.shutdown(socket.SHUT_RDWR)
            found._thread.join()
            found._connection.close()

    def until(self, happened: Callable[[], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(happened, PATIENCE_S), self.events[-3:]

    def named(self, name: str) -> list[Any]:
        return [data for event, data in self.events if event == name]

    def ends(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        name = ""
        with suppress(http.client.HTTPException, OSError):
            answer = self._connection.getresponse()
            assert answer.status == 200
            while line := answer.readline().decode():
                key, _, value = line.rstrip("\n").partition(": ")
                with self._heard:
                    if key == "event":
                        name = value
                    elif key == "data":
                        self.events.append((name, json.loads(value)))
                    elif key == "id":
                        self.version = value
                    elif line.startswith(":"):
                        self.events.append(("", None))
                    self._heard.notify_all()


def live(browser: httpx.Client, page: str = PAGE) -> str:
    (found,) = re.findall(r'data-live="([^"]+)"', browser.get(page).text)
    return str(found).replace("&amp;", "&")


def test_an_open_board_is_sent_what_its_page_then_shows(api: ServedApi) -> None:
    judged(api, "ada", 0.5)
    with browsing(api) as anybody, browsing(api) as reader:
        before = live(anybody)
        with Open.of(reader, before) as page:
            judged(api, "<b>eve</b>", 0.25)
            page.until(lambda: any("eve" in html for html in page.named("standings")))
            html = page.named("standings")[-1]
            assert "&lt;b&gt;eve" in html and "<b>eve" not in html
            api.client("mia").submit("transpose", "H100", "test", "k.py", GOOD)
            page.until(lambda: "1 waiting" in (page.named("queue") or [""])[-1])
            shown = anybody.get(PAGE).text
            assert html.strip() in shown and page.named("queue")[-1].strip() in shown
            version = page.version
        assert version and f"seen={version}" in live(anybody)
        with Open.of(reader, live(anybody)) as page:
            page.until(lambda: len(page.events) > 1)  # a comment where news would be
            assert page.named("standings") == page.named("queue") == [], "it has seen all"
        with Open.of(reader, live(anybody), before.partition("seen=")[2]) as page:
            page.until(lambda: bool(page.named("standings")))
            assert "eve" in page.named("standings")[0], "it missed that while its connection was down"


def test_news_of_a_gpu_type_that_a_board_hasnt_are_not_found_and_those_of_one_it_loses_end(
    api: ServedApi, caplog: pytest.LogCaptureFixture
) -> None:
    with browsing(api) as anybody:
        answer = anybody.get("/live/transpose?gpu=T4", headers={"Accept": "application/json"})
        assert (answer.status_code, "there is no GPU 'T4'" in answer.text) == (404, True), answer.text
        with Open.of(anybody, "/live/transpose?gpu=H100") as page:
            api.store.boards.edit("transpose", gpus=["A100"], by="host", now=api.now)
            page.ends()
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "act",
    [
        lambda api, code: api.store.invites.revoke(code, by="root", now=api.now),
        lambda api, code: api.store.people.ban(api.store.people.ensure("ada").id, "", by="root", now=api.now),
        lambda api, code: api.store.boards.delete("transpose", force=True, by="root", now=api.now),
    ],
    ids=["revoked", "banned", "deleted"],
)
def test_a_private_boards_news_reach_nobody_who_may_no_longer_see_it(
    api: ServedApi, act: Callable[[ServedApi, str], object]
) -> None:
    judged(api, "grace", 0.5)
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    (code,) = api.store.invites.make(["transpose"], 1, by="host", now=api.now)[1]
    for name in ("mia", "zoe"):
        api.store.people.ensure(name, "staff")
    api.store.invites.claim(code, api.store.people.ensure("ada").id, now=api.now)
    with browsing(api, "ada") as ada, Open.of(ada, live(ada)) as page:
        judged(api, "mia", 0.4)
        page.until(lambda: bool(page.named("standings")))
        act(api, code)
        with suppress(NotFound):  # where the board is deleted
            judged(api, "zoe", 0.3)
        page.ends()
        assert not any("zoe" in html for html in page.named("standings"))


def test_a_board_that_becomes_private_ends_the_streams_of_everybody_else(api: ServedApi) -> None:
    with (
        browsing(api) as anybody,
        browsing(api, "hana", "staff") as hana,
        Open.of(anybody, live(anybody)) as theirs,
        Open.of(hana, live(hana)) as hers,
    ):
        api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
        judged(api, "hana")
        theirs.ends()
        hers.until(lambda: any("hana" in html for html in hers.named("standings")))
        assert not any("hana" in html for html in theirs.named("standings"))


def test_a_lost_wake_up_costs_a_heartbeat_and_nothing_else(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.boards.board_news.PULSE_S", 0.2)
    monkeypatch.setattr(EventListener, "_call", lambda self, subjects: None)
    with browsing(api) as anybody, Open.of(anybody, live(anybody)) as page:
        judged(api, "grace")
        page.until(lambda: any("grace" in html for html in page.named("standings")))


@pytest.mark.parametrize("error", [psycopg.OperationalError("server closed the connection"), ValueError("odd")])
def test_a_look_that_fails_ends_nobodys_news(api: ServedApi, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    now, failed = BoardViews.now, 0

    async def failing(views: BoardViews, place: Place) -> Found:
        nonlocal failed
        failed += 1
        if failed <= 2:
            raise error
        return await now(views, place)

    monkeypatch.setattr("kbslurm.api.pages.boards.board_news.PULSE_S", 0.2)
    monkeypatch.setattr(BoardViews, "now", failing)
    with browsing(api) as anybody, Open.of(anybody, live(anybody)) as page:
        judged(api, "grace")
        page.until(lambda: any("grace" in html for html in page.named("standings")))
    assert failed > 2


def counting(monkeypatch: pytest.MonkeyPatch, costs: Counter[str], **what: tuple[type, str]) -> None:
    """Count the calls of each of these methods."""

    def counted(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            costs[name] += 1
            return inner(*given, **more)

        return call

    for name, (owner, method) in what.items():
        monkeypatch.setattr(owner, method, counted(name, getattr(owner, method)))


def test_a_crowd_costs_hardly_more_than_one(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs is counted, boards drawn and standings looked up: for many open pages at a verdict, and for many that
    load at once. Both are due once for each event, however slow the machine is; only looks are made by the clock."""
    judged(api, "ada", 0.5)
    costs: Counter[str] = Counter()
    counting(
        monkeypatch,
        costs,
        looks=(DrawnBoards, "now"),
        drawn=(DrawnBoards, "_drawn"),
        standings=(Standings, "moved"),
        reread=(Standings, "scored_of"),
        whole=(Standings, "best"),
    )
    many = 40
    with ExitStack() as open_ones:
        one = open_ones.enter_context(browsing(api))
        path = live(one)
        pages = [
            open_ones.enter_context(Open.of(open_ones.enter_context(browsing(api)), path)) for _ in range(many)
        ]  # fmt: skip
        costs.clear()
        judged(api, "grace", 0.25)
        for page in pages:
            page.until(lambda page=page: any("grace" in html for html in page.named("standings")))  # type: ignore[misc]
        assert 1 <= costs["standings"] <= costs["drawn"] < many / 4, costs
        assert costs["reread"] == 1 and costs["whole"] == 0 and costs["looks"] < many, costs
    held, asked, drawn = threading.Event(), threading.Barrier(many + 1), DrawnBoards._drawn

    def slow(self: DrawnBoards, *what: Any) -> Any:
        held.wait(PATIENCE_S)
        return drawn(self, *what)

    monkeypatch.setattr(DrawnBoards, "_drawn", slow)
    costs.clear()
    judged(api, "eve", 0.1)  # all of them come to a board that has changed

    def load(_: int) -> str:
        with browsing(api) as browser:
            asked.wait(PATIENCE_S)
            return browser.get(PAGE).text

    with ThreadPoolExecutor(many) as threads:
        found = [threads.submit(load, n) for n in range(many)]
        asked.wait(PATIENCE_S)
        held.set()
        (text,) = {one.result() for one in found}
    assert ranked(text) == ["eve", "grace", "ada"]
    assert 1 <= costs["standings"] <= costs["drawn"] < many / 4, costs
    assert costs["reread"] == 1 and costs["whole"] == 0, costs


def test_those_who_ask_at_the_same_time_are_answered_by_one_look(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are made a few at a time, so how many share a look depends on the machine; here all have asked before."""
    judged(api, "ada", 0.5)
    views = BoardViews(api.context, Histories(), StandingsCache(api.context))
    place = Place(board="transpose", gpu="H100")
    secrets = [api.store.tokens.issue(api.store.people.ensure(name).id, kind="web", now=api.now) for name in "uvw"]
    costs: Counter[str] = Counter()
    counting(monkeypatch, costs, looks=(DrawnBoards, "now"), readers=(Tokens, "people_of"))

    async def crowd() -> list[tuple[Found, Reader | None]]:
        return await asyncio.gather(*(views.of(place, secret) for secret in (*secrets, None) for _ in range(10)))

    found = asyncio.run(crowd())
    assert [reader and reader.person.name for _, reader in found] == [
        name for name in ("u", "v", "w", None) for _ in range(10)
    ]
    assert costs["looks"] == 1 and costs["readers"] < 10, costs  # whoever is told first asks first who they are
