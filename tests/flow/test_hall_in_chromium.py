"""What of the start page, the hall and the reveal only a browser shows: clocks, news, scrolling, keys, and that nothing
moves that shouldn't."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from kbslurm.api.pages.boards import opening
from kbslurm.api.pages.rendering import packed_file, static_file
from tests import databases
from tests.flow.chromium import THEMES, WIDTHS, Chromium, started, until
from tests.flow.gallery import judged, played
from tests.popcorn.served_api import ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
HALL, A100 = "/board/transpose/H100/hall", "/board/transpose/A100/hall"
REVEAL = "/staff/board/frozen/reveal?gpu=H100"
ENTER, SPACE, LEFT = "\ue007", " ", "\ue012"
LONG = "a-name-that-goes-on-and-on-without-any-space-for-as-long-as-may"
BEFORE = {"ada": 1e-3, "محمد الخوارزمي": 2e-3, LONG: 3e-3, "dan": 4e-3}
SINCE = {"dan": 1.111e-3, "محمد الخوارزمي": 0.777e-3, "newton": 3.456e-3}


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    """A board with twelve people that closes in two days, and a frozen one that has closed."""
    url = postgres_server.create(template_database)
    with served(url, tmp_path_factory.mktemp("service")) as built:
        store, now = built.store, built.now
        played(store, now - timedelta(days=3))
        store.boards.set_deadline("transpose", now + timedelta(days=2), by="root", now=now)
        problem = store.boards.get("transpose").problem
        store.boards.add(
            "frozen", problem, gpus=["H100"], confirm=False, deadline_at=now - timedelta(minutes=1),
            now=now - timedelta(days=2),
        )  # fmt: skip
        store.times.freeze("frozen", now - timedelta(hours=5), by="root", now=now - timedelta(hours=6))
        for hours, scores in ((9, BEFORE), (4, SINCE)):
            for n, (name, score_s) in enumerate(scores.items()):
                judged(store, name, now - timedelta(hours=hours) + timedelta(minutes=n), score_s, board="frozen")
        yield built
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def chromium(shared: Chromium, api: ServedApi) -> Iterator[Chromium]:
    """The browser, in which nobody is signed in, as wide as a desk."""
    shared.open(f"{api.url}/static/icon.svg")
    shared.call("DELETE", "/cookie")
    shared.complaints()
    shared.view(1280)
    yield shared
    shared.scripts(True)


def signed_in(api: ServedApi, chromium: Chromium, name: str) -> None:
    session = api.store.tokens.issue(api.store.people.ensure(name, "staff").id, kind="web", now=api.now)
    chromium.sign_in(session)


def names(chromium: Chromium) -> list[str]:
    found: Any = chromium.ask("return [...document.querySelectorAll('.hall-places .name')].map(one => one.textContent)")
    return list(found)


def text(chromium: Chromium, css: str) -> str:
    return str(chromium.ask(f"return document.querySelector({css!r})?.innerText ?? ''"))


def press(chromium: Chromium, key: str) -> None:
    chromium.write("body", key)


def calm(chromium: Chromium, wanted: bool) -> None:
    feature = {"name": "prefers-reduced-motion", "value": "reduce" if wanted else "no-preference"}
    chromium.devtools("Emulation.setEmulatedMedia", features=[feature])


@pytest.mark.parametrize(
    "path", ["/", HALL, A100, "/board/frozen/H100/hall", REVEAL, f"{REVEAL}&step=2", f"{REVEAL}&step=9"]
)
def test_every_page_is_clear_for_everybody_at_every_width(api: ServedApi, chromium: Chromium, path: str) -> None:
    if path.startswith("/staff"):
        signed_in(api, chromium, "hana")
    chromium.open(api.url + path)
    for theme in THEMES:
        for width in WIDTHS:
            chromium.view(width, theme=theme)
            assert chromium.barriers() == [], (theme, width)
            assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), (theme, width)
    assert chromium.complaints() == []


def shifted(api: ServedApi, chromium: Chromium, path: str) -> float:
    """By how much what had been painted has moved, until the clock ran and a little longer."""
    chromium.open(api.url + path)
    until(lambda: ":" in text(chromium, "time[data-left]"), "the clock runs")
    script = (
        "const done = arguments[0]; let all = 0; new PerformanceObserver((list) => {"
        " for (const one of list.getEntries()) if (!one.hadRecentInput) all += one.value;"
        "}).observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(all), 400)"
    )
    return float(chromium.call("POST", "/execute/async", script=script, args=[]))


@pytest.mark.parametrize("path", ["/", HALL])
def test_nothing_shifts_after_the_first_paint(api: ServedApi, chromium: Chromium, path: str) -> None:
    for width in WIDTHS:
        chromium.view(width)
        assert shifted(api, chromium, path) == 0, width


@pytest.mark.parametrize("path", ["/", HALL])
def test_nothing_shifts_where_a_script_comes_late(
    api: ServedApi, chromium: Chromium, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock is longer than the words that it replaces."""

    def late(name: str) -> bytes:
        if name.endswith(".js"):
            time.sleep(0.3)
        return packed_file(name)

    monkeypatch.setattr(opening, "packed_file", late)
    chromium.devtools("Network.enable")
    chromium.devtools("Network.setCacheDisabled", cacheDisabled=True)
    chromium.view(700)  # on the start page there is room beside the time that is left
    try:
        assert shifted(api, chromium, path) == 0
    finally:
        chromium.devtools("Network.disable")


