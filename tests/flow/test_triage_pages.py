"""What the scanner flags on the staff's pages: where it is found, who sees it, and that no source and no scanner can
hold up the service."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kbslurm.api.hosting.triage import NOTE
from kbslurm.domain.access import BoardRole
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import SOURCE_CAP
from kbslurm.flow.remove import remove
from kbslurm.kernelguard import scanner, scans
from tests.flow import flagging, gallery
from tests.flow.stage import HandClock
from tests.flow.test_page_files import rows_of
from tests.flow.test_pages import HOSTILE, browsing, csrf
from tests.flow.test_staff_pages import words
from tests.popcorn.served_api import ServedApi, served

BOARD, TRIAGE = "/staff/board/transpose/triage", "/staff/triage"
MISSING = (
    "kernelguard isn't installed, so nothing can be scanned. Where the service runs, in its environment, run"
    " pip install 'kbslurm[triage]', then reload this page."
)
PATIENCE_S = 60.0


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("hana", "owner")
        yield built


@pytest.fixture
def hana(api: ServedApi) -> Iterator[httpx.Client]:
    with browsing(api, "hana", "owner") as browser:
        yield browser


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flagging.install(monkeypatch, tmp_path / "scanner")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    flagging.remove(monkeypatch)


def ranked(api: ServedApi, by: str, score_s: float, source: str, file_name: str = "kernel.py") -> SubmissionId:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    return gallery.judged(api.store, by, api.now, score_s, source=source, file_name=file_name)


def once_scanned(browser: httpx.Client, path: str) -> str:
    """The page once nothing more is to come."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        page = browser.get(path)
        assert page.status_code == 200, page.text
        if "data-poll" not in page.text:
            assert 'http-equiv="refresh"' not in page.text
            return page.text
        time.sleep(0.05)
    raise AssertionError(f"{path} never ends")


def pasted(browser: httpx.Client, text: str, name: str = "kernel.py", **more: str) -> httpx.Response:
    form = {"csrf": csrf(browser.get("/me").text), "name": name, "source": text, **more}
    return browser.post(TRIAGE, data=form, files={"file": ("", b"")})


def audited(api: ServedApi) -> list[tuple[str, str]]:
    found = [(event.kind, event.subject) for event in api.store.events.audit_log(limit=50)]
    return [(kind.removeprefix("staff."), subject) for kind, subject in found if kind == "staff.triage"]


@pytest.mark.usefixtures("absent")
def test_without_the_scanner_each_page_says_what_to_install(api: ServedApi, hana: httpx.Client) -> None:
    number = ranked(api, "ada", 2e-3, "import math  # FLAG A\n")
    for path in (TRIAGE, BOARD, f"/staff/submissions/{number}/triage"):
        page = hana.get(path)
        assert page.status_code == 200 and MISSING in html.unescape(page.text), path
        assert "data-poll" not in page.text
    assert "<button disabled>Scan</button>" in hana.get(TRIAGE).text
    answer = pasted(hana, "import os\n")
    assert answer.status_code == 200 and MISSING in html.unescape(answer.text) and "import os" in answer.text
    (row,) = rows_of(hana, f"{BOARD}.json")
    assert (row["submission"], row["state"], row["flags"]) == (number, "unscanned", None)
    assert audited(api) == [] and api.context.scans.known(f"None:{number}") is None


@pytest.mark.usefixtures("installed")
def test_what_ranks_is_scanned_the_best_of_each_person_first(api: ServedApi, hana: httpx.Client) -> None:
    first = ranked(api, "ada", 2e-3, "a = 1  # FLAG SLEEPS\n")
    second = ranked(api, "ada", 3e-3, "a = 2\n")
    third = ranked(api, "bob", 4e-3, "b = 1  # FLAG SLEEPS FLAG HIDES_WELL\n# FLAG SLEEPS again\n")
    gone = ranked(api, "cyd", 4e-3, "c = 1  # FLAG GONE\n")
    remove(api.store.submissions, gone, None, "hana", api.now)
    gallery.judged(api.store, "dee", api.now, None, verdict="wrong", source="d = 1\n")
    text = once_scanned(hana, BOARD)
    assert NOTE in html.unescape(text)
    assert "SLEEPS, HIDES_<wbr>WELL<" in text, "a long name goes on after an underscore"
    assert [int(one) for one in re.findall(r'href="/staff/submissions/(\d+)/triage"', text)] == [third, first, second]
    rows = rows_of(hana, f"{BOARD}.json")
    assert [(row["submission"], row["flags"], row["rules"], row["best_on"]) for row in rows] == [
        (third, 3, ["SLEEPS", "HIDES_WELL"], ["H100"]), (first, 1, ["SLEEPS"], ["H100"]), (second, 0, [], []),
    ]  # fmt: skip
    assert audited(api) == [("triage", f"board:{api.store.boards.get('transpose').id}")], "once, not at each look"
    page = hana.get(f"/staff/submissions/{third}/triage")
    assert "data-poll" not in page.text, "it is known already"
    assert [row["rule"] for row in rows_of(hana, f"/staff/submissions/{third}/triage.json")] == [
        "SLEEPS", "HIDES_WELL", "SLEEPS",
    ]  # fmt: skip
    assert "The scanner calls the whole of it hacked ." in words(page.text)
    assert 'class="badge bad"' not in page.text, "no flag is coloured as a verdict is"
    assert f'href="/staff/submissions/{third}/triage"' in hana.get(f"/staff/submissions/{third}").text
    assert hana.get(f"/staff/submissions/{gone}/triage").status_code == 404
    assert "triage" not in hana.get(f"/staff/submissions/{gone}").text.partition("<h1>")[2]


