"""What only a browser shows: its memory for the back button, its few connections, its keyboard.

At the default pace, with one service and one Chromium for all tests; each has people of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbslurm.api.pages.boards.board_views import BoardViews
from kbslurm.backends.local.backend import LocalBackend
from kbslurm.config import shared_folders
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.access import Role
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import BackendTrouble
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store.views import Person
from tests import databases
from tests.flow.chromium import Chromium, started, until
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import running
from tests.popcorn.served_api import GOOD, ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
BOARD = "/board/transpose/H100"
CONNECTIONS = 6  # of a browser, to one server
SCORES = (1 / n for n in itertools.count(2))  # each a record


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    url = postgres_server.create(template_database)
    with served(url, tmp_path_factory.mktemp("service")) as built:
        yield built
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    # ChromeDriver would switch off what people's browsers have: pages in memory for the back button.
    with started(tmp_path_factory.mktemp("chromium"), without=["disable-back-forward-cache"]) as browser:
        yield browser


@pytest.fixture
def chromium(shared: Chromium, api: ServedApi) -> Iterator[Chromium]:
    """The browser with one tab, in which nobody is signed in, at a phone's or a desk's width as it was left."""
    shared.open(f"{api.url}/static/icon.svg")
    shared.call("DELETE", "/cookie")
    shared.complaints()
    first = shared.call("GET", "/window")
    try:
        yield shared
    finally:
        for tab in shared.call("GET", "/window/handles"):
            if tab != first:
                shared.call("POST", "/window", handle=tab)
                shared.call("DELETE", "/window")
        shared.call("POST", "/window", handle=first)
        shared.call("POST", "/window/rect", width=1000, height=900)


def signed_in(api: ServedApi, chromium: Chromium, name: str, role: Role = "participant") -> Person:
    """This person's session is the browser's from now on."""
    person = api.store.people.add(name, role, now=api.now)
    session = api.store.tokens.issue(person.id, kind="web", now=api.now)
    chromium.sign_in(session)
    return person


def record(api: ServedApi, by: str, file_name: str = "k.py", **told: Any) -> SubmissionId:
    """A new record of somebody's."""
    store, now = api.store, api.now
    number = accept(
        store.intake, store.people.ensure(by).id, "transpose", file_name, GOOD, "leaderboard", ["H100"], now
    ).submission_id
    attempt = claim(
        store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open()), now
    )
    assert attempt is not None
    score_s = next(SCORES)
    around = [score_s * 0.9999, score_s * 1.0001]
    score(
        store, attempt, sealed_report(store.attempts.work(attempt.id), score_s=score_s, interval_s=around, **told), now
    )
    return number


def shows(chromium: Chromium, words: str) -> bool:
    return words in chromium.ask("return document.body.innerText")


def titled(chromium: Chromium, title: str) -> None:
    until(lambda: chromium.title() == f"{title} – kbslurm", title)


@contextmanager
def hidden(chromium: Chromium) -> Iterator[None]:
    """Another tab or window is looked at meanwhile."""
    chromium.call("POST", "/window/minimize")
    until(lambda: chromium.ask("return document.hidden"), "nobody looks at the page")
    try:
        yield
    finally:
        chromium.call("POST", "/window/rect", width=1000, height=900)


# ------------------------------------------------------------------------------------------- pages from the memory


def test_a_private_page_is_not_shown_again_from_memory_after_a_ban(api: ServedApi, chromium: Chromium) -> None:
    number = record(api, "eve")
    session = api.store.tokens.issue(api.store.people.ensure("eve").id, kind="web", now=api.now)
    chromium.sign_in(session)
    for path in ("/me", f"/s/{number}"):
        chromium.open(api.url + path)
        chromium.ask("window.isFromMemory = true")
    chromium.open(f"{api.url}/problem/transpose")
    api.store.people.ban(api.store.people.ensure("eve").id, "", by="root", now=api.now)
    for _ in range(2):
        chromium.call("POST", "/back")
        titled(chromium, "Sign in")
        assert chromium.ask("return window.isFromMemory ?? null") is None
        assert not shows(chromium, "k.py") and not shows(chromium, "def custom_kernel")


def test_nor_after_signing_out_in_another_tab(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "uma")
    chromium.open(f"{api.url}/me")
    chromium.open(f"{api.url}/problem/transpose")
    first = chromium.call("GET", "/window")
    chromium.call("POST", "/window", handle=chromium.call("POST", "/window/new", type="tab")["handle"])
    chromium.open(f"{api.url}/me")
    chromium.click(".who button")
    titled(chromium, "Competitions")
    chromium.call("POST", "/window", handle=first)
    chromium.call("POST", "/back")
    titled(chromium, "Sign in")


