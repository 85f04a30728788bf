"""A submission's page and those around it in a browser: no barrier and nothing sideways at any width and in any theme,
the whole of it without JavaScript, and with it the verdict as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from kbslurm.domain.run import OpenAttempt, SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests import databases
from tests.flow import gallery
from tests.flow.chromium import THEMES, WIDTHS, Chromium, started, until
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.test_submission_page import DIFFERS
from tests.popcorn.served_api import GOOD, WRONG, ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
ME = "a-name-that-goes-on-and-on-without-any-space-for-as-long-as-may"
LEADER = "محمد الخوارزمي"
SAYS = "return document.querySelector('.says').textContent"

SHIFTS = """
    const done = arguments[0], found = [];
    const seen = new PerformanceObserver((list) => found.push(...list.getEntries().map((one) => one.value)));
    seen.observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(found), 300);"""


@dataclass
class Stage:
    """One's submissions, by how they went."""

    api: ServedApi
    passed: SubmissionId
    wrong: SubmissionId
    running: SubmissionId
    attempt: OpenAttempt


@pytest.fixture(scope="module")
def stage(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    url = postgres_server.create(template_database)
    with served(url, tmp_path_factory.mktemp("service")) as api:
        yield played(api)
    postgres_server.drop(url)


def played(api: ServedApi) -> Stage:
    start = api.now - timedelta(days=3)
    for gpu in ("H100", "A100"):
        gallery.played(api.store, start, names=(LEADER, "ada", ME), gpu=gpu)
    spec = "rows: 4096; cols: 4096; seed: 1234567; layout: column-major-and-padded"
    tests = [wire.TestResult(phase="test", index=n, spec=f"{spec}{n}", status="pass") for n in range(3)]
    bad = wire.TestResult(phase="test", index=3, spec=f"{spec}4", status="fail", message=DIFFERS)
    passed = gallery.judged(api.store, ME, start + timedelta(hours=50), 3.2e-3, tests=tests, log="a line\n" * 30)
    wrong, attempt = opened(api, WRONG, "test")
    told = {"verdict": "wrong", "reason": "1 of 4 tests failed", "tests": [*tests, bad], "log": "x" * 500}
    score(api.store, attempt, sealed_report(api.store.attempts.work(attempt.id), **told), api.now)
    running, attempt = opened(api, GOOD, "leaderboard")
    with psycopg.connect(api.store.url) as connection:
        beat = {"progress": {"phase": "test", "done": 2, "of": 9}}
        connection.execute("UPDATE run SET state = 'running' WHERE id = %s", (attempt.run_id,))
        connection.execute(
            "UPDATE attempt SET state = 'running', telemetry = %s WHERE id = %s", (json.dumps(beat), attempt.id)
        )
    return Stage(api=api, passed=passed, wrong=wrong, running=running, attempt=attempt)


def opened(api: ServedApi, source: bytes, mode: wire.Mode) -> tuple[SubmissionId, OpenAttempt]:
    store, person = api.store, api.store.people.ensure(ME)
    number = accept(store.intake, person.id, "transpose", "kernel.py", source, mode, ["H100"], api.now).submission_id
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), api.now)
    assert attempt is not None
    return number, attempt


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, stage: Stage) -> Iterator[Chromium]:
    """In which that person is signed in."""
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        browser.open(f"{stage.api.url}/static/icon.svg")
        session = stage.api.store.tokens.issue(stage.api.store.people.ensure(ME).id, kind="web", now=stage.api.now)
        browser.sign_in(session)
        browser.complaints()
        yield browser


@contextmanager
def without_scripts(chromium: Chromium) -> Iterator[None]:
    chromium.scripts(False)
    try:
        yield
    finally:
        chromium.scripts(True)


@pytest.mark.parametrize("theme", THEMES)
def test_no_page_has_a_barrier_or_scrolls_sideways(stage: Stage, chromium: Chromium, theme: Any) -> None:
    paths = [
        f"/s/{stage.passed}", f"/s/{stage.wrong}", f"/s/{stage.running}", f"/s/{stage.passed}/diff/{stage.wrong}",
        "/me", "/me?verdict=timeout", f"/person/{quote(LEADER)}", f"/person/{ME}", "/compare",
        "/compare?board=transpose&gpu=H100&other=A100", "/person/nobody",
    ]  # fmt: skip
    wrong = []
    for path in paths:
        chromium.open(stage.api.url + path)
        for width in WIDTHS:
            chromium.view(width, theme=theme)
            wrong += [f"{path} at {width}: {barrier}" for barrier in chromium.barriers()]
            wide = chromium.ask("return document.documentElement.scrollWidth - innerWidth")
            wrong += [f"{path} at {width}: {wide} px too wide"] if wide > 0 else []
    assert not wrong, "\n".join(wrong)


def test_nothing_moves_after_the_first_paint(stage: Stage, chromium: Chromium) -> None:
    chromium.view(1280)
    for path in (f"/s/{stage.passed}", f"/s/{stage.running}", "/me"):
        chromium.open(stage.api.url + path)
        moved = chromium.call("POST", "/execute/async", script=SHIFTS, args=[])
        assert moved == [], path


def test_two_texts_stand_side_by_side_where_there_is_room(stage: Stage, chromium: Chromium) -> None:
    boxes = """
        const box = (css) => document.querySelector(css).getBoundingClientRect().toJSON();
        return [box('.diff .changed .old.code'), box('.diff .changed .new.code')];"""
    with without_scripts(chromium):
        chromium.view(1280)
        chromium.open(f"{stage.api.url}/s/{stage.passed}/diff/{stage.wrong}")
        old, new = chromium.ask(boxes)
        assert old["y"] == new["y"] and old["right"] <= new["x"] and abs(old["width"] - new["width"]) <= 2
        chromium.view(390)
        old, new = chromium.ask(boxes)
        assert old["bottom"] <= new["y"] and old["x"] == new["x"] and new["right"] <= 390
        same = "return getComputedStyle(document.querySelector('.diff .same .new')).display"
        assert chromium.ask(same) == "none", "what is the same stands there once"


def test_tests_and_logs_unfold_without_scripts(stage: Stage, chromium: Chromium) -> None:
    with without_scripts(chromium):
        chromium.open(f"{stage.api.url}/s/{stage.wrong}")
        assert "differs at output[2, 5]" in chromium.ask(SAYS)
        shown = "return document.querySelector('section details table').checkVisibility()"
        assert chromium.ask(shown) is False
        chromium.click("section details summary")
        assert chromium.ask(shown) is True


def test_the_verdict_appears_by_itself(stage: Stage, chromium: Chromium) -> None:
    chromium.view(1280)
    chromium.open(f"{stage.api.url}/s/{stage.running}")
    assert "test 2/9" in chromium.ask(SAYS)
    chromium.ask("window.sameDocument = true")
    work = stage.api.store.attempts.work(stage.attempt.id)
    told = {"score_s": 3.1e-3, "interval_s": [3.09e-3, 3.11e-3]}
    score(stage.api.store, stage.attempt, sealed_report(work, **told), stage.api.now)
    until(lambda: chromium.ask(SAYS).startswith("Passed:") and True, "the verdict is shown")
    assert chromium.ask("return window.sameDocument === true"), "the page wasn't loaded anew"
    assert chromium.ask("return document.querySelectorAll('.chart.strip').length") == 2