@pytest.mark.usefixtures("installed")
def test_pages_lead_to_a_board_and_to_a_submission(hana: httpx.Client) -> None:
    assert hana.get(TRIAGE, params={"board": "Transpose"}).headers["location"] == BOARD
    assert hana.get(TRIAGE, params={"submission": " 17 "}).headers["location"] == "/staff/submissions/17/triage"
    assert hana.get(TRIAGE, params={"board": "nowhere"}).status_code == 404
    assert hana.get(TRIAGE, params={"submission": "²"}).status_code == 400
    assert hana.get("/staff/submissions/17/triage").status_code == 404
    assert "Nothing ranks here yet." in hana.get(BOARD).text and hana.get(f"{BOARD}.json").json() == []


@pytest.mark.usefixtures("installed")
def test_code_that_is_not_stored_is_scanned_at_once(api: ServedApi, hana: httpx.Client) -> None:
    answer = pasted(hana, f"a = 1\r\n# FLAG ODD {HOSTILE}\r\n")
    assert answer.status_code == 200 and "1 flag in this code." in words(answer.text)
    assert HOSTILE not in answer.text and html.escape(HOSTILE) in answer.text
    assert "a = 1\n# FLAG ODD" in html.unescape(answer.text), "what was written stays, with its own ends of lines"
    again = pasted(hana, f"a = 1\n# FLAG ODD {HOSTILE}\n")
    assert again.status_code == 200 and len(audited(api)) == 1, "the same text"
    assert "Nothing was flagged. That isn't a verdict either." in words(pasted(hana, "b = 1\n").text)
    form = {"csrf": csrf(hana.get("/me").text), "name": "kernel.py", "source": "x = 1\n"}
    dropped = hana.post(TRIAGE, data=form, files={"file": ("dropped.cu", b"// FLAG DROPPED\n")})
    assert "DROPPED" in dropped.text and "dropped.cu" in dropped.text


@pytest.mark.usefixtures("installed")
def test_what_cannot_be_scanned_comes_back_with_a_sentence(api: ServedApi, hana: httpx.Client) -> None:
    for text, name, said, status in (
        ("", "kernel.py", "nothing is written", 400),
        ("a = 1\n", f"<b>{HOSTILE[:8]}.exe", "exe", 400),
        ("x" * (SOURCE_CAP + 1), "kernel.py", "1,000,000", 413),
    ):
        answer = pasted(hana, text, name)
        assert (answer.status_code, said in html.unescape(answer.text)) == (status, True), (name, answer.text[:2000])
        assert "It wasn't scanned:" in answer.text and HOSTILE not in answer.text
        assert f'value="{html.escape(name)}"' in answer.text
    assert hana.post(TRIAGE, content=b"x" * (3 * SOURCE_CAP)).status_code == 413
    old = pasted(hana, "kept = 1  # FLAG A\n", csrf="0" * 64)
    assert old.status_code == 403 and "this form has expired" in html.unescape(old.text)
    assert "kept = 1" in old.text and audited(api) == []


@pytest.mark.usefixtures("installed")
def test_no_source_holds_up_the_service(api: ServedApi, hana: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.context.scans, "patience_s", 2.0)
    numbers = [ranked(api, "ada", 2e-3 + n * 1e-4, f"# {n} {how}\n") for n, how in enumerate(
        ("STALL", "GORGE", "SHOUT", "BABBLE")
    )]  # fmt: skip
    first = hana.get(BOARD)
    assert 'data-poll="' in first.text and '<noscript><meta http-equiv="refresh"' in first.text
    assert hana.get("/staff").status_code == 200, "meanwhile others are answered"
    once_scanned(hana, BOARD)
    why = {row["submission"]: (row["state"], row["why"]) for row in rows_of(hana, f"{BOARD}.json")}
    assert why == {
        numbers[0]: ("failed", "kernelguard gave no answer within 2 s"),
        **dict.fromkeys(numbers[1:], ("failed", "kernelguard's answer can't be read")),
    }
    page = hana.get(f"/staff/submissions/{numbers[0]}/triage")
    assert "There are no flags: kernelguard gave no answer within 2 s." in words(page.text)
    monkeypatch.setattr(scans, "AGAIN_S", -1.0)
    assert 'data-poll="' in hana.get(f"/staff/submissions/{numbers[3]}/triage").text, "it is tried again"


