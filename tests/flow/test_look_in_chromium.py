"""Every page in a real browser: nobody is kept out, nothing runs that somebody wrote, nothing scrolls or shifts that
shouldn't, and a dozen of them look as they did.

One service and one browser for all of it. `KBSLURM_TEST_LOOK=all` looks at every page at four widths in both themes;
without it that is done for the pages that most people see, and the others are seen on a phone and, dark, on a desk.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from kbslurm import __version__
from kbslurm.api.app import create_app
from tests import databases
from tests.flow import flagging, pinned_fonts, reference_pictures
from tests.flow.chromium import THEMES, WIDTHS, Chromium, Theme, started, until
from tests.flow.gallery import judged
from tests.flow.scene import THOUSANDS, Scene, Visit
from tests.flow.stage import HandClock
from tests.popcorn.served_api import served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
EVERYWHERE = tuple((width, theme) for theme in THEMES for width in WIDTHS)
PHONE, DESK = (390, "light"), (1280, "dark")
MAIN = {"/", "/board/{leaderboard}/{gpu}", "/problem/{leaderboard}", "/s/{submission_id}", "/staff"}
# Pages' routes that answer with something else.
FILES = {
    "/static/{name}", "/favicon.ico", "/live/{leaderboard}", "/live/-/s/{submission_id}", "/live/-/staff",
    "/live/-/front",
    "/board/{leaderboard}/{gpu}/picture.png",
    "/problem/{leaderboard}/template/{language}", "/s/{submission_id}/artifacts/{gpu}/{name}",
    "/staff/board/{leaderboard}/export", "/nodes/{place}/{name}/kit",
}  # fmt: skip
SHOTS: dict[str, tuple[str, str, int, Theme]] = {
    "front-light": ("/", "", 1280, "light"),
    "front-phone": ("/", "", 390, "dark"),
    "board-light": ("/board/transpose/H100", "", 1280, "light"),
    "board-dark": ("/board/transpose/H100", "", 1280, "dark"),
    "board-phone": ("/board/transpose/H100", "", 390, "light"),
    "board-empty": ("/board/transpose/A100", "", 768, "light"),
    "problem-light": ("/problem/transpose", "ada", 1280, "light"),
    "submission-light": ("/s/{judged}", "ada", 1280, "light"),
    "submission-dark": ("/s/{wrong}", "ada", 1280, "dark"),
    "staff-light": ("/staff", "grace", 1280, "light"),
    "embedded-light": ("/embed/board/transpose/H100?theme=light&top=8", "", 480, "light"),
    "design-dark": ("/design", "", 768, "dark"),
}
OWED: tuple[str, ...] = ()
FIRST_VIEW = 60_000  # bytes, compressed
BOARD_OF_100 = "/board/thousands/H100"

# What somebody wrote would be one of these, were it markup.
FOREIGN = """
const found = [...document.querySelectorAll('.kb-fuzz, img, iframe, object, embed, base, style')].map(e => e.outerHTML);
for (const e of document.querySelectorAll('*')) for (const a of e.attributes) {
  // What our own script sizes: it is over the editor's field, and as large.
  if (a.name.startsWith('on') || (a.name === 'style' && !e.matches('.editor > pre[aria-hidden]')))
    found.push(`${e.tagName} ${a.name}`);
  if (['href', 'src', 'action', 'formaction'].includes(a.name) && /^\\s*(javascript|data|vbscript):/i.test(a.value))
    found.push(`${e.tagName} ${a.name}=${a.value}`);
}
for (const e of document.querySelectorAll('script'))
  if (!(e.getAttribute('src') ?? '').startsWith('/static/')) found.push(`a script: ${e.outerHTML}`);
return found.slice(0, 5).map((one) => one.slice(0, 200));
"""
SHIFTED = """
const done = arguments[0]; let total = 0;
new PerformanceObserver((list) => { for (const one of list.getEntries()) total += one.value; })
  .observe({type: 'layout-shift', buffered: true});
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(total), 50)));
"""
FROZEN = """{
  const Real = Date;
  Date = class extends Real {
    constructor(...given) { super(...(given.length ? given : [NOW])); }
    static now() { return NOW; }
  };
}"""
REACHABLE = """
const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';
return [...document.querySelectorAll(all)]
  // What isn't a stop of its own: a line's number beside its code, and of a choice all but the chosen one.
  .filter((e) => e.tabIndex >= 0 && !(e.type === 'radio' && !e.checked))
  .filter((e) => !e.disabled && e.checkVisibility({visibilityProperty: true}))
  .filter((e) => !e.closest('details:not([open]) > :not(summary)'))
  .map((e, n) => { e.dataset.kbStop = n; return n; }).length;
