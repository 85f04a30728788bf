"""What only a browser shows of triage and of scripts: flags and an end that come without a reload, and forms that work
without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from tests.flow import flagging
from tests.flow.chromium import Chromium, started, until
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_triage_pages import ranked
from tests.popcorn.served_api import ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
COUNTING = """
const real = window.fetch; window.stayed = true; window.asked = 0;
window.fetch = (...given) => { window.asked += 1; return real(...given); };
"""
AFTER_A_WHILE = """
const done = arguments[0], before = window.asked; setTimeout(() => done(window.asked - before), 4000);
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def api(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chromium: Chromium) -> Iterator[ServedApi]:
    flagging.install(monkeypatch, tmp_path / "scanner")
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        hana = built.store.people.ensure("hana", "owner")
        chromium.open(f"{built.url}/login")
        chromium.sign_in(built.store.tokens.issue(hana.id, kind="web", now=built.now))
        yield built
        chromium.scripts(True)
        chromium.open("about:blank")


def says(chromium: Chromium, text: str) -> bool:
    return text in chromium.ask("return document.body.innerText")


def test_flags_come_without_a_reload_and_then_nothing_more_is_asked(
    api: ServedApi, chromium: Chromium, tmp_path: Path
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    ranked(api, "ada", 2e-3, f"# WAIT {room} FLAG ODD_ONE\n")
    chromium.open(f"{api.url}/staff/board/transpose/triage")
    chromium.ask(COUNTING)
    assert says(chromium, "0 of 1 are scanned.") and says(chromium, "being scanned")
    until(lambda: chromium.ask("return window.asked > 1"), "it looks again, and again")
    chromium.ask("document.querySelector('#live th a').focus()")
    (room / "gate").touch()
    until(lambda: says(chromium, "ODD_ONE"), "the flag shows")
    assert chromium.ask("return window.stayed") is True and not says(chromium, "are scanned")
    assert chromium.ask("return document.activeElement.innerText") == "1", "the keyboard's place stays"
    assert chromium.call("POST", "/execute/async", script=AFTER_A_WHILE, args=[]) == 0
    chromium.ask("document.dispatchEvent(new Event('visibilitychange'))")
    assert chromium.call("POST", "/execute/async", script=AFTER_A_WHILE, args=[]) == 0


def test_a_script_is_written_run_and_followed_to_its_end(api: ServedApi, chromium: Chromium) -> None:
    store = api.store
    chromium.open(f"{api.url}/staff/run")
    chromium.write("#source-1", "print(6 * 7)")
    chromium.click(".go button")
    until(lambda: chromium.title().startswith("Script 1"), "its page")
    chromium.ask(COUNTING)
    assert says(chromium, "Queued")
    attempt = claim(store.queue, free_slots({"local": Puppet(slots={"H100": 1}).capacity()}, []), api.now)
    assert attempt is not None
    until(lambda: says(chromium, "Launching at local"), "it moves")
    report = sealed_report(store.attempts.work(attempt.id), log="42\n", host={"script": {"exit_status": 0}})
    score(store, attempt, report, api.now)
    until(lambda: says(chromium, "Run it again"), "its end shows")
    assert says(chromium, "42") and chromium.ask("return window.stayed") is True
    store.people.ensure("somebody", "staff")
    store.settings.set_accepts_jobs(False, by="hana", now=api.now)
    assert chromium.call("POST", "/execute/async", script=AFTER_A_WHILE, args=[]) == 0, "nothing more will come"


def test_both_forms_work_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    chromium.scripts(False)
    chromium.open(f"{api.url}/staff/triage")
    chromium.write("#source-1", "a = 1  # FLAG PLAIN")
    chromium.click("#submission button")
    until(lambda: says(chromium, "1 flag in this code."), "what was flagged")
    chromium.open(f"{api.url}/staff/run")
    chromium.write("#source-1", "a = 1")
    chromium.click(".go button")
    until(lambda: says(chromium, "Queued"), "its page")
    chromium.click("#live form button")
    until(lambda: says(chromium, "Cancelled"), "it is cancelled")
