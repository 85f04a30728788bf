"""What hosts do on pages is what their commands do: boards made and changed, people added, submissions looked through,
standings exported; refused alike, and in the audit log."""

from __future__ import annotations

import html
import importlib
import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from kbslurm.api.pages.staff import submissions as staff_submissions
from kbslurm.domain.access import BoardRole
from kbslurm.flow.remove import remove
from kbslurm.flow.submit import accept
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_pages import HIDDEN_SPEC, HOSTILE, SECRET_LOG, Page, browsing, csrf, judged
from tests.popcorn.served_api import GOOD, ServedApi, served

BOARD = "/staff/board/transpose"
NEW = "/staff/boards/new"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("hana", "staff")
        yield built


@pytest.fixture
def hana(api: ServedApi) -> Iterator[httpx.Client]:
    with browsing(api, "hana") as browser:
        yield browser


@pytest.fixture
def kbslurm(api: ServedApi, tmp_path: Path) -> CommandLine:
    """With the database, so that nothing of HTTP is in the way; as the host whom the pages know."""
    config = tmp_path / "service" / "kbslurm.toml"
    return CommandLine(
        cwd=tmp_path, env={"DATABASE_URL": api.store.url, "KBSLURM_PERSON": "hana", "KBSLURM_CONFIG": str(config)}
    )


def sent(browser: httpx.Client, path: str, /, **fields: str) -> httpx.Response:
    return browser.post(path, data={"csrf": csrf(browser.get("/me").text), **fields})


def newest(api: ServedApi, count: int = 1) -> list[dict[str, Any]]:
    """The newest acts: what was done, on what, by whom and from where."""
    return [
        {"act": event.kind, "subject": event.subject, "by": event.data["by"], "via": event.data.get("via")}
        for event in api.store.events.audit_log(limit=count)
    ]


def on(api: ServedApi, board: str, act: str) -> dict[str, Any]:
    subject = f"board:{api.store.boards.get(board).id}"
    return {"act": f"staff.{act}", "subject": subject, "by": "hana", "via": "page"}


def shown(text: str) -> str:
    """A page's words."""
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


def a_course(api: ServedApi, hana: httpx.Client) -> None:
    data = {"csrf": csrf(hana.get("/me").text), "name": "gpu-2026", "preview": "no"}
    file = {"file": ("roster.csv", b"name,email,section\nAda Lovelace,ada@example.edu,A\n")}
    assert hana.post("/staff/courses/new/import", data=data, files=file).status_code == 200


