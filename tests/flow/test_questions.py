"""Questions and appeals: asked at a board or a submission, answered to one or to all, judged again; always private."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.client.http import Client
from kbslurm.domain import questions as rules
from kbslurm.errors import Banned, Invalid, KbslurmError, NotFound, QuotaSpent, Refused
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm_bot import state
from kbslurm_bot.announcements import Announcer
from kbslurm_bot.service import Service
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import START, HandClock, overheard
from tests.flow.test_bot_announce import Pinned
from tests.flow.test_pages import HOSTILE, browsing, csrf, judged
from tests.popcorn.served_api import ADMIN, ServedApi, served

BOT = "bot-token-for-questions"
PLANTED = "planted-question-7c1e"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def client_of(api: ServedApi, name: str) -> Client:
    """Somebody over HTTP, with their token also as a bearer, as the command line sends it."""
    token = api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now)
    return Client(api.url, token=token, admin=token)


def judged_again(api: ServedApi, verdict: str = "wrong") -> None:
    slots = free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, api.store.attempts.open())
    attempt = claim(api.store.queue, slots, api.now)
    assert attempt is not None
    told: dict[str, Any] = {"verdict": verdict, "reason": "so", "score_s": None, "interval_s": None, "phases": []}
    score(api.store, attempt, sealed_report(api.store.attempts.work(attempt.id), **told), api.now)


def test_an_answer_goes_to_one_or_as_an_announcement_to_all_who_see_the_board(api: ServedApi, host: Client) -> None:
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    api.store.boards.add("open", api.store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    (code,) = api.store.invites.make(["transpose"], 1, by="host", now=api.now)[1]
    with client_of(api, "ada") as ada, client_of(api, "eve") as eve, Client(api.url) as nobody:
        for who in (ada, eve):
            with pytest.raises(NotFound, match="no board 'transpose'"):
                who.ask("may we?", board="transpose")
        ada.join(code)
        first = ada.ask(f"  May we use Triton?\r\n{PLANTED}  ", board="TRANSPOSE")
        assert first["text"] == f"May we use Triton?\n{PLANTED}" and first["state"] == "open"
        assert set(first) & {"person", "person_id", "answered_by", "rejudge"} == set()
        second = ada.ask("And when?", board="transpose")
        assert [one["id"] for one in ada.own_questions()] == [second["id"], first["id"]]
        assert eve.own_questions() == []
        found = host.questions("transpose")
        asked = [(one["id"], one["person"]) for one in found["questions"]]
        assert asked == [(first["id"], "ada"), (second["id"], "ada")]
        assert found["open"] == 2 and host.questions("open")["open"] == 0

        host.answer(first["id"], f"Yes, any version. {HOSTILE}", to_all=True)
        host.answer(second["id"], "On Friday.")
        told = ada.announcements("transpose")
        assert [one["text"] for one in told["announcements"]] == [f"Yes, any version. {HOSTILE}"]
        assert set(told["announcements"][0]) == {"id", "text", "at"}
        for who in (eve, nobody):
            with pytest.raises(NotFound):
                who.announcements("transpose")
        mine = {one["id"]: one for one in ada.own_questions()}
        assert mine[second["id"]]["answer"] == "On Friday." and not mine[second["id"]]["to_all"]
        with pytest.raises(Refused, match="has been answered by admin already"):
            host.answer(second["id"], "On Monday.")
        host.answer(second["id"], "On Monday.", again=True)
        with pytest.raises(Invalid, match="is answered already"):
            host.close_question(second["id"])

        api.store.boards.set_visibility("transpose", "public", by="host", now=api.now)
        with browsing(api, "eve") as browser:
            page = browser.get("/board/transpose/H100").text
        assert "Yes, any version." in page and HOSTILE not in page and PLANTED not in page and "ada" not in page
        assert "On Monday." not in page
        # Answered again, to its author alone: the announcement is gone.
        host.answer(first["id"], "No.", again=True)
        assert nobody.announcements("transpose")["announcements"] == []
        with browsing(api) as browser:
            assert "Yes, any version." not in browser.get("/board/transpose/H100").text
    lines = [(one.kind, one.data) for one in api.store.events.audit_log(limit=9) if ".question." in one.kind]
    assert len(lines) == 4 and {kind for kind, _ in lines} == {"staff.question.answer"}
    with psycopg.connect(api.store.url) as database:
        (kept,) = database.execute("SELECT string_agg(data::text, ' ') FROM event").fetchone() or ("",)
    assert PLANTED not in kept and "Friday" not in kept, "no event has a text in it"


def test_an_appeal_is_judged_again_with_a_preview_and_its_author_learns_what_counts(
    api: ServedApi, host: Client
) -> None:
    number, others = judged(api, "ada"), judged(api, "bob", 0.7)
    with client_of(api, "ada") as ada:
        with pytest.raises(Refused, match="isn't yours"):
            ada.ask("why?", submission=others)
        with pytest.raises(Invalid, match="was made to transpose, not to another"):
            api.store.questions.ask(api.store.people.ensure("ada").id, "why?", board="another", submission=number)
        asked = ada.ask("It was faster.", submission=number, appeal=True)["id"]
        with pytest.raises(Refused, match=f"has an open appeal already, question {asked}"):
            ada.ask("Please.", submission=number, appeal=True)
        plain = ada.ask("Which node?", submission=number)["id"]
        with pytest.raises(Invalid, match="isn't an appeal"):
            host.question_rejudge_preview(plain)
        with pytest.raises(NotFound, match="no open rejudge of question"):
            host.question_rejudge_apply(asked)
        assert host.question_rejudge_estimate(asked)["runs"] == 1
        assert host.question(asked)["rejudge"] is None, "an estimate orders nothing"

        told = host.question_rejudge_preview(asked)
        assert told["matrix"] == [{"before": "passed", "after": "open", "runs": 1}]
        assert host.question_rejudge_preview(asked)["rejudging"] == told["rejudging"], "asked twice, ordered once"
        assert host.question(asked)["rejudge"] == {"rejudging": told["rejudging"], "state": "open"}
        with pytest.raises(Refused, match="haven't finished"):
            host.question_rejudge_apply(asked)
        judged_again(api)
        (mine,) = [one for one in ada.own_questions() if one["id"] == asked]
        assert mine["outcome"] is None and "rejudge" not in mine, "until it counts only hosts see it"
        assert host.question_rejudge_apply(asked)["state"] == "applied"
        (mine,) = [one for one in ada.own_questions() if one["id"] == asked]
        (changed,) = mine["outcome"]
        assert changed.pop("before_s") == pytest.approx(0.5)
        assert changed == {"gpu": "H100", "before": "passed", "after": "wrong", "after_s": None, "counts": True}
        assert ada.submission_rows()[0]["runs"][0]["standing"] == "wrong"
        host.answer(asked, "We judged it again.")
        # Once more, and this time nothing counts.
        again = ada.ask("Once more?", submission=number, appeal=True)["id"]
        host.question_rejudge_preview(again)
        host.question_rejudge_cancel(again)
        assert host.question(again)["rejudge"]["state"] == "cancelled"
        (mine,) = [one for one in ada.own_questions() if one["id"] == again]
        assert mine["outcome"] is None
    noted = [one for one in api.store.events.audit_log(limit=20) if one.kind == "staff.rejudge"]
    assert [one.data["question"] for one in noted] == [again, asked]


def test_a_rejudge_of_the_whole_board_decides_open_appeals_too(api: ServedApi, host: Client) -> None:
    number = judged(api, "ada")
    with client_of(api, "ada") as ada:
        asked = ada.ask("Please.", submission=number, appeal=True)["id"]
        host.rejudge_preview("transpose", ["mode=leaderboard"])
        with pytest.raises(Invalid, match="already being rejudged"):
            host.question_rejudge_preview(asked)
        with pytest.raises(NotFound, match="open rejudge of question"):
            host.question_rejudge_cancel(asked)
        judged_again(api, "timeout")
        host.rejudge_apply("transpose")
        (mine,) = ada.own_questions()
    assert [(one["before"], one["after"]) for one in mine["outcome"]] == [("passed", "timeout")]


def test_whoever_asks_is_held_to_limits_and_to_what_is_theirs(api: ServedApi, host: Client) -> None:
    store, now = api.store, api.now
    waiting = api.client("ada")
    assert waiting.upload("/submission/transpose/H100/test", "k.py", b"def custom_kernel(d): return d\n").good()
    (open_one,) = store.submissions.newest(limit=1)
    with client_of(api, "ada") as ada, client_of(api, "mia") as mia:
        with pytest.raises(Refused, match="hasn't been judged yet"):
            ada.ask("Please.", submission=open_one.id, appeal=True)
        for text, match in ((" \n ", "is empty"), ("x" * (rules.TEXT_CAP + 1), "is too long")):
            with pytest.raises(Invalid, match=match):
                ada.ask(text, board="transpose")
        for text in ("\ud800", "a\x00b"):
            with pytest.raises(Invalid, match="a character that isn't text"):
                store.questions.ask(store.people.ensure("ada").id, text, board="transpose", now=now)
        with pytest.raises(Invalid, match="what the question is about"):
            ada.ask("What?")
        with pytest.raises(Invalid, match="an appeal is about a submission"):
            ada.ask("What?", board="transpose", appeal=True)
        for n in range(rules.MOST_PER_HOUR):
            ada.ask(f"Question {n}", board="transpose")
        with pytest.raises(QuotaSpent, match="questions per hour: 10 of 10 used"):
            ada.ask("One more", board="transpose")
        assert mia.ask("Mine", board="transpose")["id"]
        assert isinstance(api.context.clock, HandClock)
        api.context.clock.go(3601)
        for n in range(rules.MOST_OPEN - rules.MOST_PER_HOUR):
            ada.ask(f"Question {n}", board="transpose")
        api.context.clock.go(3601)
        with pytest.raises(Refused, match="20 questions of yours wait for an answer"):
            ada.ask("One more", board="transpose")
        host.close_question(ada.own_questions()[0]["id"])
        assert ada.ask("One more", board="transpose")["state"] == "open"

        person = store.people.ensure("ada")
        remove(store.submissions, open_one.id, person.id, "ada", now)
        with pytest.raises(NotFound):
            store.questions.ask(person.id, "Where is it?", submission=open_one.id, now=now)
        store.people.ban(person.id, "cheats", by="host", now=now)
        with pytest.raises(Banned):
            store.questions.ask(person.id, "Why?", board="transpose", now=api.now)
        with pytest.raises(KbslurmError, match="banned"):
            ada.ask("Why?", board="transpose")
    assert host.questions("transpose", limit=3)["open"] == 21
    store.boards.delete("transpose", force=True, by="host", now=api.now)
    assert host.questions()["questions"] == []


def test_a_role_on_a_board_gives_what_it_says_and_of_other_boards_nothing(api: ServedApi, host: Client) -> None:
    store = api.store
    store.boards.add("other", store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    number = judged(api, "ada")
    with client_of(api, "ada") as ada:
        here = ada.ask("Please.", submission=number, appeal=True)["id"]
        there = ada.ask("Elsewhere?", board="other")["id"]
    for name, role in (("olga", "observer"), ("greta", "grader"), ("anton", "assistant")):
        store.people.ensure(name)
        host.set_board_role("transpose", f"person:{name}", role)  # type: ignore[arg-type]
    with client_of(api, "olga") as observer, client_of(api, "greta") as grader, client_of(api, "anton") as assistant:
        assert observer.questions() == {"questions": [], "open": 0}
        with pytest.raises(Refused, match="you are observer of transpose, and this needs its grader's rights"):
            observer.question(here)
        for helper in (grader, assistant):
            assert [one["id"] for one in helper.questions()["questions"]] == [here]
            for number in (there, 999_999):
                with pytest.raises(KbslurmError, match="doesn't belong to a host"):
                    helper.question(number)
        with pytest.raises(Refused, match="needs its assistant's rights"):
            grader.answer(here, "To all", to_all=True)
        with pytest.raises(Refused, match="needs its assistant's rights"):
            grader.question_rejudge_preview(here)
        assert assistant.question_rejudge_preview(here)["state"] == "preview"
        assert grader.answer(here, "We are looking.")["answered_by"] == "greta"
    with client_of(api, "eve") as eve:
        for path, sent in (("", None), (f"/{here}", None), (f"/{here}/answer", {"text": "No."})):
            with pytest.raises(KbslurmError, match="doesn't belong to a host"):
                eve._told("GET" if sent is None else "POST", f"/admin/questions{path}", json=sent)


def test_of_a_deleted_person_no_text_is_left_but_what_was_told_to_all(api: ServedApi, host: Client) -> None:
    number = judged(api, "ada")
    with client_of(api, "ada") as ada:
        for n, text in enumerate((f"{PLANTED} one", f"{PLANTED} two", f"{PLANTED} three")):
            ada.ask(text, submission=number, appeal=n == 2)
    hana = api.store.people.ensure("hana", "staff")
    first, second, third = (one["id"] for one in host.questions()["questions"])
    with client_of(api, "hana") as hers:
        hers.answer(first, "Everyone may.", to_all=True)
        hers.answer(second, f"Dear {PLANTED}")
    api.store.questions.answer(
        api.store.questions.ask(hana.id, "mine", board="transpose", now=api.now).id,
        "kept", to_all=False, again=False, by="hana (Discord role 7 in 8)", now=api.now,
    )  # fmt: skip
    ada_id = api.store.people.ensure("ada").id
    assert host.delete_preview(f"person:{ada_id}")["erased"]["questions"] == 3
    pseudonym = host.delete_user(f"person:{ada_id}")["pseudonym"]
    found = {one["id"]: one for one in host.questions()["questions"]}
    assert {found[n]["person"] for n in (first, second, third)} == {pseudonym}
    assert [found[n]["text"] for n in (first, second, third)] == ["", "", ""]
    assert (found[first]["answer"], found[second]["answer"], found[third]["state"]) == ("Everyone may.", "", "closed")
    assert [one["text"] for one in host.announcements("transpose")["announcements"]] == ["Everyone may."]
    with pytest.raises(Refused, match="has been deleted"):
        host.answer(third, "Too late.")
    gone = host.delete_user(f"person:{hana.id}")["pseudonym"]
    assert host.question(first)["answered_by"] == gone, "what hosts said stays, under their pseudonym"
    with psycopg.connect(api.store.url) as database:
        for table in ("question", "event"):
            (kept,) = database.execute(f"SELECT string_agg(t::text, ' ') FROM {table} t".encode()).fetchone() or ("",)
            assert PLANTED not in kept and "hana" not in kept, table


def test_the_pages_ask_and_answer_by_forms_of_their_session_and_show_markup_as_text(api: ServedApi) -> None:
    number = judged(api, "ada")
    with browsing(api, "ada") as hers, browsing(api, "eve") as eve, browsing(api, "hana", "staff") as host:
        page = hers.get(f"/questions?submission={number}")
        assert page.status_code == 200 and 'name="appeal"' in page.text
        assert eve.get(f"/questions?submission={number}").status_code == 404
        sent = {"csrf": csrf(page.text), "submission": str(number), "appeal": "yes", "text": f"{HOSTILE} {PLANTED}"}
        assert hers.post("/questions", data={**sent, "csrf": "0" * 64}).status_code == 403
        assert hers.post("/questions", data={**sent, "text": ""}).status_code == 400
        assert hers.post("/questions", data=sent).headers["location"] == "/questions"
        mine = hers.get("/questions").text
        assert PLANTED in mine and HOSTILE not in mine
        assert PLANTED not in eve.get("/questions").text
        assert eve.get("/staff/questions").status_code == 403
        staff = host.get("/staff/questions").text
        assert PLANTED in staff and HOSTILE not in staff and "1 open" in staff
        (asked,) = api.store.questions.find()
        post, token = f"/staff/questions/{asked.id}", {"csrf": csrf(staff)}
        theirs = {"csrf": csrf(eve.get("/questions").text), "text": "No."}
        assert eve.post(f"{post}/answer", data=theirs).status_code == 403
        assert host.post(f"{post}/rejudge", data=token).status_code == 303
        judged_again(api)
        assert "Make the new verdicts count" in host.get("/staff/questions").text
        assert host.post(f"{post}/apply", data=token).status_code == 303
        assert host.post(f"{post}/answer", data={**token, "text": f"Seen. {HOSTILE}"}).status_code == 303
        assert host.post(f"{post}/close", data=token).status_code == 400
        assert host.post(f"{post}/wave", data=token).status_code == 404
        mine = hers.get("/questions").text
        assert "passed became wrong" in mine and "Seen." in mine and HOSTILE not in mine


def test_the_command_line_asks_and_answers_in_the_database_and_shows_no_escape_sequence(
    api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = judged(api, "ada")
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    with overheard(as_json=True) as logged:
        said = kbslurm("ask", f"\x1b]0;{PLANTED}\x07 why?", "--submission", str(number), "--appeal", "--as", "ada")
        assert said.code == 0 and "appeal #1 is sent" in said.out, said.err
        for words in (("ask", "why?"), ("ask", "--board", "transpose"), ("ask", "why?", "--board", "nowhere")):
            refused = kbslurm(*words, "--as", "ada")
            assert refused.code == 2 and "Traceback" not in refused.err, refused.err
        shown = kbslurm("question", "list")
        assert PLANTED in shown.out and "\x1b" not in shown.out and "\x07" not in shown.out
        assert kbslurm("question", "list", "--state", "some").code == 2
        assert kbslurm("question", "show", "99").code == 2
        monkeypatch.setattr(sys, "stdin", io.StringIO("from\nstandard input\x1b[2J"))
        assert kbslurm("question", "answer", "1", "-", "--to-all").code == 0
        assert kbslurm("question", "answer", "#1", "again").code == 5
        mine = kbslurm("ask", "--as", "ada")
        assert "standard input" in mine.out and "\x1b" not in mine.out
        told = kbslurm("board", "announcements", "transpose")
        assert "standard input" in told.out and PLANTED not in told.out and "\x1b" not in told.out
        assert kbslurm("ask", "--as", "ada", "--json").json()["questions"][0]["state"] == "answered"
        assert "1 announcement" in kbslurm("board", "show", "transpose").out
        assert kbslurm("question", "rejudge", "1").code == 2
        assert kbslurm("question", "rejudge", "1", "--apply").code == 2
        assert "would change" in kbslurm("question", "rejudge", "1", "--preview").out
        token = api.store.tokens.issue(api.store.people.ensure("bob").id, now=api.now)
        far = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})
        asked = far("ask", f"{PLANTED} over HTTP?", "--board", "transpose", "--json").json()
        assert [one["id"] for one in far("ask", "--json").json()["questions"]] == [asked["id"]]
        assert far("ask", "\udcff", "--board", "transpose").code == 2, "no text at all"
        assert far("question", "list").code == 4, "bob isn't a host"
        told = far("board", "announcements", "transpose")
        assert "standard input" in told.out and "\x1b" not in told.out
        assert "1 announcement" in far("board", "show", "transpose").out
    assert PLANTED not in logged.getvalue()


def test_the_bot_announces_an_answer_to_all_of_a_public_board_once(database_url: str, tmp_path: Path) -> None:
    clock, pinned = HandClock(at=START.replace(hour=5)), Pinned()
    with (
        served(database_url, tmp_path / "service", clock=clock, bot=BOT) as api,
        closing(Service(api.url, BOT)) as service,
        state.opened(tmp_path / "bot.sqlite") as kept,
    ):
        store, ada = api.store, api.store.people.ensure("ada").id
        store.boards.add("private", store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
        store.boards.set_visibility("private", "closed", by="host", now=api.now)
        store.roster.set_role_on(store.boards.get("private").id, ada, "observer", by="host", now=api.now)
        announcer = Announcer(kept, service, pinned, 3000, clock.now)
        asyncio.run(announcer.look())
        for board, to_all in (("transpose", True), ("transpose", False), ("private", True)):
            asked = store.questions.ask(ada, PLANTED, board=board, now=api.now)
            store.questions.answer(asked.id, f"Hear, {board}!", to_all=to_all, again=False, by="host", now=api.now)
        for _ in range(2):
            asyncio.run(announcer.look())
        (said,) = pinned.texts()
        assert "transpose: announcement" in said and r"Hear, transpose!" in said and PLANTED not in said


def test_over_http_a_body_that_is_too_large_or_of_a_stranger_is_refused(api: ServedApi) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    wanted = {"text": "x" * 200_000, "leaderboard": "transpose"}
    headers = {"X-Popcorn-Cli-Id": token}
    assert httpx.post(f"{api.url}/user/questions", json=wanted, headers=headers, timeout=60).status_code == 413
    assert httpx.post(f"{api.url}/user/questions", json={"text": "x"}, timeout=60).status_code == 400
    nul = httpx.post(f"{api.url}/user/questions", json={**wanted, "text": "a\x00b"}, headers=headers, timeout=60)
    assert nul.status_code == 422
