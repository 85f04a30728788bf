"""What only a browser shows of a board: its first view in requests and bytes, that nothing shifts, rows that move to
their new places, one's own row in sight, and that all of it can be used without scripts and at every width."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests import databases
from tests.flow.chromium import THEMES, WIDTHS, Chromium, started, until
from tests.flow.gallery import NAMES, judged, played
from tests.popcorn.served_api import ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
MANY, FEW, NOBODY = "/board/transpose/H100", "/board/transpose/A100", "/board/empty/H100"
SHIFTS = """
const done = arguments[0];
new PerformanceObserver((list, observer) => {
  observer.disconnect();
  done(list.getEntries().map((one) => one.value));
}).observe({ type: "layout-shift", buffered: true });
setTimeout(() => done([]), 500);
"""


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    """A hundred and twenty people on one GPU type, a few with all kinds of names on another, and nobody elsewhere."""
    url = postgres_server.create(template_database)
    with served(url, tmp_path_factory.mktemp("service")) as built:
        start = built.now - timedelta(days=3)
        for n in range(120):
            by = "Somebody " + "Withaname"[: n % 9 + 1] + f" {n}"
            judged(built.store, by, start + timedelta(minutes=n), 1e-3 * 1.02**n, spread=0.02 if n % 4 else 0.08)
        played(built.store, start, gpu="A100")
        problem = built.store.boards.get("transpose").problem
        built.store.boards.add("empty", problem, gpus=["H100"], confirm=False, now=built.now)
        yield built
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def chromium(shared: Chromium, api: ServedApi) -> Iterator[Chromium]:
    """The browser, in which nobody is signed in."""
    shared.open(f"{api.url}/static/style.css")
    shared.call("DELETE", "/cookie")
    shared.complaints()
    shared.view(1280)
    yield shared
    shared.scripts(True)


def signed_in(api: ServedApi, chromium: Chromium, name: str) -> None:
    session = api.store.tokens.issue(api.store.people.ensure(name).id, kind="web", now=api.now)
    chromium.sign_in(session)


def names(chromium: Chromium) -> list[str]:
    found: list[str] = chromium.ask(
        "return [...document.querySelectorAll('#standings tr[data-side] th .name')].map((one) => one.textContent)"
    )
    return found


def test_a_first_view_of_a_hundred_people_takes_four_requests_and_little(api: ServedApi, chromium: Chromium) -> None:
    """The stream that follows is one more connection, on which nothing is sent until something happens."""
    chromium.devtools("Network.enable")
    chromium.devtools("Network.clearBrowserCache")
    chromium.open(api.url + MANY)
    assert len(names(chromium)) == 100
    loaded: list[dict[str, Any]] = chromium.ask(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".filter((one) => !one.name.includes('/live/'))"
        ".map((one) => ({name: one.name, bytes: one.transferSize, packed: one.encodedBodySize < one.decodedBodySize}))"
    )
    assert len(loaded) <= 4 and sum(one["bytes"] for one in loaded) < 60_000, loaded
    assert all(one["packed"] and one["bytes"] for one in loaded), loaded


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_shifts_after_the_first_paint_and_nothing_scrolls_sideways(
    api: ServedApi, chromium: Chromium, width: int
) -> None:
    for person in (None, "Somebody Wi 1"):
        if person is not None:
            signed_in(api, chromium, person)
        chromium.view(width)
        for path in (MANY, FEW, NOBODY, f"{FEW}?q=a&sort=name", f"{FEW}?q=nobody", f"{MANY}?from=100"):
            chromium.open(api.url + path)
            shifts = chromium.call("POST", "/execute/async", script=SHIFTS, args=[])
            assert sum(shifts) == 0, (path, shifts)
            assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), path
    assert chromium.complaints() == []


def test_on_a_slow_line_nothing_shifts_either(api: ServedApi, chromium: Chromium) -> None:
    """A page was painted as far as it had come, and again with its header in another place."""
    slow = {"offline": False, "latency": 0, "downloadThroughput": 20_000, "uploadThroughput": 20_000}
    signed_in(api, chromium, "Somebody Wi 1")
    chromium.devtools("Network.enable")
    chromium.view(1920)
    for path in (MANY, FEW, NOBODY, "/", "/embed/board/transpose/H100"):
        chromium.devtools("Network.emulateNetworkConditions", **slow)
        try:
            chromium.open(api.url + path)
            shifts = chromium.call("POST", "/execute/async", script=SHIFTS, args=[])
        finally:
            chromium.devtools("Network.emulateNetworkConditions", **{**slow, "downloadThroughput": -1})
        assert sum(shifts) == 0, (path, shifts)


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_keeps_anybody_out(api: ServedApi, chromium: Chromium, theme: Any) -> None:
    signed_in(api, chromium, NAMES[1])
    for path in (FEW, NOBODY, f"{FEW}?q=nobody"):
        chromium.open(api.url + path)
        for width in WIDTHS:
            chromium.view(width, theme=theme)
            assert chromium.barriers() == [], (width, path)


def test_a_new_score_moves_its_row_and_is_said_once(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "linus")
    chromium.open(api.url + FEW)
    before = names(chromium)
    place = before.index("linus") + 1
    assert f"You are {place}th of {len(before)}" in chromium.ask("return document.getElementById('own').innerText")
    chromium.ask(
        "window.moved = []; const animate = Element.prototype.animate;"
        "Element.prototype.animate = function (...how) {"
        "  window.moved.push(this.querySelector('.name').textContent); return animate.apply(this, how); }"
    )
    chromium.ask("document.querySelector('#q').value = 'half a na'")
    judged(api.store, "linus", api.now, 3.2e-3, gpu="A100")
    until(lambda: names(chromium)[1] == "linus", "the row has moved")
    assert chromium.ask("return document.getElementById('news').textContent") == "linus is now 2nd with 3.200 ms."
    moved = chromium.ask("return window.moved")
    assert "linus" in moved and "ada" not in moved and before[1] in moved
    assert chromium.ask("return document.querySelector('tr.own .name').textContent") == "linus"
    assert chromium.ask("return document.querySelectorAll('tr.own').length") == 1
    assert "You are 2nd of" in chromium.ask("return document.getElementById('own').innerText")
    assert chromium.ask("return document.querySelector('#q').value") == "half a na", "what somebody types stays"
    assert chromium.complaints() == []


def test_nothing_moves_for_those_who_want_no_motion(api: ServedApi, chromium: Chromium) -> None:
    chromium.devtools(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}]
    )  # fmt: skip
    chromium.open(api.url + FEW)
    chromium.ask("window.moved = 0; Element.prototype.animate = () => { window.moved += 1; }")
    judged(api.store, "noor", api.now, 3.15e-3, gpu="A100")
    until(lambda: "noor" in chromium.ask("return document.getElementById('news').textContent"), "it is said")
    assert chromium.ask("return window.moved") == 0


def test_found_places_are_live_too(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(f"{api.url}{FEW}?q=z")
    assert names(chromium) == ["zoë"]
    judged(api.store, "zelda", api.now, 2e-2, gpu="A100")
    until(lambda: names(chromium) == ["zoë", "zelda"], "she is found")
    assert "2 of" in chromium.ask("return document.querySelector('.found').innerText")


def test_ones_own_row_stays_in_sight_wherever_one_scrolls(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "Somebody Withan 50")
    for width in (390, 1280):
        chromium.view(width, height=800)
        chromium.open(api.url + MANY)
        for where in (0, 0.3, 0.5, 0.8):
            chromium.ask(
                f"const table = document.querySelector('.places').getBoundingClientRect();"
                f"scrollTo(0, scrollY + table.top + {where} * table.height)"
            )
            top, bottom, head = chromium.ask(
                "const {top, bottom} = document.querySelector('tr.own th').getBoundingClientRect();"
                "return [top, bottom, document.querySelector('.places thead th').getBoundingClientRect().bottom]"
            )
            assert top >= head - 2 and bottom <= 801, (width, where, top, bottom, head)


def test_without_scripts_places_are_found_and_ones_own_row_is_led_to(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "Somebody W 117")
    chromium.scripts(False)
    chromium.open(api.url + MANY)
    chromium.click("#own a")
    until(lambda: "from=100" in chromium.call("GET", "/url"), "the page with her row")
    assert chromium.call("GET", "/url").endswith("#place-118")
    chromium.write("#q", "name 5\ue007")
    until(lambda: "q=name+5" in chromium.call("GET", "/url"), "she has found somebody")
    (row,) = chromium.call("POST", "/elements", using="css selector", value="tr[data-side]")
    assert row