def test_a_board_made_on_the_page_is_the_one_that_the_command_makes(
    api: ServedApi, hana: httpx.Client, kbslurm: CommandLine
) -> None:
    a_course(api, hana)
    form = hana.get(f"{NEW}?course=gpu-2026").text
    assert "<option selected>gpu-2026</option>" in form and "<option>transpose</option>" in form
    assert "H100, A100" in form, "the GPU types that are configured here"
    answer = sent(
        hana,
        NEW,
        name="By-Page",
        problem="transpose",
        course="gpu-2026",
        gpus="h100, A100",
        deadline="2099-12-24 18:00",
        zone="Europe/Berlin",
        description="Turn it.",
        visibility="private",
        min_isolation="1",
        teams="yes",
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/staff/board/by-page")
    assert newest(api) == [on(api, "by-page", "create_board")]
    said = kbslurm(
        "board", "create", "by-command", "--problem", "transpose", "--course", "gpu-2026", "--gpus", "h100,A100",
        "--deadline", "2099-12-24 18:00", "--zone", "Europe/Berlin", "--description", "Turn it.", "--visibility",
        "private", "--min-isolation", "1", "--no-confirm", "--teams",
    )  # fmt: skip
    assert said.code == 0, said.err
    one, other = (told_of(api, name) for name in ("by-page", "by-command"))
    assert one == other and one["deadline_at"] and one["course"] == "gpu-2026" and one["min_isolation"] == 1
    assert api.store.boards.get("by-page").id in {
        board.id for board in api.store.boards.all() if board.created_by == api.store.people.ensure("hana").id
    }
    assert 'href="/staff/board/by-page"' in hana.get("/staff/courses/gpu-2026").text
    nowhere = sent(hana, NEW, name="plain", problem="transpose", confirm="yes")
    assert nowhere.status_code == 400 and "GPU type" in shown(nowhere.text), "this problem names none either"
    assert sent(hana, NEW, name="plain", problem="transpose", gpus="H100", confirm="yes").status_code == 303
    made = api.store.boards.get("plain")
    assert (made.gpus, made.deadline_at, made.visibility, made.confirm, made.course) == (
        ("H100",),
        None,
        "public",
        True,
        None,
    )
    warned = sent(hana, NEW, name="elsewhere", problem="transpose", gpus="B200")
    assert warned.status_code == 200 and "B200" in warned.text and 'href="/staff/board/elsewhere"' in warned.text


def told_of(api: ServedApi, name: str) -> dict[str, Any]:
    found = vars(api.store.boards.get(name)).copy()
    for differs in ("id", "name", "created_at", "created_by", "secret_seed", "problem"):
        found.pop(differs, None)
    return found


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ({"name": "no spaces"}, 400, "isn't a valid board name"),
        ({"name": ""}, 400, "isn't a valid board name"),
        ({"name": "transpose"}, 400, "there is already a board"),
        ({"problem": ""}, 400, "no problem was chosen"),
        ({"problem": "nothing"}, 404, "nothing"),
        ({"gpus": "H 100;"}, 400, "GPU"),
        ({"gpus": "H100 " * 101}, 400, "too many"),
        ({"deadline": "soon"}, 400, "isn't a valid deadline"),
        ({"deadline": "1999-01-01"}, 400, "has passed already"),
        ({"deadline": "2099-01-01", "zone": "Nowhere/Land"}, 400, "isn't a known time zone"),
        ({"description": "x" * 4001}, 400, "description"),
        ({"visibility": "secret"}, 400, "isn't a valid visibility"),
        ({"min_isolation": "4"}, 400, "isn't an isolation level"),
        ({"course": "no-course"}, 404, "no-course"),
        ({"name": HOSTILE}, 400, "isn't a valid board name"),
        ({"problem": HOSTILE}, 404, "script"),
    ],
)
def test_a_board_that_cannot_be_is_refused_in_one_sentence(
    api: ServedApi, hana: httpx.Client, fields: dict[str, str], status: int, why: str
) -> None:
    before = (api.store.boards.names(), newest(api))
    answer = sent(hana, NEW, **{"name": "turn", "problem": "transpose", **fields})
    assert answer.status_code == status and why in shown(answer.text), answer.text
    assert HOSTILE not in answer.text and (api.store.boards.names(), newest(api)) == before


def test_without_a_problem_the_form_says_what_to_do(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path, boards=False) as api, browsing(api, "hana", "staff") as hana:
        page = hana.get(NEW).text
        assert 'href="/staff/problems"' in page and f'action="{NEW}"' not in page


def test_a_boards_settings_change_as_by_command(api: ServedApi, hana: httpx.Client, kbslurm: CommandLine) -> None:
    a_course(api, hana)
    kbslurm("board", "create", "same", "--problem", "transpose", "--gpus", "H100,A100", "--no-confirm")
    for act, fields, words in (
        ("about", {"description": "Now.", "gpus": "A100", "visibility": "closed"},
         ("--description", "Now.", "--gpus", "A100", "--visibility", "private")),
        ("course", {"course": "gpu-2026"}, ("--course", "gpu-2026")),
        ("deadline", {"deadline": "2099-12-24", "zone": "Asia/Tokyo"},
         ("--deadline", "2099-12-24", "--zone", "Asia/Tokyo")),
        ("deadline", {"deadline": "2099-12-25 18:00", "zone": ""}, ("--deadline", "2099-12-25 18:00")),
        ("deadline", {"deadline": "", "zone": "Asia/Tokyo"}, ("--deadline", "never")),
        ("course", {"course": ""}, ("--course", "none")),
    ):  # fmt: skip
        answer = sent(hana, f"{BOARD}/{act}", **fields)
        assert (answer.status_code, answer.headers["location"]) == (303, BOARD), answer.text
        line = newest(api)[0]
        assert (line["subject"], line["by"], line["via"]) == (
            f"board:{api.store.boards.get('transpose').id}",
            "hana",
            "page",
        )
        said = kbslurm("board", "edit", "same", *words)
        assert said.code == 0, said.err
        settings = ("description", "gpus", "visibility", "course", "deadline_at", "zone")
        one, other = (api.store.boards.get(name) for name in ("transpose", "same"))
        assert [getattr(one, name) for name in settings] == [getattr(other, name) for name in settings], act
    for act, closed in (("close", True), ("reopen", False)):
        assert sent(hana, f"{BOARD}/{act}").status_code == 303
        assert (api.store.boards.get("transpose").closed_at is not None) is closed
        button = {True: "Accept them again", False: "Stop accepting submissions"}[closed]
        assert f'<button class="plain">{button}</button>' in hana.get(BOARD).text
    assert newest(api, 1) == [on(api, "transpose", "edit_board")]