def test_a_board_from_memory_is_live_again(api: ServedApi, chromium: Chromium) -> None:
    record(api, "ada")
    chromium.open(api.url + BOARD)
    chromium.ask("window.isFromMemory = true")
    chromium.click("a[href='/problem/transpose']")
    titled(chromium, "Problem transpose")
    chromium.call("POST", "/back")
    titled(chromium, "transpose on H100")
    assert chromium.ask("return window.isFromMemory ?? null") is True, "the browser has it from its memory"
    record(api, "grace")
    until(lambda: shows(chromium, "grace"), "grace shows")


# --------------------------------------------------------------------------------------------- few connections, long


def test_a_page_that_nobody_looks_at_holds_no_connection_and_catches_up(api: ServedApi, chromium: Chromium) -> None:
    """Otherwise a browser's seventh tab would wait for as long as the others are open."""
    record(api, "hedy")
    chromium.open(api.url + BOARD)
    chromium.ask("window.stayed = true")
    before = api.context.connections.count
    with hidden(chromium):
        until(lambda: listeners(api) == 0, "the stream ends")
        record(api, "irene")
        assert not shows(chromium, "irene") and api.context.connections.count <= before
    until(lambda: shows(chromium, "irene"), "it catches up")
    assert chromium.ask("return window.stayed ?? null") is True, "without a reload"


def listeners(api: ServedApi) -> int:
    """How many streams are open."""
    return sum(api.context.listener.followers())


def test_a_live_page_comes_back_after_the_service_was_away(
    api: ServedApi, chromium: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser gives up a stream for good once it was answered 503."""
    record(api, "joan")
    chromium.open(api.url + BOARD)
    chromium.ask("window.stayed = true")
    refused = 0

    async def away(*_: object) -> Any:
        nonlocal refused
        refused += 1
        raise BackendTrouble("the database", "it is away")

    with monkeypatch.context() as patch:
        patch.setattr(BoardViews, "of", away)
        patch.setattr(BoardViews, "may_see", away)
        record(api, "kay")
        until(lambda: refused >= 3, "its stream was ended, and the next one refused")
    until(lambda: shows(chromium, "kay"), "it is live again")
    assert chromium.ask("return window.stayed ?? null") is True


def test_who_may_no_longer_see_an_open_page_is_told_so(api: ServedApi, chromium: Chromium) -> None:
    """Not only are they sent nothing more: what they could see yesterday doesn't stay on their screen."""
    mallory = signed_in(api, chromium, "mallory", "staff")
    chromium.open(f"{api.url}/staff")
    assert shows(chromium, "Latest actions")
    api.store.people.set_role(mallory.id, "participant", by="root", now=api.now)
    titled(chromium, "403")
    assert shows(chromium, "this page is for staff") and not shows(chromium, "Audit log")
    chromium.open(api.url + BOARD)
    assert shows(chromium, "mallory")
    api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
    try:
        titled(chromium, "404")
        assert not shows(chromium, "Standings")
    finally:
        api.store.boards.set_visibility("transpose", "public", by="root", now=api.now)


# --------------------------------------------------------------------------------------------- what people are called


def test_the_longest_names_widen_no_page_beyond_a_phone(api: ServedApi, chromium: Chromium) -> None:
    name, board, gpu, file_name = "W" * 64, "b" * 64, "G" * 64, "f" * 200 + ".py"
    wide = signed_in(api, chromium, name, "staff")
    number = record(api, name, file_name, log="L" * 3000)
    board_problem = api.store.boards.get("transpose").problem
    api.store.boards.add(board, board_problem, gpus=[gpu], confirm=False, now=api.now)
    queued = accept(api.store.intake, wide.id, board, file_name, GOOD, "test", [gpu], api.now).submission_id
    chromium.call("POST", "/window/rect", width=500, height=800)
    paths = (
        *("/", BOARD, f"/board/{board}/{gpu}", f"/problem/{board}", "/me", f"/s/{number}", f"/s/{queued}", "/staff"),
        *(f"/board/{'x' * 64}/H100", f"/login?next=/{'x' * 300}", "/login"),
    )
    for path in paths:
        chromium.open(api.url + path)
        assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), path[:40]
    chromium.open(f"{api.url}/staff/people")
    chromium.write("#banned", "nobody" * 16)
    chromium.write("#reason", "r" * 200)
    chromium.click("form[action='/staff/ban']:has(#banned) button")
    titled(chromium, "This didn't work")
    assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), "its error"
    api.store.boards.delete(board, force=True, by="root", now=api.now)


def test_a_name_paints_over_nobody_elses(api: ServedApi, chromium: Chromium) -> None:
    """Accents stack without end."""
    record(api, "e" + "\u0301" * 60)
    record(api, "olga")
    chromium.open(api.url + BOARD)
    assert chromium.ask("return document.querySelector('#live tbody th .name').innerText") == "olga"
    element = chromium.find("#live tbody tr:first-child")
    painted = chromium.call("GET", f"/element/{element}/screenshot")
    chromium.ask("document.querySelectorAll('#live tbody th .name')[1].textContent = 'e'")
    assert chromium.call("GET", f"/element/{element}/screenshot") == painted, "her row is the same without it"