@pytest.mark.usefixtures("installed")
def test_two_are_scanned_at_once_and_the_rest_wait(api: ServedApi, hana: httpx.Client, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    for n in range(5):
        ranked(api, f"person-{n}", 2e-3 + n * 1e-4, f"# {n} WAIT {room} FLAG DONE\n")
    page = hana.get(BOARD)
    assert "0 of 5 are scanned." in words(page.text)
    assert [thread.name for thread in threading.enumerate()].count("triage") == scans.AT_ONCE
    until = time.monotonic() + PATIENCE_S
    while len(list(room.iterdir())) < scans.AT_ONCE and time.monotonic() < until:
        time.sleep(0.02)
    assert "0 of 5 are scanned." in words(hana.get(BOARD).text)
    assert len(list(room.iterdir())) == scans.AT_ONCE
    (room / "gate").touch()
    assert once_scanned(hana, BOARD).count("DONE") == 5
    assert len(audited(api)) == 1


@pytest.mark.usefixtures("installed")
def test_a_service_that_stops_ends_its_scans(database_url: str, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    with served(database_url, tmp_path / "service", clock=HandClock()) as api:
        for n in range(3):
            ranked(api, f"person-{n}", 2e-3 + n * 1e-4, f"# {n} WAIT {room}\n")
        with browsing(api, "hana", "owner") as hana:
            hana.get(BOARD)
            until = time.monotonic() + PATIENCE_S
            while len(list(room.iterdir())) < scans.AT_ONCE and time.monotonic() < until:
                time.sleep(0.02)
    pids = [int(one.name) for one in room.iterdir()]
    assert len(pids) == scans.AT_ONCE
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert api.context.scans.ask("x", lambda: "")[0] is None


@pytest.mark.usefixtures("installed")
def test_the_scanner_is_given_no_secret(hana: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://planted-secret")
    monkeypatch.setenv("DISCORD_TOKEN", "planted-secret")
    told = words(pasted(hana, "# ENVIRON\n").text)
    assert "ENVIRON" in told and "PATH" in told
    assert not re.search(r"DATABASE|TOKEN|KBSLURM", told.partition("Evidence")[2].partition("What was submitted")[0])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("role", "reads"), [("observer", False), ("grader", True), ("owner", True)])
def test_a_boards_graders_see_its_flags_and_no_others(api: ServedApi, role: BoardRole, reads: bool) -> None:
    store = api.store
    held = store.boards.get("transpose")
    store.boards.add("vault", held.problem, gpus=["H100"], confirm=False, now=api.now)
    number = ranked(api, "ada", 2e-3, "# FLAG MINE\n")
    other = gallery.judged(store, "ada", api.now, 2e-3, source="# FLAG OTHER\n", board="vault")
    gina = store.people.ensure("gina")
    store.roster.set_role_on(held.id, gina.id, role, by="hana", now=api.now)
    with browsing(api, "gina") as helper, browsing(api, "eve") as eve, browsing(api) as nobody:
        for path in (BOARD, f"/staff/submissions/{number}/triage"):
            assert helper.get(path).status_code == (200 if reads else 403), path
            assert helper.get(f"{path}.csv").status_code == (200 if reads else 403), path
            assert eve.get(path).status_code == 403
            assert nobody.get(path).headers["location"].startswith("/login")
        assert (f'href="{BOARD}"' in helper.get("/staff").text) is reads
        for path in (TRIAGE, "/staff/board/vault/triage", f"/staff/submissions/{other}/triage"):
            assert helper.get(path).status_code == eve.get(path).status_code == 403, path
        assert pasted(helper, "a = 1\n").status_code == pasted(eve, "a = 1\n").status_code == 403
        assert helper.get("/staff/submissions/999/triage").status_code == 403
        if reads:
            text = once_scanned(helper, BOARD)
            assert "MINE" in text and "OTHER" not in text and 'href="/staff/people' not in text
            assert audited(api) == [("triage", f"board:{held.id}")]


@pytest.mark.usefixtures("installed")
def test_results_are_kept_up_to_a_number_and_never_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "KEPT", 3)
    desk = scans.Scans()
    for n in range(6):
        found, is_new = desk.ask(str(n), lambda n=n: f"# FLAG R{n}\n")  # type: ignore[misc]
        assert found is not None and is_new
        opinion = found.result(PATIENCE_S).opinion
        assert opinion is not None and [flag.rule for flag in opinion.flags] == [f"R{n}"]
    assert desk.known("0") is None and desk.known("5") is not None
    monkeypatch.setattr(scans, "WAITING_CAP", 0)
    assert desk.ask("too many", lambda: "") == (None, False)
    desk.close()


@pytest.mark.usefixtures("installed")
def test_the_command_and_the_page_say_the_same(api: ServedApi, hana: httpx.Client) -> None:
    source = "a = 1  # FLAG SLEEPS\n"
    number = ranked(api, "ada", 2e-3, source)
    once_scanned(hana, f"/staff/submissions/{number}/triage")
    shown = rows_of(hana, f"/staff/submissions/{number}/triage.json")
    assert shown == [vars(flag) for flag in scanner.opinion_of(source).flags] != []