def test_forms_take_as_much_as_they_let_people_type(api: ServedApi, hana: httpx.Client) -> None:
    long = "述" * 4000  # each is nine bytes of a form
    assert sent(hana, f"{BOARD}/about", description=long, gpus="H100", visibility="public").status_code == 303
    assert sent(hana, NEW, name="long", problem="transpose", gpus="H100", description=long).status_code == 303
    assert {api.store.boards.get(name).description for name in ("transpose", "long")} == {long}
    scheme = 'by = "time"\npassed = 40\n' + "# a remark that is as long as the field takes\n" * 1400
    assert 60_000 < len(scheme) < 65_536
    answer = sent(hana, f"{BOARD}/grades", scheme=scheme, format="table")
    assert answer.status_code != 413, answer.text


def test_the_deadlines_form_sent_back_as_it_came_changes_nothing(api: ServedApi, hana: httpx.Client) -> None:
    for deadline, zone in (("2099-12-24", "Europe/Berlin"), ("2099-06-01 09:30", "America/St_Johns")):
        sent(hana, f"{BOARD}/deadline", deadline=deadline, zone=zone)
        before = api.store.boards.get("transpose").deadline_at
        page = hana.get(BOARD).text
        values = {name: re.search(rf'name="{name}"[^>]* value="([^"]*)"', page) for name in ("deadline", "zone")}
        assert all(values.values())
        sent(hana, f"{BOARD}/deadline", **{name: found[1] for name, found in values.items() if found})
        assert api.store.boards.get("transpose").deadline_at == before is not None


@pytest.mark.parametrize(
    ("act", "fields", "status", "why"),
    [
        ("about", {"description": "x", "gpus": "", "visibility": "public"}, 400, "needs a GPU type"),
        ("about", {"description": "x" * 4001, "gpus": "H100", "visibility": "public"}, 400, "description"),
        ("about", {"gpus": "H100", "visibility": "x"}, 400, "isn't a valid visibility"),
        ("course", {"course": "nowhere"}, 404, "nowhere"),
        ("deadline", {"deadline": "1999-01-01"}, 400, "has passed already"),
        ("deadline", {"deadline": "x" * 90}, 400, "deadline"),
        ("deadline", {"deadline": "2099-01-01", "zone": HOSTILE}, 400, "isn't a known time zone"),
        ("settings", {}, 404, "settings"),
    ],
)
def test_a_setting_that_cannot_be_changes_nothing(
    api: ServedApi, hana: httpx.Client, act: str, fields: dict[str, str], status: int, why: str
) -> None:
    before = (told_of(api, "transpose"), newest(api))
    answer = sent(hana, f"{BOARD}/{act}", **fields)
    assert answer.status_code == status and why in shown(answer.text), answer.text
    assert HOSTILE not in answer.text and (told_of(api, "transpose"), newest(api)) == before


def offered_roles(browser: httpx.Client) -> list[str]:
    form = browser.get("/staff/people").text.partition('<select id="added-role"')[2].partition("</select>")[0]
    return re.findall(r"<option[^>]*>(\w+)</option>", form)