# ------------------------------------------------------------------------------------------------------ live numbers


def test_the_queues_numbers_are_live_while_a_submission_really_runs(
    api: ServedApi, chromium: Chromium, tmp_path: Path
) -> None:
    """With a daemon, a judge and a submission, all at the default pace."""
    eval_dir = shared_folders.eval_dir()
    backend = LocalBackend(tmp_path / "attempts", {"A100": 1}, eval_dir, Path(sys.executable))
    with running(Daemon(api.store, [Place(backend=backend)])):
        chromium.open(f"{api.url}/board/transpose/A100")
        until(lambda: shows(chromium, "0 waiting, 0 running"), "the board is open")
        chromium.ask(
            "const queue = document.getElementById('queue'); window.seen = [];"
            "new MutationObserver(() => window.seen.push(queue.innerText)).observe(queue, {childList: true})"
        )
        slow = b"import time\n\ntime.sleep(5)\n" + GOOD  # a run that is over before a page is told of it isn't shown
        number = api.client("petra").submit("transpose", "A100", "test", "k.py", slow)
        until(lambda: any("1 running" in text for text in chromium.ask("return window.seen")), "it is shown to run")
        until(lambda: api.store.submissions.get(SubmissionId(number)).is_done, "it ends")
        until(lambda: "0 waiting, 0 running" in chromium.ask("return window.seen.at(-1)"), "it is shown to have ended")


# ------------------------------------------------------------------------------------ by keyboard, and without scripts


ENTER = "\ue007"


def test_every_form_works_by_keyboard_and_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    store = api.store
    quinn = store.people.add("quinn", "staff", now=api.now)
    ruth = store.people.add("ruth", now=api.now)
    own, other = (
        accept(store.intake, person.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
        for person in (quinn, ruth)
    )
    token, pending = store.tokens.issue(quinn.id, now=api.now), api.client(None).register()
    chromium.call(
        "POST", "/goog/cdp/execute", cmd="Emulation.setScriptExecutionDisabled", params={"value": True}
    )  # fmt: skip
    try:
        chromium.open(f"{api.url}/login")
        chromium.write("#token", token + ENTER)
        titled(chromium, "My submissions")
        chromium.write("#pending", pending + ENTER)
        until(lambda: quinns(api, pending), "the token is linked")
        chromium.open(f"{api.url}/s/{own}")
        chromium.write("#live form button", ENTER)
        until(lambda: store.submissions.get(own).is_done, "its runs are cancelled")
        for act, accepts in (("pause", False), ("resume", True)):
            chromium.open(f"{api.url}/staff")
            chromium.write(f"form[action='/staff/{act}'] button", ENTER)
            until(lambda accepts=accepts: store.settings.accepts_jobs() is accepts, act)  # type: ignore[misc]
        for path, field, words, title, after in (
            ("/staff", "#submission", str(other), f"Cancel submission {other}?", "Staff"),
            ("/staff/people", "#banned", "ruth", "Ban ruth?", "People"),
        ):
            chromium.open(f"{api.url}{path}")
            chromium.write(field, words + ENTER)
            titled(chromium, title)
            chromium.write("main form button", ENTER)
            titled(chromium, after)
        assert store.submissions.get(other).is_done and store.people.get(ruth.id).banned_at is not None
        chromium.write("#unbanned", "ruth" + ENTER)
        until(lambda: store.people.get(ruth.id).banned_at is None, "the ban is lifted")
        chromium.open(f"{api.url}/staff")
        chromium.write(".who button", ENTER)
        titled(chromium, "Competitions")
        assert chromium.complaints() == []
    finally:
        chromium.call("POST", "/goog/cdp/execute", cmd="Emulation.setScriptExecutionDisabled", params={"value": False})


def quinns(api: ServedApi, token: str) -> bool:
    person = api.store.tokens.person_of(token, now=api.now)
    return person is not None and person.name == "quinn"


def test_the_keyboard_keeps_its_place_when_a_live_page_changes(api: ServedApi, chromium: Chromium) -> None:
    record(api, "lena")
    signed_in(api, chromium, "moni", "staff")
    focused = "return document.activeElement.innerText"
    for path, control, change in (
        ("/staff", "#live button", lambda: api.store.events.audit("host", "waved", "nobody", now=api.now)),
        (BOARD, "#live summary", lambda: record(api, "nina")),
    ):
        chromium.open(api.url + path)
        chromium.ask(f"document.querySelector({control!r}).focus()")
        before = chromium.ask(focused)
        assert before
        until(lambda: listeners(api) == 1, "its stream is open")
        change()
        until(lambda path=path: shows(chromium, "waved" if path == "/staff" else "nina"), "it changes")  # type: ignore[misc]
        assert chromium.ask(focused) == before, path