def test_a_browser_that_looks_for_an_icon_by_itself_finds_it(api: ServedApi) -> None:
    """As it does beside a file that is no page and names none."""
    answer = httpx.get(f"{api.url}/favicon.ico", trust_env=False)
    assert answer.status_code == 200 and answer.headers["content-type"] == "image/svg+xml"
    assert answer.content == static_file("icon.svg")


def test_the_time_left_counts_down_where_scripts_run(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(f"{api.url}/")
    first = until(lambda: ":" in text(chromium, "time[data-left]") and text(chromium, "time[data-left]"), "it runs")
    assert "day" in first
    until(lambda: text(chromium, "time[data-left]") != first, "a second passes")
    chromium.scripts(False)
    chromium.open(f"{api.url}/")
    chromium.scripts(True)
    assert text(chromium, "time[data-left]").endswith(" h")


def test_a_record_is_announced_in_the_hall_and_rows_move_without_a_reload(api: ServedApi, chromium: Chromium) -> None:
    judged(api.store, "first", api.now, 5e-3, gpu="A100")
    judged(api.store, "second", api.now, 6e-3, gpu="A100")
    chromium.open(api.url + A100)
    chromium.ask("window.stayed = true")
    assert names(chromium) == ["first", "second"] and text(chromium, ".fanfare") == ""
    until(lambda: sum(api.context.listener.followers()) >= 1, "its stream is open")
    judged(api.store, "third", api.now, 5.5e-3, gpu="A100")
    until(lambda: names(chromium) == ["first", "third", "second"], "a place without a record")
    assert text(chromium, ".fanfare") == ""
    judged(api.store, "second", api.now, 1e-3, gpu="A100")
    until(lambda: names(chromium) == ["second", "first", "third"], "it leads")
    said = until(lambda: text(chromium, ".fanfare"), "the record is announced")
    assert "Record" in said and "second" in said and "80 % faster than" in said
    press(chromium, "\ue00c")
    assert text(chromium, ".fanfare") == "", "Escape ends it"
    assert chromium.ask("return window.stayed") is True and chromium.complaints() == []


def test_a_hall_scrolls_by_itself_until_somebody_stops_it(api: ServedApi, chromium: Chromium) -> None:
    chromium.view(1280, height=400)
    calm(chromium, False)
    chromium.open(api.url + HALL)
    until(lambda: chromium.ask("return scrollY") > 5, "it scrolls")
    press(chromium, SPACE)
    assert text(chromium, "[data-pause]") == "Go on"
    stopped = chromium.ask(
        "return new Promise(done => { const at = scrollY; setTimeout(() => done(scrollY - at), 500) })"
    )
    assert stopped == 0
    before = chromium.ask("return scrollY")
    chromium.click("[data-pause]")
    until(lambda: chromium.ask("return scrollY") != before, "it goes on")
    chromium.ask("document.querySelector('.hall-places').click()")
    assert text(chromium, "[data-pause]") == "Go on", "a click stops it, too"
    calm(chromium, True)
    chromium.open(api.url + HALL)
    until(lambda: chromium.ask("return document.readyState") == "complete", "it is there")
    shown = "[scrollY, document.querySelector('[data-pause]').hidden]"
    moved = chromium.ask(f"return new Promise(done => setTimeout(() => done({shown}), 500))")
    assert moved == [0, True], "whoever wants no motion gets none"


def test_a_reveal_goes_by_keys_and_by_links_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "hana")
    chromium.open(api.url + REVEAL)
    chromium.ask("window.stayed = true")
    orders = [names(chromium)]
    for key, step in ((SPACE, "1 opened"), (SPACE, "2 opened"), (SPACE, "3 opened"), (SPACE, "3 opened")):
        press(chromium, key)
        until(lambda step=step: step in text(chromium, ".hall-times"), step)  # type: ignore[misc]
        orders.append(names(chromium))
    him = "محمد الخوارزمي"
    assert orders == [
        ["ada", him, LONG, "dan"],
        ["ada", him, LONG, "newton", "dan"],
        ["ada", "dan", him, LONG, "newton"],
        [him, "ada", "dan", LONG, "newton"],
        [him, "ada", "dan", LONG, "newton"],
    ]
    assert chromium.ask("return window.stayed") is True and "step=3" in chromium.ask("return location.href")
    press(chromium, LEFT)
    until(lambda: names(chromium) == orders[2], "a step back")
    assert "▲ 3" in text(chromium, ".revealed")
    assert chromium.complaints() == []
    chromium.scripts(False)
    chromium.open(api.url + REVEAL)
    for order in orders[1:4]:
        chromium.write("[data-next]", ENTER)
        until(lambda order=order: names(chromium) == order, str(order))  # type: ignore[misc]
    chromium.write(".reveal-end summary", ENTER)
    chromium.write(".reveal-end button", ENTER)
    until(lambda: api.store.boards.get("frozen").frozen_at is None, "the freeze is over")