def test_one_person_is_added_as_by_command(api: ServedApi, hana: httpx.Client, kbslurm: CommandLine) -> None:
    store = api.store
    assert sent(hana, "/staff/add", person=" Zoe Z. ", role="participant").status_code == 303
    zoe = store.people.find("Zoe Z.")
    assert zoe is not None and zoe.role == "participant"
    added = {"act": "staff.user.add", "subject": f"person:{zoe.id}", "by": "hana", "via": "page"}
    assert newest(api) == [added]
    for fields, status, why in (
        ({"person": "zoe z."}, 400, "there is already a person"),
        ({"person": ""}, 400, "name"),
        ({"person": "x" * 201}, 400, "name"),
        ({"person": "yan", "role": "king"}, 400, "isn't a valid role"),
        ({"person": "yan", "role": "staff"}, 403, "only an owner"),
    ):
        answer = sent(hana, "/staff/add", **fields)
        assert answer.status_code == status and why in shown(answer.text), answer.text
        assert newest(api) == [added]
    assert offered_roles(hana) == ["participant"]
    with browsing(api, "olga", "owner") as olga:
        assert offered_roles(olga) == ["owner", "staff", "participant"]
        assert sent(olga, "/staff/add", person="yan", role="staff").status_code == 303
        assert sent(olga, "/staff/add", person=HOSTILE).status_code in (303, 400)
        assert HOSTILE not in olga.get("/staff").text + olga.get("/staff/people").text
    people = {one["name"]: one["role"] for one in kbslurm("user", "list", "--json").json()}
    assert (people["yan"], people["Zoe Z."]) == ("staff", "participant")


def test_one_person_is_put_on_a_roster_as_by_a_file_of_one_line(
    api: ServedApi, hana: httpx.Client, kbslurm: CommandLine, tmp_path: Path
) -> None:
    a_course(api, hana)
    path, store = "/staff/courses/gpu-2026/add", api.store
    fields = {"name": "Émilie du Châtelet", "email": "emilie@example.edu", "student_id": "1706", "section": "B",
              "team": "Newton", "role": "student"}  # fmt: skip
    answer = sent(hana, path, **fields)
    assert answer.status_code == 200 and "1 added, 0 changed" in answer.text and "Émilie" in answer.text
    assert newest(api)[0]["act"] == "staff.roster.import" and newest(api)[0]["via"] == "page"
    again = sent(hana, path, **fields)
    assert "0 added, 0 changed, 0 removed; 1 as before" in again.text
    (tmp_path / "one.csv").write_text(
        "name,email,student id,section,team,role\nÉmilie du Châtelet,emilie@example.edu,1706,B,Newton,student\n"
    )
    told = kbslurm("roster", "import", "one.csv", "--course", "gpu-2026", "--preview", "--json").json()
    assert (told["added"], told["changed"], told["unchanged"]) == ([], [], 1), "the file says what is so already"
    moved = sent(hana, path, name="Émilie du Châtelet", email="emilie@example.edu", section="", team="", role="grader")
    assert "0 added, 1 changed" in moved.text
    found = {one.full_name: one for one in store.roster.of_course("gpu-2026", everyone=True)}
    emilie = found["Émilie du Châtelet"]
    assert (emilie.section, emilie.team, emilie.role, emilie.student_id) == ("B", "newton", "grader", "1706")
    for wrong, why in (
        ({"name": "Nobody"}, "has neither an e-mail address nor a student ID"),
        ({"name": "", "email": "x@example.edu"}, "the name is missing"),
        ({"name": "X", "email": "x"}, "isn't an e-mail address"),
        ({"name": "X", "email": "x@example.edu", "role": "owner"}, "isn't a role that a file can give"),
        ({"name": "X", "email": "x@example.edu", "team": "!!"}, "isn't a valid team name"),
        ({"name": "X", "email": "ada@example.edu", "student_id": "1706"}, "two different people"),
    ):
        answer = sent(hana, path, **wrong)
        text = shown(answer.text)
        assert answer.status_code == 400 and why in text and "Nobody was added" in text and "line 2" not in text, text
    assert len(store.roster.of_course("gpu-2026", everyone=True)) == len(found) == 2
    hostile = sent(hana, path, name=f"=1+1 {HOSTILE}", email="h@example.edu", section=HOSTILE)
    assert hostile.status_code == 200 and HOSTILE not in hostile.text
    assert HOSTILE not in hana.get("/staff/courses/gpu-2026").text
    assert f"=1+1 {HOSTILE}" in {one.full_name for one in store.roster.of_course("gpu-2026", everyone=True)}
    assert sent(hana, "/staff/courses/no-course/add", **fields).status_code == 404


