"""What only a browser shows of the staff's pages: the reader's time, no page wider than a phone, nobody kept out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kbslurm.domain.access import Role
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.submit import accept
from kbslurm.store.rejudgings import Wanted
from tests import databases
from tests.flow import gallery
from tests.flow.chromium import THEMES, WIDTHS, Chromium, Theme, started, until
from tests.flow.test_staff_pages import CLOSED, PACE, lane, led
from tests.popcorn.served_api import GOOD, ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
LONG = "a-board-whose-name-is-as-long-as-it-may-be-and-then-some-more-x"
PATHS = (
    "/staff", "/staff/boards", "/staff/boards/new", "/staff/people", "/staff/people?q=nobody", "/staff/people/PERSON",
    "/staff/courses", "/staff/questions", "/staff/places", "/staff/audit", "/staff/run", "/staff/triage",
    *(f"/staff/board/{name}{page}" for name, page in (
        ("transpose", ""), ("transpose", "/submissions"), ("transpose", "/rejudge"), ("transpose", "/finals"),
        ("transpose", "/entry"), ("transpose", "/triage"), (LONG, ""), (LONG, "/rejudge?estimate=yes"),
        (LONG, "/entry"), (LONG, "/triage"),
    )),
    "/staff/submissions/1", "/staff/submissions/1/triage",
)  # fmt: skip


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    url = postgres_server.create(template_database)
    with served(url, tmp_path_factory.mktemp("service")) as built:
        filled(built)
        yield built
    postgres_server.drop(url)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, api: ServedApi) -> Iterator[Chromium]:
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def filled(api: ServedApi) -> None:
    """A contest in full swing, with everything that needs a host."""
    store, now = api.store, api.now
    gallery.played(store, now - timedelta(days=3))
    store.people.ensure("hana", "owner")
    ada, board = store.people.ensure("ada"), store.boards.get("transpose")
    store.boards.add(LONG, board.problem, gpus=["H100"], confirm=False, visibility="closed", now=now, by="hana")
    store.invites.make([LONG], 2, by="hana", now=now)
    store.roster.set_role_on(board.id, store.people.ensure("gina").id, "grader", by="hana", now=now)
    store.people.ban(store.people.ensure("eve <b>").id, "x" * 200, by="hana", now=now)
    (number,) = (one.id for one in store.submissions.newest(person=ada.id, board="transpose", limit=1))
    for text, submission in (("لماذا رُفض الحل؟ " * 9, None), ("Judged wrongly. " * 20, number)):
        about = {"board": "transpose" if submission is None else None, "submission": submission}
        store.questions.ask(ada.id, text, appeal=submission is not None, now=now, **about)  # type: ignore[arg-type]
    store.rejudgings.order("transpose", Wanted(gpu="H100"), None, by="hana", now=now)
    accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["A100"], now - timedelta(hours=9))
    why = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    led(
        api,
        {
            "cluster": lane(pace=PACE, slots={"H100": 8, "A100": 4}),
            "old-cluster": lane(pace={**PACE, "failing": 4}, slots={"V100": 4}, troubles=5, why=why),
            "modal": lane(role="overflow", slots={"H100": 3}, breaker={**CLOSED, "state": "open", "why": "503"}),
        },
        {
            "rule": "after 10 min", "currency": "EUR", "gpus": {"H100": "home first"}, "held_up": {"H100": "spent"},
            "budget": {"month": 200.0, "spent": 150.0, "boards": {LONG: {"month": 5.0, "spent": 5.0}}, "teams": {}},
        },
    )  # fmt: skip
    store.roster.set_role_on(board.id, ada.id, "observer", by="hana", now=now)


def signed_in(api: ServedApi, chromium: Chromium, name: str, role: Role = "participant") -> None:
    chromium.open(f"{api.url}/static/icon.svg")
    chromium.call("DELETE", "/cookie")
    session = api.store.tokens.issue(api.store.people.ensure(name, role).id, kind="web", now=api.now)
    chromium.sign_in(session)


def paths_of(api: ServedApi) -> list[str]:
    ada = api.store.people.ensure("ada")
    return [path.replace("PERSON", str(ada.id)) for path in PATHS]


@pytest.mark.parametrize("theme", THEMES)
def test_nobody_is_kept_out_of_the_staffs_pages(api: ServedApi, chromium: Chromium, theme: Theme) -> None:
    signed_in(api, chromium, "hana", "owner")
    for path in paths_of(api):
        chromium.open(api.url + path)
        for width in WIDTHS:
            chromium.view(width, theme=theme)
            assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert chromium.barriers() == [], (path, width)
    signed_in(api, chromium, "gina")
    for path in ("/staff", "/staff/questions", "/staff/board/transpose/submissions"):
        chromium.view(WIDTHS[0], theme=theme)
        chromium.open(api.url + path)
        assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), path
        assert chromium.barriers() == [], path


def test_times_are_the_readers_own_and_hold_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "hana", "owner")
    api.store.events.audit("hana", "waved", "nobody", now=api.now.replace(year=2026, month=1, day=5, hour=20, minute=3))
    read = "return document.querySelector('#live tbody time[datetime^=\"2026-01-05\"]').innerText"
    chromium.devtools("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    try:
        chromium.open(f"{api.url}/staff")
        assert chromium.ask(read) == "2026-01-06 05:03 GMT+9"
        title = "return document.querySelector('#live tbody time[datetime^=\"2026-01-05\"]').title"
        assert chromium.ask(title) == "2026-01-05 20:03 UTC"
        api.store.events.audit("hana", "nodded", "nobody", now=api.now)
        until(lambda: "nodded" in chromium.ask("return document.body.innerText"), "the page is live")
        assert chromium.ask(read) == "2026-01-06 05:03 GMT+9", "also in what came later"
        chromium.scripts(False)
        chromium.open(f"{api.url}/staff/audit")
        assert chromium.ask(read.replace("#live ", "")) == "2026-01-05 20:03 UTC"
    finally:
        chromium.scripts(True)
        chromium.devtools("Emulation.setTimezoneOverride", timezoneId="")


def test_the_keyboard_stays_at_the_same_one_of_several_buttons(api: ServedApi, chromium: Chromium) -> None:
    store, ada, numbers = api.store, api.store.people.ensure("ada"), list[SubmissionId]()
    long_ago = api.now - timedelta(hours=1)
    for _ in range(2):
        accepted = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], long_ago)
        numbers.append(accepted.submission_id)
    while any(run.shown_state == "queued" for number in numbers for run in store.submissions.get(number).runs):
        slots = free_slots({"puppet": {"H100": 99}}, store.attempts.open())
        assert claim(store.queue, slots, long_ago) is not None
    signed_in(api, chromium, "hana", "owner")
    chromium.open(f"{api.url}/staff")
    where = f".attention form:has([value='{numbers[1]}']) button"
    chromium.ask(f'document.querySelector("{where}").focus()')
    beside = "return document.activeElement.form?.querySelector('[name=submission]').value"
    assert chromium.ask(beside) == str(numbers[1])
    store.events.audit("hana", "bowed", "nobody", now=api.now)
    until(lambda: "bowed" in chromium.ask("return document.body.innerText"), "the page is live")
    assert chromium.ask(beside) == str(numbers[1])


def test_nothing_moves_once_a_page_is_drawn(api: ServedApi, chromium: Chromium) -> None:
    signed_in(api, chromium, "hana", "owner")
    shifted = (
        "const done = arguments[0]; let sum = 0; new PerformanceObserver((list) => {"
        " for (const one of list.getEntries()) sum += one.value }).observe({type: 'layout-shift', buffered: true});"
        " setTimeout(() => done(sum), 300)"
    )
    chromium.devtools("Emulation.setTimezoneOverride", timezoneId="Europe/Berlin")
    try:
        for path in ("/staff", "/staff/people", "/staff/audit", "/staff/board/transpose"):
            chromium.view(1280)
            chromium.open(api.url + path)
            assert chromium.call("POST", "/execute/async", script=shifted, args=[]) < 0.01, path
    finally:
        chromium.devtools("Emulation.setTimezoneOverride", timezoneId="")