def test_the_start_page_follows_its_boards_without_a_reload(api: ServedApi, chromium: Chromium) -> None:
    """By one connection; a clock stays a clock, what is unfolded stays so, and the keyboard keeps its place."""
    store = api.store
    asked = store.questions.ask(store.people.ensure("ada").id, "Why?", board="transpose", now=api.now)
    store.questions.answer(asked.id, "**So.**", to_all=True, again=False, by="root", now=api.now)
    chromium.open(api.url)
    chromium.ask("window.stayed = true")
    chromium.click(".front details.announced summary")
    until(lambda: ":" in chromium.ask("return document.querySelector('.front time[data-left]').textContent"), "a clock")
    chromium.ask(
        "window.words = new Set();"
        "const note = () => words.add(/:/.test(document.querySelector('[data-left]').textContent));"
        "new MutationObserver(() => requestAnimationFrame(note))"
        ".observe(document.getElementById('live'), {childList: true})"
    )
    judged(store, "newcomer", api.now, 0.9e-3)
    leads = "return document.querySelector('.front .leader').textContent"
    until(lambda: "newcomer leads" in chromium.ask(leads), "the card has changed")
    until(lambda: chromium.ask("return [...words]") == [True], "the clock is one when it is first painted")
    assert chromium.ask("return window.stayed") is True
    assert chromium.ask("return document.querySelector('.front details.announced').open") is True
    assert chromium.ask("return document.activeElement.tagName") == "SUMMARY"
    streams = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/live/')).length"
    assert chromium.ask(streams) <= 1 and not chromium.complaints()
    chromium.scripts(False)
    chromium.open(api.url)
    assert "newcomer leads" in chromium.ask(leads)
