"""Beside each table of a page is a file with the same in it, for the same readers."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.api.pages import staff
from kbslurm.store.rejudgings import Wanted
from kbslurm_eval.shared import wire
from tests.flow import gallery
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import ServedApi, served

TEMPLATES = Path(staff.__file__).parent.parent / "templates"
# Tables without a file beside them: how many in each template, and why.
WITHOUT = {
    "staff/board.html": (1, "the standings have files of their own, by the export"),
    "staff/similar.html": (1, "a form's answer; kbslurm similar writes files"),
    "staff/grades.html": (1, "a form's answer; the form makes files, too"),
    "staff/worklog.html": (1, "it stands alone; its own page is to be had as CSV"),
    "staff/course.html": (1, "the roster is exported as a roster's file"),
    "staff/reveal.html": (1, "a screen, one step at a time"),
    "boards/hall.html": (1, "a screen; the board's page has the files"),
    "boards/embedded_board.html": (1, "a frame; the board's page has the files"),
    "parts/places.html": (1, "a macro: where it is called the files are, too"),
    "parts/triage.html": (
        1,
        "a macro: a submission's page has the file; of code that isn't stored it is a form's answer",
    ),
    "parts/measures.html": (4, "charts in rows, code side by side, and a macro: what they draw is in other tables"),
    "archive/board.html": (1, "archives are files"),
    "archive/submissions.html": (1, "archives are files"),
}
# Those that a macro of another template writes, and a list.
ELSEWHERE = {
    "boards/board_standings.html": 1,  # practice
    "people/me.html": 1,  # one's scores
    "people/submission.html": 2,  # stages, and one's scores
    "staff/overview.html": 1,  # what needs attention
    "staff/submission_triage.html": 1,  # flags
}
BESIDE = re.compile(r"ui\.(files|beside)\(")


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("hana", "owner")
        yield built


@pytest.fixture
def hana(api: ServedApi) -> Iterator[httpx.Client]:
    with browsing(api, "hana", "owner") as browser:
        yield browser


def judged(api: ServedApi, by: str, score_s: float | None, **told: Any) -> int:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    return gallery.judged(api.store, by, api.now, score_s, **told)


def links_of(page: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r'<p class="files">.*?</p>', page)]


def rows_of(browser: httpx.Client, address: str) -> list[dict[str, Any]]:
    """The rows of a file, which are the same as JSON and as CSV."""
    path, _, query = address.partition("?")
    path = path.removesuffix(".json").removesuffix(".csv")
    query = f"?{query}" if query else ""
    told, lines = browser.get(f"{path}.json{query}"), browser.get(f"{path}.csv{query}")
    assert told.status_code == lines.status_code == 200, (told.text, lines.text)
    assert told.headers["content-type"] == "application/json" and "attachment" in lines.headers["content-disposition"]
    assert told.headers["cache-control"] == lines.headers["cache-control"] == "no-store"
    found: list[dict[str, Any]] = told.json()
    plain = list(csv.DictReader(io.StringIO(lines.text)))
    assert [list(row) for row in plain] == [list(row) for row in found]
    return found


def test_a_table_without_a_file_says_why() -> None:
    """A new table needs `ui.beside` or `ui.files` below it, or a line above."""
    wrong = []
    for file in sorted(TEMPLATES.rglob("*.html")):
        name, text = str(file.relative_to(TEMPLATES)), file.read_text()
        text = re.sub(r"{#.*?#}", "", text, flags=re.DOTALL)
        tables, beside = text.count("<table"), len(BESIDE.findall(text))
        tables += ELSEWHERE.get(name, 0)
        expected = tables - WITHOUT.get(name, (0, ""))[0]
        if beside != expected and name != "parts/ui.html":
            wrong.append(f"{name}: {tables} tables, {beside} with a file, {expected} should have one")
    assert not wrong, "\n".join(wrong)
    assert set(WITHOUT) <= {str(file.relative_to(TEMPLATES)) for file in TEMPLATES.rglob("*.html")}


def test_each_link_beside_a_table_leads_to_its_file(api: ServedApi, hana: httpx.Client) -> None:
    number = judged(api, "ada", 3e-3)
    other = judged(api, "ada", 2e-3)
    wrong = judged(api, "bea", None, verdict="wrong")
    person = api.store.people.ensure("ada").id
    pages: dict[httpx.Client, tuple[str, ...]] = {
        hana: (
            "/staff", "/staff/boards", "/staff/people", f"/staff/people/{person}", "/staff/audit", "/staff/places",
            "/staff/board/transpose", "/staff/board/transpose/submissions", f"/staff/submissions/{wrong}",
            "/staff/board/transpose/rejudge", "/staff/board/transpose/finals", "/staff/board/transpose/entry",
            "/staff/courses", "/staff/run", "/staff/board/transpose/triage",
            "/person/ada", "/problem/transpose", "/board/transpose/H100",
            "/staff/people?q=ada&from=0",
        )
    }  # fmt: skip
    count = 0
    with browsing(api, "ada") as ada:
        pages[ada] = (f"/s/{number}", f"/s/{number}/diff/{other}", f"/compare?a={number}&b={other}", "/me")
        for browser, paths in pages.items():
            for path in paths:
                page = browser.get(path)
                assert page.status_code == 200, (path, page.text)
                for address in re.findall(r'href="([^"]+)"', " ".join(links_of(page.text))):
                    told = browser.get(address)
                    assert told.status_code == 200, (path, address, told.text)
                    kind = "application/json" if ".json" in address else "text/csv; charset=utf-8"
                    assert told.headers["content-type"] == kind, (path, address)
                    count += 1
    assert count >= 40, count


def test_staffs_files_have_what_their_pages_show(api: ServedApi, hana: httpx.Client) -> None:
    judged(api, "ada", 3e-3, file_name="=1+1.py")
    judged(api, "bea", None, verdict="wrong")
    people = rows_of(hana, "/staff/people.json?q=a")
    assert {"ada", "bea", "hana"} <= {row["name"] for row in people} and people[0]["role"] == "owner"
    assert [row["name"] for row in rows_of(hana, "/staff/people.json?only=staff")] == ["hana"]
    found = rows_of(hana, "/staff/board/transpose/submissions.json")
    assert [(row["person"], row["standing"], row["score_s"]) for row in found] == [
        ("bea", "wrong", None), ("ada", "passed", pytest.approx(3e-3))
    ]  # fmt: skip
    assert [row["person"] for row in rows_of(hana, "/staff/board/transpose/submissions.json?verdict=wrong")] == ["bea"]
    assert "'=1+1.py" in hana.get("/staff/board/transpose/submissions.csv").text, "no formula"
    (board,) = [row for row in rows_of(hana, "/staff/boards.json") if row["board"] == "transpose"]
    assert (board["state"], board["submissions"]) == ("open", 2)
    api.store.people.ban(api.store.people.ensure("bea").id, "=cheats", by="hana", now=api.now)
    (ban,) = rows_of(hana, "/staff/audit.json?act=ban")
    assert (ban["by"], ban["act"], ban["named"]) == ("hana", "ban", "bea")
    assert rows_of(hana, "/staff.json?table=actions")[0]["act"] == "ban"
    refused = hana.get("/staff.json?table=nothing", headers={"Accept": "application/json"})
    assert refused.status_code == 404 and "attention" in refused.text


def test_a_file_has_more_rows_than_a_page(api: ServedApi, hana: httpx.Client) -> None:
    for n in range(60):
        api.store.people.ensure(f"somebody-{n}")
    assert hana.get("/staff/people").text.count("/staff/people/") < 60
    assert len({row["id"] for row in rows_of(hana, "/staff/people.json")}) >= 61


def test_the_moves_of_a_rejudge_are_a_file(api: ServedApi, hana: httpx.Client) -> None:
    from tests.flow.test_staff_pages import judge_what_waits

    gallery.played(api.store, api.now - timedelta(days=3), names=gallery.NAMES[:5])
    assert hana.get("/staff/board/transpose/rejudge.json").status_code == 404, "there is no table yet"
    api.store.rejudgings.preview("transpose", Wanted(), None, by="hana", now=api.now)
    judge_what_waits(api)
    page = hana.get("/staff/board/transpose/rejudge").text
    moves = rows_of(hana, "/staff/board/transpose/rejudge.json")
    assert moves and all(row["person"] in html.unescape(page) for row in moves)
    assert {row["gpu"] for row in moves} == {"H100"}
    assert sum(row["runs"] for row in rows_of(hana, "/staff/board/transpose/rejudge.json?table=verdicts")) == 10


def test_a_submissions_files_are_its_authors_and_have_nothing_of_hidden_cases(api: ServedApi) -> None:
    hidden = [wire.BenchmarkResult(phase="hidden", index=0, spec="planted", status="pass", calls=3, mean_ns=5.0)]
    tests = [wire.TestResult(phase="test", index=0, spec="rows: 4", status="pass"),
             wire.TestResult(phase="hidden", index=0, spec="planted", status="pass")]  # fmt: skip
    number = judged(api, "ada", 3e-3, tests=tests, benchmarks=hidden)
    judged(api, "ada", 2e-3)
    with browsing(api, "ada") as ada:
        timed = rows_of(ada, f"/s/{number}.json")
        assert timed and {row["phase"] for row in timed} <= {"benchmark", "ranked"}
        assert all(row["low"] <= row["median"] <= row["high"] for row in timed)
        assert [row["spec"] for row in rows_of(ada, f"/s/{number}.json?table=tests")] == ["rows: 4"]
        assert rows_of(ada, f"/s/{number}.json?table=stages")
        assert len(rows_of(ada, f"/s/{number}.json?table=scores")) == 2
        assert "planted" not in "".join(
            ada.get(f"/s/{number}.csv?table={table}").text for table in ("timings", "tests", "differences", "kernels")
        )
    with browsing(api, "eve") as eve:
        assert eve.get(f"/s/{number}.json").status_code == eve.get(f"/s/{number}.csv").status_code == 404
    with browsing(api) as anybody:
        assert anybody.get(f"/s/{number}.csv").headers["location"].startswith("/login?next=/s/")


def test_what_a_board_keeps_back_is_in_no_file(api: ServedApi) -> None:
    judged(api, "ada", 3e-3)
    judged(api, "bea", 2e-3)
    with browsing(api) as anybody:
        places = rows_of(anybody, "/person/ada/places.json")
        assert [(row["board"], row["rank"], row["of"]) for row in places] == [("transpose", 2, 2)]
        assert [row["board"] for row in rows_of(anybody, "/person/ada/places.json?table=records")] == ["transpose"]
        assert rows_of(anybody, "/problem/transpose/cases.json")
        api.store.boards.edit("transpose", by="hana", standings="hidden", now=api.now)
        assert anybody.get("/person/ada/places.json").status_code == 404
        assert rows_of(anybody, "/board/transpose/H100/final.json") == []
        assert rows_of(anybody, "/board/transpose/H100/practice.json") == []


def test_a_final_and_practice_are_files(api: ServedApi) -> None:
    """The same as the board's page has: a final that counts, and what came after the end."""
    judged(api, "ada", 3e-3)
    assert isinstance(api.context.clock, HandClock)
    with browsing(api) as anybody:
        assert anybody.get("/board/transpose/T4/final.csv").status_code == 404
        told = anybody.get("/board/transpose/H100/practice.csv")
        assert told.text.splitlines()[0].startswith("rank,best_rank,worst_rank,person")


def test_a_person_whose_name_looks_like_a_files_has_a_page(api: ServedApi) -> None:
    judged(api, "sheet.csv", 3e-3)
    with browsing(api) as anybody:
        page = anybody.get("/person/sheet.csv")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        assert rows_of(anybody, "/person/sheet.csv/places.json")[0]["board"] == "transpose"
