"""The editor and the buttons that copy, in a real browser: by keyboard, by dropping files, and without scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import bundled
from kbslurm.flow.submit import accept
from tests import databases
from tests.flow.chromium import THEMES, WIDTHS, Chromium, started, until
from tests.popcorn.served_api import GOOD, ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
SUBMIT = "/problem/transpose/submit"
TAB, ESCAPE, ENTER, SHIFT, CONTROL = "\ue004", "\ue00c", "\ue007", "\ue008", "\ue009"


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
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def chromium(shared: Chromium, api: ServedApi) -> Iterator[Chromium]:
    """The browser, in which ada is signed in."""
    shared.open(f"{api.url}/static/icon.svg")
    shared.call("DELETE", "/cookie")
    session = api.store.tokens.issue(api.store.people.ensure("ada").id, kind="web", now=api.now)
    shared.sign_in(session)
    shared.view(1280)
    shared.complaints()
    yield shared
    shared.scripts(allowed=True)


def press(chromium: Chromium, keys: str) -> None:
    held = {SHIFT, CONTROL}
    actions: list[dict[str, Any]] = []
    down = [key for key in keys if key in held]
    actions += [{"type": "keyDown", "value": key} for key in down]
    for key in keys:
        if key not in held:
            actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
    actions += [{"type": "keyUp", "value": key} for key in reversed(down)]
    chromium.call("POST", "/actions", actions=[{"type": "key", "id": "k", "actions": actions}])


def written(chromium: Chromium) -> str:
    return str(chromium.ask("return document.getElementById('source-1').value"))


def begin(chromium: Chromium, text: str = "") -> None:
    """The cursor is in the editor, at the end of this."""
    told = f"const one = document.getElementById('source-1'); one.focus(); one.select(); {PUT}"
    chromium.call("POST", "/execute/sync", script=told, args=[text])


PUT = "document.execCommand(arguments[0] ? 'insertText' : 'delete', false, arguments[0])"


def test_the_editor_is_typed_in_by_keyboard_and_left_by_keyboard(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(api.url + SUBMIT)
    begin(chromium)
    press(chromium, "def f(x):")
    press(chromium, ENTER)
    press(chromium, "return x")
    assert written(chromium) == "def f(x):\n    return x", "the next line begins deeper"
    press(chromium, ENTER + "a" + TAB + "b")
    assert written(chromium).endswith("\n    a    b")
    press(chromium, SHIFT + TAB)
    assert written(chromium).endswith("\na    b")
    chromium.ask("document.getElementById('source-1').select()")
    press(chromium, TAB)
    assert written(chromium) == "    def f(x):\n        return x\n    a    b", "all lines that are selected"
    press(chromium, CONTROL + "z")
    assert written(chromium) == "def f(x):\n    return x\na    b", "as if it were typed"
    press(chromium, ESCAPE)
    press(chromium, TAB)
    assert chromium.ask("return document.activeElement.id") == "file", "Escape, then Tab, leaves"
    press(chromium, SHIFT + TAB)
    assert chromium.ask("return document.activeElement.id") == "source-1"
    press(chromium, ESCAPE)
    press(chromium, SHIFT + TAB)
    assert chromium.ask("return document.activeElement.id") == "name", "backwards, too"
    assert chromium.complaints() == []


def test_colours_and_line_numbers_lie_over_what_is_written(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(api.url + SUBMIT)
    text = "".join(f"def f{n}(): return {n}  # {'long ' * 40}\n" for n in range(200))
    begin(chromium, text)
    until(lambda: chromium.ask("return document.querySelector('.numbers').textContent").endswith("\n201\n"), "numbers")
    assert chromium.ask("return document.querySelector('.seen').textContent") == f"{text}\n"
    assert chromium.ask("return document.querySelector('.seen .c-keyword').textContent") == "def"
    chromium.ask("const one = document.getElementById('source-1'); one.scrollTop = 1234; one.scrollLeft = 210")
    places = (
        "const [seen, field, numbers] = ['.seen', '#source-1', '.numbers'].map((one) => document.querySelector(one));"
        "return [seen.scrollTop, numbers.scrollTop, seen.scrollLeft, field.scrollTop, field.scrollLeft]"
    )
    until(lambda: chromium.ask(places) == [1234, 1234, 210, 1234, 210], "they scroll together")
    chromium.ask("const one = document.getElementById('source-1'); one.scrollTop = 1e6; one.scrollLeft = 1e6")
    until(lambda: (at := chromium.ask(places))[0] == at[1] == at[3] > 1234 and at[2] == at[4] > 210, "to the end")
    chromium.ask("const name = document.getElementById('name'); name.value = 'k.cu'; "
                 "name.dispatchEvent(new Event('input'))")  # fmt: skip
    word = "return document.querySelector('.seen .c-keyword').textContent"
    until(lambda: chromium.ask(word) == "return", "no Python any more")
    assert chromium.complaints() == []


def test_a_file_that_is_chosen_is_in_the_editor_and_several_are_sent_as_they_are(
    api: ServedApi, chromium: Chromium, tmp_path: Path
) -> None:
    for name, text in (("mine.py", GOOD), ("half.py", b"x = 1\n"), ("blob.zip", b"PK")):
        (tmp_path / name).write_bytes(text)
    chromium.open(api.url + SUBMIT)
    chromium.write("#file", str(tmp_path / "mine.py"))
    until(lambda: written(chromium) == GOOD.decode(), "it is in the editor")
    assert chromium.ask("return document.getElementById('name').value") == "mine.py"
    assert chromium.ask("return document.getElementById('file').files.length") == 0, "and sent from there"
    chromium.click(".go button")
    until(lambda: chromium.title().startswith("Submission "), "it is submitted")
    number = int(chromium.call("GET", "/url").rpartition("/")[2])
    view = api.store.submissions.get(SubmissionId(number))
    assert (view.file_name, view.source, view.mode) == ("mine.py", GOOD.decode(), "test")

    chromium.open(f"{api.url}{SUBMIT}?from={number}")
    assert written(chromium) == GOOD.decode()
    chromium.write("#file", f"{tmp_path / 'mine.py'}\n{tmp_path / 'half.py'}")
    said = "2 files will be submitted instead of what is written."
    until(lambda: chromium.ask("return document.getElementById('chosen').textContent") == said, "it says so")
    # As when files are dropped there.
    chromium.ask(
        "const data = new DataTransfer(); data.items.add(new File(['y = 2\\n'], 'dropped.py'));"
        "const drops = document.getElementById('drops');"
        "drops.dispatchEvent(new DragEvent('dragover', {dataTransfer: data, cancelable: true}));"
        "drops.dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true}))"
    )
    until(lambda: written(chromium) == "y = 2\n", "it was dropped")
    assert chromium.complaints() == []


def test_what_was_refused_is_still_there_also_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    for allowed in (True, False):
        chromium.scripts(allowed=allowed)
        chromium.open(api.url + SUBMIT)
        chromium.call("POST", f"/element/{chromium.find('#source-1')}/clear")
        chromium.write("#source-1", "kept = 1")
        chromium.call("POST", f"/element/{chromium.find('#name')}/clear")
        chromium.write("#name", "kept.txt")
        chromium.click(".go button")
        until(lambda: "must end in one of" in chromium.call("GET", "/source"), "it is refused")
        text = chromium.call("GET", f"/element/{chromium.find('#source-1')}/property/value")
        assert text == "kept = 1"
        chromium.call("POST", f"/element/{chromium.find('#name')}/clear")
        chromium.write("#name", f"kept{allowed}.py")
        chromium.click(".go button")
        until(lambda: chromium.title().startswith("Submission "), "it is submitted")


def test_ways_to_submit_are_chosen_without_scripts(api: ServedApi, chromium: Chromium) -> None:
    chromium.scripts(allowed=False)
    chromium.open(f"{api.url}/problem/transpose")

    def is_seen(css: str) -> bool:
        return bool(chromium.call("GET", f"/element/{chromium.find(css)}/displayed"))

    assert is_seen("#file") and not is_seen("#with-popcorn") and not is_seen(".copy")
    chromium.click("label[for=way-popcorn]")
    assert is_seen("#with-popcorn") and not is_seen("#file")
    press(chromium, "\ue012")
    assert is_seen("#with-kbslurm") and not is_seen("#with-popcorn"), "and by the keyboard"


def test_a_button_copies_code_without_its_line_numbers(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(f"{api.url}/problem/transpose")
    chromium.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    chromium.click("[data-copy='code-L']")
    until(lambda: chromium.ask("return window.copied"), "it is copied")
    template = api.store.boards.get("transpose").problem.templates["Python"]
    assert chromium.ask("return window.copied").rstrip("\n") == template.rstrip("\n")
    assert chromium.ask("return document.querySelector(\"[data-copy='code-L']\").textContent") == "Copied"
    chromium.open(f"{api.url}/problem/transpose#L3")
    at = "return getComputedStyle(document.getElementById('L3')).backgroundColor"
    assert chromium.ask(at) != chromium.ask(at.replace("L3", "L4")), "a line has an address"
    assert chromium.complaints() == []


@pytest.mark.parametrize("path", ["/problem/transpose", SUBMIT])
def test_nobody_is_kept_out_and_nothing_moves_or_scrolls_sideways(
    api: ServedApi, chromium: Chromium, path: str
) -> None:
    for theme in THEMES:
        for width in WIDTHS:
            chromium.view(width, theme=theme)
            chromium.open(api.url + path)
            assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert chromium.barriers() == [], (path, width, theme)
            assert chromium.call("POST", "/execute/async", script=SHIFTS, args=[]) == 0, (path, width)


SHIFTS = (
    "const done = arguments[0]; let sum = 0;"
    "new PerformanceObserver((list) => { for (const one of list.getEntries()) sum += one.value; })"
    ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 300)"
)


def test_the_longest_names_widen_no_page_beyond_a_phone(api: ServedApi, chromium: Chromium) -> None:
    board, gpu, names = "b" * 64, "G" * 64, {"k" * 190 + ".py": "x = 1\n", "y" * 190 + ".py": "y" * 3000}
    problem = dataclasses.replace(
        api.store.boards.get("transpose").problem,
        description=f"{'w' * 300} `{'c' * 300}` ${'x' * 300}$\n\n# {'h' * 200}\n\n| {'t' * 200} |\n|---|\n",
        tests=({"p" * 100: "v" * 300},),
        templates={"L" * 60: "t" * 900},
    )
    api.store.boards.add(board, problem, gpus=[gpu], confirm=False, now=api.now)
    packed = bundled({name: text.encode() for name, text in names.items()}, next(iter(names)))
    person = api.store.people.ensure("ada")
    number = accept(
        api.store.intake, person.id, board, packed.file_name, packed.text, "test", [gpu], api.now
    ).submission_id
    chromium.view(390)
    for path in (f"/problem/{board}", f"/problem/{board}/submit", f"/problem/{board}/submit?from={number}"):
        chromium.open(api.url + path)
        assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), chromium.ask(WIDEST)
        assert chromium.barriers() == [], path
    assert chromium.complaints() == []


WIDEST = (
    "return [...document.querySelectorAll('body *')]"
    ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
    ".slice(0, 6).map((one) => one.outerHTML.slice(0, 120))"
)


HURRY = (
    "const real = setTimeout; window.setTimeout = (act, ms, ...rest) => real(act, ms === 15000 ? 200 : ms, ...rest);"
)


def test_the_queue_is_told_anew_and_what_is_written_stays(api: ServedApi, chromium: Chromium) -> None:
    script = chromium.devtools("Page.addScriptToEvaluateOnNewDocument", source=HURRY)
    try:
        chromium.open(api.url + SUBMIT)
        begin(chromium, "mine = 1")
        queue = "return document.querySelector('[data-queue=H100]').textContent"
        before = int(chromium.ask(queue).split()[0])
        accept(
            api.store.intake, api.store.people.ensure("bob").id, "transpose", "k.py", GOOD, "test", ["H100"], api.now
        )
        until(lambda: chromium.ask(queue).startswith(f"{before + 1} waiting"), "the queue is told anew")
        assert written(chromium) == "mine = 1"
        # Signed in again in another tab: the form is the new session's before it is sent.
        old = chromium.ask("return document.querySelector('#submission [name=csrf]').value")
        chromium.call("DELETE", "/cookie")
        chromium.sign_in(api.store.tokens.issue(api.store.people.ensure("ada").id, kind="web", now=api.now))
        until(
            lambda: chromium.ask("return document.querySelector('#submission [name=csrf]').value") != old,
            "a fresh token",
        )
        chromium.click(".go button")
        until(lambda: "/s/" in chromium.ask("return location.pathname"), "it is submitted")
    finally:
        chromium.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])


def test_a_text_that_is_too_large_is_not_sent_and_not_lost(api: ServedApi, chromium: Chromium) -> None:
    chromium.open(api.url + SUBMIT)
    begin(chromium, "x = 1")
    chromium.ask("document.getElementById('source-1').value = 'x = 1\\n'.repeat(400000)")
    chromium.click(".go button")
    said = chromium.ask("return document.getElementById('chosen').textContent")
    assert said == "What is written has 2,400,000 bytes, over the limit of 1,000,000."
    assert len(written(chromium)) == 2_400_000
