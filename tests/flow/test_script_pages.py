"""Scripts without a board on the staff's pages: the form with what is left, one script to its end, and earlier ones."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import SOURCE_CAP
from tests.flow.stage import HandClock
from tests.flow.test_page_files import rows_of
from tests.flow.test_pages import HOSTILE, browsing, csrf
from tests.flow.test_scripts import sent as sent_by_api
from tests.flow.test_scripts import token_of
from tests.flow.test_staff_pages import words
from tests.popcorn.served_api import ServedApi, served, working

RUN = "/staff/run"
PATIENCE_S = 120.0
TOML = "[policy]\nscript_gpu_s_per_day = 100\n"


@pytest.fixture
def still(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    """At a fixed moment, without a daemon."""
    with served(database_url, tmp_path / "service", clock=HandClock(), toml=TOML) as built:
        built.store.people.ensure("hana", "owner")
        yield built


@pytest.fixture
def hana(still: ServedApi) -> Iterator[httpx.Client]:
    with browsing(still, "hana", "owner") as browser:
        yield browser


def ran(browser: httpx.Client, text: str, /, **more: Any) -> httpx.Response:
    file = more.pop("file", ("", b""))
    form = {"csrf": csrf(browser.get("/me").text), "name": "probe.py", "source": text, "gpu": "H100", **more}
    return browser.post(RUN, data=form, files={"file": file})


def number_in(answer: httpx.Response) -> int:
    assert answer.status_code == 303, answer.text
    return int(answer.headers["location"].removeprefix(f"{RUN}/"))


def audited(api: ServedApi) -> list[tuple[str, str]]:
    return [
        (event.kind.removeprefix("staff."), str(event.data["by"])) for event in api.store.events.audit_log(limit=50)
    ]


def test_a_script_runs_to_its_end_and_again(database_url: str, tmp_path: Path) -> None:
    said = f"import sys\nprint('found', 6 * 7, {HOSTILE!r})\nprint('aside', file=sys.stderr)\n"
    with (
        served(database_url, tmp_path / "service", toml=TOML) as api,
        browsing(api, "hana", "owner") as hana,
        working(api, tmp_path),
    ):
        number = number_in(ran(hana, said.replace("\n", "\r\n"), timeout="20"))
        until = time.monotonic() + PATIENCE_S
        while "data-live" in (page := hana.get(f"{RUN}/{number}").text) and time.monotonic() < until:
            assert 'http-equiv="refresh"' in page
            time.sleep(0.2)
        assert "Exit status 0 after" in words(page) and "found 42" in page and "aside" in page
        assert HOSTILE not in page and html.escape(HOSTILE) in page
        assert api.store.submissions.get(SubmissionId(number)).source == said, "with its own ends of lines"
        (row,) = rows_of(hana, f"{RUN}.json")
        told = {name: row[name] for name in ("script", "by", "gpu", "place", "state", "verdict", "exit_status")}
        assert told == {
            "script": number, "by": "hana", "gpu": "H100", "place": "local", "state": "scored", "verdict": "passed",
            "exit_status": 0,
        }  # fmt: skip
        again = hana.get(RUN, params={"again": str(number)}).text
        assert said in html.unescape(again) and 'value="20"' in again and 'value="probe.py"' in again
        failed = number_in(ran(hana, "import sys\nsys.exit(3)\n"))
        assert failed != number
        while "data-live" in (page := hana.get(f"{RUN}/{failed}").text) and time.monotonic() < until:
            time.sleep(0.2)
        assert "Exit status 3" in words(page) and 'class="outcome bad"' in page and "It wrote nothing." in page
        listed = hana.get(RUN).text
        assert words(listed).count("✓ passed") == 1 and "✕ error" in words(listed)
    assert [act for act in audited(api) if act[0].startswith("script")] == [("script", "hana")] * 2


def test_what_is_left_is_told_before(still: ServedApi, hana: httpx.Client) -> None:
    assert "Left for you within a day 100 of 100 GPU-seconds" in words(hana.get(RUN).text)
    number = number_in(ran(hana, "a = 1\n", timeout="60"))
    page = hana.get(RUN).text
    assert "Left for you within a day 40 of 100 GPU-seconds" in words(page)
    assert "60 of 100 GPU-seconds of its author are used" in words(hana.get(f"{RUN}/{number}").text)
    assert "H100 (local)" in words(page) and "A100 (local)" in words(page)
    answer = ran(hana, "b = 2\r\nc = 3\r\n", gpu="A100", timeout="60", place="local")
    assert answer.status_code == 429 and answer.headers["Retry-After"]
    told = html.unescape(answer.text)
    assert "It wasn't run:" in told and "60 of 100 used" in told and "a time limit of 40 s or less" in told
    assert "b = 2\nc = 3\n" in told and '<option value="A100" selected>' in told and 'value="60"' in told
    assert "<option selected>local</option>" in told
    assert len(rows_of(hana, f"{RUN}.json")) == 1


def test_a_second_click_runs_it_once(still: ServedApi, hana: httpx.Client) -> None:
    number = number_in(ran(hana, "a = 1\n", timeout="10"))
    assert number_in(ran(hana, "a = 1\r\n", timeout="10")) == number
    assert number_in(ran(hana, "", file=("probe.py", b"a = 1\n"), timeout="10")) == number
    others = {number_in(ran(hana, "a = 1\n", **{"timeout": "10", **more})) for more in (
        {"timeout": "11"}, {"gpu": "A100"}, {"place": "local"},
    )} | {number_in(ran(hana, "a = 2\n", timeout="10"))}  # fmt: skip
    assert len(others | {number}) == 5
    with browsing(still, "tom", "staff") as tom:
        assert number_in(ran(tom, "a = 1\n", timeout="10")) not in others | {number}
    still.store.submissions.cancel(SubmissionId(number), None, still.now)
    assert number_in(ran(hana, "a = 1\n", timeout="10")) != number, "that one is over"


def test_staff_see_everybodys_scripts_and_nobody_else_sees_any(still: ServedApi, hana: httpx.Client) -> None:
    number = number_in(ran(hana, f"# {HOSTILE}\n", name=f"{'p' * 60}.py"))
    by_api = sent_by_api(still, token_of(still, "grace"), timeout_s=5).json()["script"]
    with browsing(still, "tom", "staff") as tom, browsing(still, "eve") as eve, browsing(still) as nobody:
        assert [row["script"] for row in rows_of(tom, f"{RUN}.json")] == [by_api, number]
        assert [row["script"] for row in rows_of(tom, f"{RUN}.json?whose=mine")] == []
        assert [row["script"] for row in rows_of(hana, f"{RUN}.json?whose=mine")] == [number]
        page = tom.get(f"{RUN}/{number}")
        assert page.status_code == 200 and HOSTILE not in page.text and "Queued" in words(page.text)
        gina = still.store.people.ensure("gina")
        still.store.roster.set_role_on(still.store.boards.get("transpose").id, gina.id, "owner", by="x", now=still.now)
        with browsing(still, "gina") as helper:
            for path in (RUN, f"{RUN}.csv", f"{RUN}/{number}", f"{RUN}?again={number}"):
                assert eve.get(path).status_code == helper.get(path).status_code == 403, path
                assert nobody.get(path).headers["location"].startswith("/login")
            for browser in (eve, helper):
                assert ran(browser, "a = 1\n").status_code == 403
                form = {"csrf": csrf(browser.get("/me").text)}
                assert browser.post(f"{RUN}/{number}/cancel", data=form).status_code == 403
    assert len(still.store._all("SELECT id FROM submission")) == 2


def test_a_script_is_cancelled_once(still: ServedApi, hana: httpx.Client) -> None:
    number = number_in(ran(hana, "a = 1\n"))
    form = {"csrf": csrf(hana.get("/me").text)}
    with browsing(still, "tom", "staff") as tom:
        theirs = {"csrf": csrf(tom.get("/me").text)}
        assert tom.post(f"{RUN}/{number}/cancel", data=form).status_code == 403, "another's form"
        assert tom.post(f"{RUN}/{number}/cancel", data=theirs).headers["location"] == f"{RUN}/{number}"
    again = hana.post(f"{RUN}/{number}/cancel", data=form)
    assert again.status_code == 409 and f"Script {number} has ended already" in words(again.text)
    page = hana.get(f"{RUN}/{number}").text
    assert "data-live" not in page and "– cancelled" in words(hana.get(RUN).text)
    assert audited(still)[0] == ("script.cancel", "tom")


def test_what_cannot_run_comes_back_with_a_sentence(still: ServedApi, hana: httpx.Client) -> None:
    for text, more, said in (
        ("", {}, "nothing is written"),
        ("a = 1\n", {"name": "k.cu"}, "isn't a Python file"),
        ("a = 1\n", {"gpu": "B200"}, "no place has a GPU of type 'B200'"),
        ("a = 1\n", {"gpu": ""}, "no GPU type was chosen"),
        ("a = 1\n", {"place": "mars"}, "there is no place 'mars'"),
        ("a = 1\n", {"timeout": "0"}, "may take 1 to 600 s"),
        ("a = 1\n", {"timeout": "601"}, "may take 1 to 600 s"),
        ("a = 1\n", {"timeout": "²"}, "isn't a number of seconds"),
        ("a = 1\n", {"timeout": HOSTILE}, "isn't a number of seconds"),
    ):
        answer = ran(hana, text, **more)
        told = html.unescape(answer.text)
        assert (answer.status_code, said in told) == (400, True), (more, words(answer.text)[:900])
        assert "It wasn't run:" in told and HOSTILE not in answer.text
        for name, value in more.items():
            assert html.escape(value) in answer.text, name
    large = ran(hana, "x" * (SOURCE_CAP + 1))
    assert large.status_code == 413 and "1,000,000" in large.text
    files = [("file", ("a.py", b"a = 1\n")), ("file", ("b.py", b"b = 1\n"))]
    form = {"csrf": csrf(hana.get("/me").text), "name": "", "source": "", "gpu": "H100"}
    several = hana.post(RUN, data=form, files=files)
    assert several.status_code == 400 and "a script is one file, not 2" in several.text and "a.py, b.py" in several.text
    old = ran(hana, "kept = 1\n", csrf="0" * 64)
    assert old.status_code == 403 and "kept = 1" in old.text and "has expired" in old.text
    assert still.store._all("SELECT id FROM submission") == [] and audited(still) == []


def test_what_is_not_a_script_has_no_page(still: ServedApi, hana: httpx.Client) -> None:
    from tests.flow.test_pages import judged

    number = judged(still, "ada")
    for path in (f"{RUN}/{number}", f"{RUN}/999999", f"{RUN}?again={number}"):
        answer = hana.get(path)
        assert answer.status_code == 404 and "there is no script" in html.unescape(answer.text), path
    form = {"csrf": csrf(hana.get("/me").text)}
    assert hana.post(f"{RUN}/{number}/cancel", data=form).status_code == 404
    assert "Nobody ran one in these days." in hana.get(RUN).text
    assert "You ran none in these days." in hana.get(f"{RUN}?whose=mine").text


def test_where_none_may_run_that_is_said(database_url: str, tmp_path: Path) -> None:
    toml = "[policy]\nscript_gpu_s_per_day = 0\n"
    with served(database_url, tmp_path / "service", toml=toml) as api, browsing(api, "hana", "owner") as hana:
        page = hana.get(RUN).text
        assert "Scripts are turned off here." in words(page) and "<button disabled>Run</button>" in page
        refused = ran(hana, "a = 1\n")
        assert refused.status_code == 403 and "turned off" in refused.text


def test_long_lists_have_pages(still: ServedApi, hana: httpx.Client) -> None:
    for n in range(31):
        number_in(ran(hana, f"a = {n}\n", timeout="1"))
    page = hana.get(RUN).text
    older = re.search(r'<a href="(\?from=30)">Older</a>', page)
    assert older is not None and len(re.findall(rf'<th scope="row"><a href="{RUN}/', page)) == 30
    assert len(re.findall(rf'<th scope="row"><a href="{RUN}/', hana.get(f"{RUN}{older[1]}").text)) == 1
    assert len(rows_of(hana, f"{RUN}.json")) == 31
    clock = still.context.clock
    assert isinstance(clock, HandClock)
    clock.go(8 * 86_400)
    with browsing(still, "olga", "owner") as olga:
        assert "Nobody ran one in these days." in olga.get(RUN).text