"""


@pytest.fixture(scope="module")
def scene(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    url = postgres_server.create(template_database)
    toml = '[server]\ndesign_page = true\npublic_url = "http://kernels.example.edu"\nallowed_hosts = ["127.0.0.1"]\n'
    clock = HandClock(datetime(2026, 3, 2, 10, tzinfo=UTC))
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        served(url, tmp_path_factory.mktemp("service"), clock=clock, boards=False, toml=toml) as built,
    ):
        flagging.install(monkeypatch, tmp_path_factory.mktemp("scanner"))
        found = Scene(built, tmp_path_factory.mktemp("scene"))
        found.fill()
        yield found
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    env = pinned_fonts.environment(tmp_path_factory.mktemp("fonts"))
    with started(tmp_path_factory.mktemp("chromium"), env={**env, "TZ": "UTC", "LANG": "C.UTF-8"}) as browser:
        yield browser


@pytest.fixture
def chromium(shared: Chromium, scene: Scene) -> Iterator[Chromium]:
    shared.open(f"{scene.api.url}/login")
    shared.complaints()  # those of the test before
    yield shared
    shared.scripts(True)


def opened(scene: Scene, chromium: Chromium, visit: Visit) -> None:
    scene.sign_in(chromium, visit.by)
    chromium.open(scene.api.url + visit.path)


def looks(route: str) -> Sequence[tuple[int, Theme]]:
    if os.environ.get("KBSLURM_TEST_LOOK") == "all" or route in MAIN:
        return EVERYWHERE
    return (PHONE, DESK)  # type: ignore[return-value]


def test_every_page_is_looked_at(scene: Scene) -> None:
    """A new page needs an entry in the scene, or among the files."""
    routes = {
        route.path
        for route in create_app(scene.api.context).routes
        if isinstance(route, APIRoute) and not route.include_in_schema and "GET" in (route.methods or ())
        if not route.path.endswith((".json", ".csv"))  # tables as files
    }
    known = (set(scene.visits) - {"errors"}) | FILES
    assert {route for route in routes if not route.startswith("/auth")} == known


def test_every_page_is_for_everybody_and_nothing_that_people_wrote_is_part_of_it(
    scene: Scene, chromium: Chromium
) -> None:
    wrong = []
    for route, visits in scene.visits.items():
        # The first visit of a main page is seen everywhere, its other states as the other pages are.
        for n, visit in enumerate(visits):
            seen = looks(route if n == 0 else "")
            chromium.view(seen[0][0], theme=seen[0][1])
            opened(scene, chromium, visit)
            foreign = chromium.ask(FOREIGN)
            if "/worklog" in route:  # it stands alone, with the style in itself, by its hash in the policy
                foreign = [one for one in foreign if not one.startswith("<style>")]
            wrong += [f"{visit}: foreign: {one}" for one in foreign]
            foot = chromium.ask("return document.querySelector('body > footer')?.textContent")
            wrong += [f"{visit}: its foot says {foot}"] if foot not in (None, f"kbslurm {__version__}") else []
            shifted = chromium.call("POST", "/execute/async", script=SHIFTED, args=[])
            wrong += [f"{visit}: shifted by {shifted}"] if shifted > 0.001 else []
            for width, theme in seen:
                chromium.view(width, theme=theme)
                if chromium.ask("return document.documentElement.scrollWidth > innerWidth"):
                    wrong.append(f"{visit} at {width}: it scrolls sideways")
                barriers = [one for one in chromium.barriers() if not one.startswith(OWED)]
                wrong += [f"{visit} at {width}, {theme}: {one}" for one in barriers]
            fine = ("403", "404") if route == "errors" else ()
            wrong += [
                f"{visit}: console: {one}"
                for one in chromium.complaints()
                if not any(f"status of {status}" in one for status in fine)
            ]
    assert not wrong, "\n".join(wrong)


def test_without_scripts_every_page_says_the_same(scene: Scene, chromium: Chromium) -> None:
    wrong = []
    chromium.view(1280)
    # Without what helps only those who have scripts: the colours over an editor's field, and its keys.
    words = (
        "for (const one of document.querySelectorAll('.editor > pre, #keys')) one.remove();"
        "return document.getElementById('content').innerText.split(/\\s+/)"
    )
    with_scripts = {}
    visits = [visits[0] for route, visits in scene.visits.items() if route != "/board/{leaderboard}"]
    for visit in visits:
        opened(scene, chromium, visit)
        with_scripts[visit] = set(chromium.ask(words)) if "worklog" not in visit.path else set()
    chromium.scripts(False)
    for visit in visits:
        opened(scene, chromium, visit)
        if with_scripts[visit]:
            there = set(chromium.ask(words))
            missing = with_scripts[visit] - there
            if len(missing) > len(with_scripts[visit]) // 10:
                wrong.append(f"{visit}: without scripts it lacks {sorted(missing)[:10]}")
    assert not wrong, "\n".join(wrong)


TAB = [{"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]


def test_everything_is_reached_by_keyboard_and_seen_when_it_is(scene: Scene, chromium: Chromium) -> None:
    wrong = []
    chromium.view(1280)
    for route in sorted({*MAIN, "/me", "/questions", "/login", "/embed/board/{leaderboard}/{gpu}"}):
        visit = scene.visits[route][-1 if route == "/" else 0]
        opened(scene, chromium, visit)
        count = chromium.ask(REACHABLE)
        reached, seen = set(), set()
        for _ in range(count + 5):
            chromium.call("POST", "/actions", actions=[{"type": "key", "id": "k", "actions": TAB}])
            stop, outline = chromium.ask(
                "const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.dataset.kbStop ?? null, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]"
            )
            if stop is not None:
                reached.add(int(stop))
                seen |= {int(stop)} if outline else set()
            if len(reached) == count:
                break
        if len(reached) < count:
            missed = sorted(set(range(count)) - reached)[:3]
            html = [chromium.ask(f"return document.querySelector('[data-kb-stop=\"{n}\"]').outerHTML") for n in missed]
            wrong.append(f"{visit}: {count - len(reached)} of {count} not reached: {html}")
        if reached - seen:
            wrong.append(f"{visit}: {len(reached - seen)} show no focus")
    assert not wrong, "\n".join(wrong)


def test_a_boards_first_view_is_small(scene: Scene) -> None:
    """A hundred places of ten thousand, with all that a browser fetches for them."""
    with httpx.Client(base_url=scene.api.url, timeout=60) as http:
        page = http.get(BOARD_OF_100)
        assert page.text.count("<tr") >= 100
        assets = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text))
        sizes = {path: len(gzip.compress(http.get(path).content)) for path in (BOARD_OF_100, *sorted(assets))}
    assert len(sizes) <= 4 and sum(sizes.values()) < FIRST_VIEW, sizes


@contextmanager
def another_site(folder: Path, framed: str) -> Iterator[str]:
    """Its address: of a page that shows this one in a frame."""
    (folder / "index.html").write_text(f'<!doctype html><iframe src="{framed}" width="600" height="400"></iframe>')
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/index.html"
        finally:
            server.shutdown()
            thread.join()


def test_a_board_is_shown_in_a_frame_of_another_site_and_no_other_page_is(
    scene: Scene, chromium: Chromium, tmp_path: Path
) -> None:
    for path, is_shown in (("/embed/board/transpose/H100", True), ("/board/transpose/H100", False), ("/", False)):
        with another_site(tmp_path, scene.api.url + path) as there:
            chromium.open(there)
            chromium.call("POST", "/frame", id=chromium.call("POST", "/element", using="css selector", value="iframe"))
            assert ("transpose" in chromium.ask("return document.body.innerText")) is is_shown, path
            chromium.call("POST", "/frame", id=None)


def test_a_board_in_a_frame_shows_a_new_score_without_a_reload(scene: Scene, chromium: Chromium) -> None:
    chromium.open(f"{scene.api.url}/embed/board/one/H100")
    chromium.ask("window.stayed = true")
    judged(scene.api.store, "late comer", scene.api.now, 5e-4, board="one")
    chromium.ask("document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: "late comer" in chromium.ask("return document.body.innerText"), "the new score shows")
    assert chromium.ask("return window.stayed") is True
    assert chromium.ask("return document.querySelectorAll('main').length") == 1


def test_a_large_boards_file_has_all_of_it(scene: Scene) -> None:
    """Ten thousand places; the ranks that ties allow, which take long, only for the first."""
    told = httpx.get(f"{scene.api.url}{BOARD_OF_100}.json", timeout=60).json()
    assert [row["rank"] for row in told] == list(range(1, THOUSANDS + 1))
    assert [row["rank"] for row in told if row["best_rank"] is not None] == list(range(1, 101))
    assert all(one["score_s"] <= two["score_s"] for one, two in itertools.pairwise(told))


def test_pages_look_as_they_did(scene: Scene, chromium: Chromium, tmp_path: Path) -> None:
    artifacts = Path(os.environ.get("KBSLURM_TEST_ARTIFACTS") or tmp_path) / "references"
    source = FROZEN.replace("NOW", str(int(scene.api.now.timestamp() * 1000)))
    script = chromium.devtools("Page.addScriptToEvaluateOnNewDocument", source=source)
    wrong = []
    for name, (path, by, width, theme) in SHOTS.items():
        chromium.view(width, theme=theme)
        still = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        chromium.devtools("Emulation.setEmulatedMedia", features=still)
        opened(scene, chromium, Visit(path=path.format(**scene.numbers), by=by))
        chromium.ask("document.querySelector('body > footer')?.remove()")  # it has the version
        picture = tmp_path / f"{name}.png"
        chromium.picture(picture)
        wrong += [told] if (told := reference_pictures.differs(name, picture.read_bytes(), artifacts)) else []
    chromium.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])
    assert not wrong, "\n".join(wrong)