def listed(text: str) -> list[int]:
    return [int(one) for one in re.findall(r'href="/staff/submissions/(\d+)"', text)]


def test_submissions_are_narrowed_as_by_command(
    api: ServedApi, hana: httpx.Client, kbslurm: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = api.store, f"{BOARD}/submissions"
    first = judged(api, "ada")
    clock = api.context.clock
    assert isinstance(clock, HandClock)
    clock.go(3600)
    since = api.now
    second, ada = judged(api, "bob"), store.people.ensure("ada")
    waiting = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    store.boards.add("other", store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    accept(store.intake, ada.id, "other", "k.py", GOOD, "test", ["H100"], api.now)
    for query, words, wanted in (
        ({}, (), [waiting, second, first]),
        ({"person": "ada"}, ("--person", "ada"), [waiting, first]),
        ({"verdict": "passed"}, ("--verdict", "passed"), [second, first]),
        ({"verdict": "wrong"}, ("--verdict", "wrong"), []),
        ({"since": since.isoformat()}, ("--since", since.isoformat()), [waiting, second]),
        ({"person": " ada ", "verdict": "passed"}, ("--person", "ada", "--verdict", "passed"), [first]),
        ({"person": "", "verdict": "", "since": "  "}, (), [waiting, second, first]),
    ):
        page = hana.get(path, params=query)
        assert page.status_code == 200 and listed(page.text) == wanted, query
        said = kbslurm("submission", "list", "--board", "transpose", *words, "--json").json()["submissions"]
        assert [one["id"] for one in said] == wanted, words
    store.boards.set_deadline("transpose", api.now + timedelta(days=9), "Asia/Tokyo", now=api.now)
    there = (since + timedelta(hours=9)).strftime("%Y-%m-%d %H:%M")  # what the clocks say in the board's zone
    assert listed(hana.get(path, params={"since": there}).text) == [waiting, second]
    for query, status, why in (
        ({"verdict": "good"}, 400, "there is no verdict"),
        ({"since": "soon"}, 400, "isn't a time"),
        ({"since": "999999d"}, 400, "longer ago"),
        ({"person": "nobody"}, 404, "nobody"),
        ({"person": HOSTILE}, 404, "script"),
        ({"from": "-1"}, 422, "from"),
    ):
        answer = hana.get(path, params=query)
        assert answer.status_code in (status, 400) and why in shown(answer.text), answer.text
        assert HOSTILE not in answer.text
    assert hana.get("/staff/board/nowhere/submissions").status_code == 404
    monkeypatch.setattr(staff_submissions, "SHOWN", 1)
    seen, at = [], f"{path}?person=ada"
    while at:
        text = hana.get(at).text
        seen += listed(text)
        older = re.search(r'href="([^"]+)">Older<', text)
        at = urljoin(at, html.unescape(older[1])) if older else ""
    assert seen == [waiting, first], "the filter goes along from page to page"
    assert re.search(r'href="\?person=ada&amp;from=0">Newer<', hana.get(f"{path}?person=ada&from=1").text)


def test_a_submissions_page_for_hosts_has_its_code_and_nothing_hidden(api: ServedApi, hana: httpx.Client) -> None:
    number = judged(api, "<b>eve")
    page = hana.get(f"/staff/submissions/{number}").text
    assert "custom_kernel" in page and "a log with" in page and "500 ms" in page
    assert [one for one in (HOSTILE, SECRET_LOG, HIDDEN_SPEC, "<b>eve") if one in page] == []
    for link in Page(page).links:
        assert hana.get(urljoin(f"/staff/submissions/{number}", link)).status_code == 200, link
    eve = api.store.people.ensure("<b>eve")
    remove(api.store.submissions, api.store.submissions.get(number).id, eve.id, "eve", api.now)  # type: ignore[arg-type]
    gone = hana.get(f"/staff/submissions/{number}").text
    assert "its source deleted" in gone and "taken back" in gone and "custom_kernel" not in gone
    waiting = accept(api.store.intake, eve.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    assert "No run has ended with a report" in hana.get(f"/staff/submissions/{waiting}").text
    assert hana.get("/staff/submissions/999999").status_code == 404


def test_only_who_may_grade_a_board_looks_through_its_submissions(api: ServedApi) -> None:
    number = judged(api, "ada")
    store, paths = api.store, (f"{BOARD}/submissions", f"/staff/submissions/{number}")
    board = store.boards.get("transpose")
    store.boards.add("other", board.problem, gpus=["H100"], now=api.now)
    bob = store.people.ensure("bob")
    elsewhere = accept(store.intake, bob.id, "other", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    roles: tuple[tuple[str, BoardRole], ...] = (("gus", "grader"), ("oda", "observer"))
    for name, role in roles:
        store.roster.set_role_on(board.id, store.people.ensure(name).id, role, by="host", now=api.now)
    with browsing(api, "gus") as gus, browsing(api, "oda") as oda, browsing(api, "ada") as ada, browsing(api) as nobody:
        assert [gus.get(path).status_code for path in paths] == [200, 200]
        assert f'href="{BOARD}"' not in gus.get(paths[0]).text, "he is led nowhere that he may not go"
        for link in Page(gus.get(paths[1]).text).links:
            assert gus.get(urljoin(paths[1], link)).status_code == 200, link
        # Who isn't known on the board and who isn't known at all are the same to him.
        assert [listed(gus.get(paths[0], params={"person": one}).text) for one in ("bob", "bobb", "ada")] == [
            [],
            [],
            [number],
        ]
        refused = [gus.get(f"/staff/submissions/{one}") for one in (elsewhere, 999999)]
        assert [one.status_code for one in refused] == [403, 403]
        assert shown(refused[0].text) == shown(refused[1].text), "nor whether there is one elsewhere"
        boards = [gus.get(f"/staff/board/{one}/submissions") for one in ("other", "nowhere")]
        assert [one.status_code for one in boards] == [403, 403] and shown(boards[0].text) == shown(boards[1].text)
        for browser in (oda, ada):
            assert [browser.get(path).status_code for path in paths] == [403, 403]
        assert [nobody.get(path).status_code for path in paths] == [303, 303]


def test_the_export_is_what_the_command_writes(
    api: ServedApi, hana: httpx.Client, kbslurm: CommandLine, tmp_path: Path
) -> None:
    judged(api, "ada", 0.5)
    judged(api, HOSTILE, 0.25)
    kbslurm("board", "edit", "transpose", "--names", "anonymous")
    pq = importlib.import_module("pyarrow.parquet")
    page = hana.get(BOARD).text
    for live in (False, True):
        more, query = (["--live"], "&amp;live=true") if live else ([], "")
        for form in ("csv", "json", "parquet"):
            path = f"{BOARD}/export?format={form}{query}"
            assert f'href="{path}"' in page
            answer = hana.get(html.unescape(path))
            assert answer.status_code == 200
            name = f"transpose-{'all-' if live else ''}standings.{form}"
            assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
            assert newest(api) == [on(api, "transpose", "export")]
            assert kbslurm("export", "transpose", *more, "--format", form, "--out", f"x.{form}").code == 0
            written = (tmp_path / f"x.{form}").read_bytes()
            if form == "parquet":
                tables = [pq.read_table(io.BytesIO(data)) for data in (answer.content, written)]
                assert tables[0].equals(tables[1]) and tables[0].num_rows == 2
            else:
                assert answer.content == written
            if form == "json":
                people = {row["person"] for row in json.loads(answer.content)}
                assert ("ada" in people) is live
    assert hana.get(f"{BOARD}/export?format=xls").status_code == 400
    assert hana.get("/staff/board/nowhere/export").status_code == 404


def test_what_is_exported_follows_the_role_on_the_board(api: ServedApi) -> None:
    judged(api, "ada")
    board, store = api.store.boards.get("transpose").id, api.store
    for name, role, statuses in (
        ("oda", "observer", [200, 403]),
        ("gus", "grader", [200, 200]),
        ("ada", None, [403, 403]),
    ):
        if role is not None:
            store.roster.set_role_on(board, store.people.ensure(name).id, role, by="host", now=api.now)  # type: ignore[arg-type]
        with browsing(api, name) as browser:
            found = [browser.get(f"{BOARD}/export?live={live}").status_code for live in ("false", "true")]
            assert found == statuses, name


def test_without_pyarrow_there_is_no_link_and_one_sentence(
    api: ServedApi, hana: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbslurm.api import parquet

    monkeypatch.setattr(parquet, "is_there", lambda: False)
    assert "format=parquet" not in hana.get(BOARD).text
    answer = hana.get(f"{BOARD}/export?format=parquet")
    assert answer.status_code == 400 and "Parquet needs pyarrow" in shown(answer.text)


@pytest.mark.parametrize(
    "path",
    [
        NEW,
        "/staff/add",
        "/staff/courses/gpu-2026/add",
        *(f"{BOARD}/{act}" for act in ("about", "course", "deadline", "close", "reopen")),
    ],
)
def test_each_form_is_for_staff_and_their_session_alone(api: ServedApi, hana: httpx.Client, path: str) -> None:
    a_course(api, hana)
    store = api.store
    store.roster.set_role_on(
        store.boards.get("transpose").id, store.people.ensure("own").id, "owner", by="host", now=api.now
    )
    fields = {"name": "turn", "problem": "transpose", "person": "turn", "email": "turn@example.edu", "gpus": "A100",
              "visibility": "closed", "course": "gpu-2026", "deadline": "2099-01-01"}  # fmt: skip
    if path.endswith("/reopen"):
        store.boards.close("transpose", by="host", now=api.now)
    with browsing(api, "ada") as ada, browsing(api, "own") as own, browsing(api) as nobody:
        before = (told_of(api, "transpose"), store.boards.names(), len(store.people.all()), newest(api))
        for browser in (ada, own):
            assert sent(browser, path, **fields).status_code == 403
        assert nobody.post(path, data=fields).status_code == 403
        assert hana.post(path, data=fields).status_code == 403, "without the session's token"
        foreign = hana.post(
            path, data={"csrf": csrf(hana.get("/me").text), **fields}, headers={"Sec-Fetch-Site": "cross-site"}
        )
        assert foreign.status_code == 403
        assert (told_of(api, "transpose"), store.boards.names(), len(store.people.all()), newest(api)) == before
    assert sent(hana, path, **fields).status_code in (200, 303)
    assert newest(api) != before[3], "the very same form does it for her"


@pytest.mark.parametrize("text", ["a\x00b", "a\nb", 'a"b,c', "\u202eabc", "a\ud7ff", "9" * 99, "-1", "\u200b", "'=1"])
def test_odd_text_in_any_field_is_taken_or_refused_in_a_sentence(api: ServedApi, hana: httpx.Client, text: str) -> None:
    a_course(api, hana)
    board = {"name": "turn", "problem": "transpose", "gpus": "H100"}
    about = {"description": "x", "gpus": "H100", "visibility": "public"}
    deadline = {"deadline": "2099-01-01", "zone": "UTC"}
    newcomer = {
        "name": "X",
        "email": "x@example.edu",
        "student_id": "1",
        "section": "A",
        "team": "t",
        "role": "student",
    }
    forms: list[tuple[str, dict[str, str]]] = [
        *((NEW, {**board, name: text}) for name in (
            "name", "problem", "course", "gpus", "deadline", "zone", "description", "visibility", "min_isolation",
        )),
        *((f"{BOARD}/about", {**about, name: text}) for name in about),
        *((f"{BOARD}/deadline", {**deadline, name: text}) for name in deadline),
        (f"{BOARD}/course", {"course": text}),
        *(("/staff/add", {"person": "yan", "role": "participant", name: text}) for name in ("person", "role")),
        *(("/staff/courses/gpu-2026/add", {**newcomer, name: text}) for name in newcomer),
    ]  # fmt: skip
    for path, fields in forms:
        answer = sent(hana, path, **fields)
        assert answer.status_code in (200, 303, 400, 404), (path, fields, answer.text)
        if answer.status_code in (400, 404):
            assert "isn't signed" not in answer.text and len(shown(answer.text).split()) > 8, (path, fields)
    for name in ("person", "verdict", "since", "from"):
        answer = hana.get(f"{BOARD}/submissions", params={name: text})
        assert answer.status_code in (200, 400, 404, 422), (name, answer.text)
    for path in ("/staff", BOARD, "/staff/courses/gpu-2026", NEW, f"{BOARD}/submissions"):
        assert hana.get(path).status_code == 200, path
