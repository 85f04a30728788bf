"""Work logs on a real board: the same by the database, over HTTP and on the page; escaped, self-contained, audited."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kbslurm.client.http import Client
from kbslurm.domain import work_logs
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.flow.submit import accept
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_pages import HOSTILE, SECRET_LOG, browsing, judged
from tests.popcorn.served_api import ADMIN, GOOD, WRONG, ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


class Loads(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag in ("script", "img", "iframe", "link", "object", "form", "base") or "src" in told or "style" in told:
            self.found.append(tag)
        if tag == "a" and not (told.get("href") or "").startswith("#"):
            self.found.append(f"a {told.get('href')}")
        self.found += [name for name in told if name.startswith("on")]


def worked(api: ServedApi) -> None:
    """ada submits something, then something else with a hostile name, takes that back, and then the first again."""
    judged(api, "ada", 0.5)
    ada = api.store.people.ensure("ada").id
    hostile = f"# {HOSTILE}\n".encode() + WRONG
    second = accept(api.store.intake, ada, "transpose", '"><b>.py', hostile, "test", ["H100"], api.now)
    gone = accept(api.store.intake, ada, "transpose", "gone.py", GOOD, "test", ["H100"], api.now)
    api.store.submissions.take_back(gone.submission_id, "ada", api.now)
    assert second.submission_id == 2


def test_it_says_what_changed_and_how_it_went_the_same_every_way(api: ServedApi, host: Client, tmp_path: Path) -> None:
    worked(api)
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    here = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    there = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})
    told = here("worklog", "transpose", "ada", "--json").json()
    over = there("worklog", "transpose", "ada", "--json").json()
    assert {**told, "written_at": ""} == {**over, "written_at": ""}
    first, second, gone = told["submissions"]
    assert (first["submission"], first["compared_with"], first["lines_removed"]) == (1, None, 0)
    assert first["lines_added"] == len(GOOD.decode().splitlines())
    assert first["runs"][0]["verdict"] == "passed" and first["runs"][0]["ranked"]
    assert abs(first["runs"][0]["score_s"] - 0.5) < 0.01
    assert second["compared_with"] == 1 and f"+# {HOSTILE}" in second["diff"] and second["lines_removed"] > 0
    assert second["runs"][0]["state"] == "queued" and second["runs"][0]["verdict"] is None
    assert gone["deleted"] and gone["diff"] == "" and gone["lines_added"] == 0
    table = list(csv.DictReader(io.StringIO(here("worklog", "transpose", "ada", "--format", "csv").out)))
    assert [(row["submission"], row["verdict"]) for row in table] == [("1", "passed"), ("2", ""), ("3", "")]
    page = here("worklog", "transpose", "ada").out
    assert Loads(page).found == [] and HOSTILE not in page and "&lt;script&gt;" in page and SECRET_LOG not in page
    assert "http" not in page.replace("http-equiv", "") and "What changed since #1" in page and "All of it" in page
    out = tmp_path / "ada.html"
    said = there("worklog", "transpose", "ada", "-o", str(out))
    assert said.code == 0 and "3 submissions written to" in said.out and out.stat().st_mode & 0o077 == 0
    assert here("worklog", "transpose", "ada", "--format", "pdf").code == 2
    assert here("worklog", "transpose", "zoe").code == 2 and here("worklog", "nowhere", "ada").code == 2
    lines = [line for line in api.store.events.audit_log(limit=100) if line.kind == "staff.worklog"]
    person = api.store.people.ensure("ada").id
    assert {line.subject for line in lines} == {f"person:{person}"} and {line.data["by"] for line in lines} == {
        "ada", "hana",
    }  # fmt: skip


def test_a_long_one_is_told_in_parts_and_says_so(api: ServedApi, host: Client, tmp_path: Path) -> None:
    ada, many = api.store.people.ensure("ada").id, work_logs.AT_ONCE + 5
    long = [f"v{n} = '{'x' * 60}'" for n in range(3000)]
    for n in range(many):
        text = "\n".join(long if n < 2 else [f"a = {n}"]).replace("'x", f"'{n}")
        accept(api.store.intake, ada, "transpose", "k.py", text.encode(), "test", ["H100"], api.now)
    there = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": ADMIN})
    here = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    told, said = host.work_log("transpose", "ada"), f"1 to {work_logs.AT_ONCE} of {many} submissions"
    assert (len(told["submissions"]), told["of"], told["earlier"]) == (work_logs.AT_ONCE, many, 0)
    assert told["next_after"] == told["submissions"][-1]["submission"]
    first = told["submissions"][0]
    assert len(first["diff"]) < work_logs.DIFF_CAP + 100 and first["lines_added"] == 3000
    assert first["diff"].splitlines()[-1].startswith("(more lines, which aren't shown: ")
    for kbslurm in (here, there):
        page = kbslurm("worklog", "transpose", "ada")
        assert said in page.out and f"--after {told['next_after']}" in page.err and Loads(page.out).found == []
        assert said in kbslurm("worklog", "transpose", "ada", "--format", "csv").out.splitlines()[-1]
        rest = kbslurm("worklog", "transpose", "ada", "--after", str(told["next_after"]), "--json").json()
        assert (len(rest["submissions"]), rest["earlier"], rest["next_after"]) == (5, work_logs.AT_ONCE, None)
        assert rest["submissions"][0]["compared_with"] == told["next_after"], "the part before is known to it"
        last = kbslurm("worklog", "transpose", "ada", "--after", str(told["next_after"]))
        assert f"{work_logs.AT_ONCE + 1} to {many} of {many}" in last.out and "--after" not in last.err
    path = "/staff/board/transpose/worklog"
    with browsing(api, "hana", "staff") as hana:
        begun = hana.get(path, params={"person": "ada"})
        (onward,) = re.findall(r'href="(\?[^"]+)">Go on<', begun.text)
        assert said in begun.text and len(begun.content) < 3 * work_logs.DIFFS_CAP
        after = hana.get(path + html.unescape(onward))
        assert f"of {many} submissions" in after.text and ">Go on<" not in after.text
        assert said in hana.get(path, params={"person": "ada", "format": "csv"}).text


def test_all_the_changes_of_a_part_have_a_limit_too(
    api: ServedApi, host: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_logs, "DIFFS_CAP", 1500)
    monkeypatch.setattr(work_logs, "LINES_AT_ONCE", 100)
    ada = api.store.people.ensure("ada").id
    for n in range(5):
        text = "\n".join(f"line{k} = {n}" for k in range(30))
        accept(api.store.intake, ada, "transpose", "k.py", text.encode(), "test", ["H100"], api.now)
    found = host.work_log("transpose", "ada")["submissions"]
    assert sum(len(one["diff"]) for one in found) < 1500 + 5 * 250
    assert [one["lines_added"] for one in found] == [30, 30, 30, 0, 0]
    assert "aren't shown" in found[2]["diff"] and "not compared" in found[4]["diff"]


def test_a_teams_has_what_everyone_submitted_for_it(api: ServedApi, host: Client) -> None:
    for name in ("ada", "bea"):
        api.store.people.ensure(name)
        host.set_team(f"person:{name}", "blue")
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.4)
    judged(api, "cyd", 0.3)
    found = host.work_log("transpose", "team:blue")
    assert [one["person"] for one in found["submissions"]] == ["ada", "bea"] and found["person"] is None
    assert found["submissions"][1]["compared_with"] == 1 and found["submissions"][1]["diff"] == ""
    with pytest.raises(NotFound):
        host.work_log("transpose", "team:red")


def test_the_page_is_for_hosts_and_the_boards_graders(api: ServedApi, host: Client) -> None:
    worked(api)
    api.store.people.ensure("gus")
    host.set_board_role("transpose", "person:gus", "grader")
    path = "/staff/board/transpose/worklog"
    for name, role, status in (("hana", "staff", 200), ("gus", "participant", 200), ("ada", "participant", 403)):
        with browsing(api, name, role) as browser:  # type: ignore[arg-type]
            answer = browser.get(path, params={"person": "ada"})
            assert answer.status_code == status, name
            if status == 200:
                assert HOSTILE not in answer.text and "Work log of ada" in answer.text
                (line,) = api.store.events.audit_log(limit=1)
                assert (line.kind, line.data["by"], line.data["via"]) == ("staff.worklog", name, "page")
                assert "default-src 'none'; style-src 'sha256-" in answer.headers["content-security-policy"]
                sheet = browser.get(path, params={"person": "ada", "format": "csv"})
                assert sheet.headers["content-disposition"] == 'attachment; filename="transpose-worklog.csv"'
                assert browser.get(path).status_code == 400
                assert browser.get(path, params={"person": "nobody"}).status_code == 404
    with browsing(api, "hana", "staff") as hana:
        assert f'action="{path}"' in hana.get("/staff/board/transpose").text
    with browsing(api) as nobody:
        assert nobody.get(path, params={"person": "ada"}).status_code == 303
    tokens = {name: api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now) for name in ("gus", "bea")}
    with Client(api.url, token=tokens["gus"], admin=tokens["gus"]) as gus:
        assert len(gus.work_log("transpose", "ada")["submissions"]) == 3
    with Client(api.url, token=tokens["bea"], admin=tokens["bea"]) as bea, pytest.raises(KbslurmError):
        bea.work_log("transpose", "ada")


def test_a_grader_is_told_of_nobody_who_has_nothing_to_do_with_the_board(api: ServedApi, host: Client) -> None:
    worked(api)
    zoe = api.store.people.ensure("zoe-elsewhere")
    gus = api.store.people.ensure("gus")
    host.set_board_role("transpose", "person:gus", "grader")
    token = api.store.tokens.issue(gus.id, now=api.now)
    said = {}
    with Client(api.url, token=token, admin=token) as client:
        for whom in ("zoe-elsewhere", "zoe-elsewher", str(zoe.id), "9999"):
            with pytest.raises(NotFound) as found:
                client.work_log("transpose", whom)
            said[whom] = str(found.value).replace(whom, "WHOM")
        assert len(client.work_log("transpose", "ada")["submissions"]) == 3
    assert len(set(said.values())) == 1 and "elsewhere" not in next(iter(said.values())), said
    assert host.work_log("transpose", "zoe-elsewhere")["submissions"] == []
