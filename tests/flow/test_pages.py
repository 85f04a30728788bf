"""The pages, served by the real app on real Postgres; and the same in a real Chromium, driven through ChromeDriver."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import itertools
import os
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from kbslurm.api.pages.boards.board_list import BoardList
from kbslurm.api.pages.rendering import STATIC, asset, static_file, took
from kbslurm.api.sessions import SESSION
from kbslurm.domain.access import Role
from kbslurm.domain.run import Ending, SubmissionId
from kbslurm.domain.source import files_of
from kbslurm.errors import Invalid
from kbslurm.flow.cancel import cancel
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests.flow.chromium import Chromium, started, until
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served
from tests.services import CHROMIUM, needs

HOSTILE = "<script>alert(1)</script>"
SECRET_LOG = "planted-secret-log-77c1"
HIDDEN_SPEC = "planted-hidden-spec-3be0"
HTML = {"Accept": "text/html"}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def judged(api: ServedApi, by: str = "ada", score_s: float = 0.5, doubt_s: float = 0.01) -> int:
    """A ranked submission with hostile and secret things in its report; nothing really runs."""
    store = api.store
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    now = api.now
    person = store.people.ensure(by)
    receipt = accept(store.intake, person.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], now)
    attempt = claim(
        store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open()), now
    )
    assert attempt is not None
    hidden = wire.BenchmarkResult(phase="hidden", index=0, spec=HIDDEN_SPEC, status="pass", calls=3, mean_ns=5.0)
    report = sealed_report(
        store.attempts.work(attempt.id),
        score_s=score_s,
        interval_s=[score_s - doubt_s, score_s + doubt_s],
        log=f"a log with {HOSTILE}",
        secret_log=SECRET_LOG,
        tests=[
            wire.TestResult(phase="test", index=0, spec="rows: 1", status="pass", message=HOSTILE),
            wire.TestResult(phase="hidden", index=0, spec=HIDDEN_SPEC, status="pass"),
        ],
        benchmarks=[hidden],
    )
    score(store, attempt, report, now)
    return receipt.submission_id


@contextmanager
def browsing(api: ServedApi, name: str | None = None, role: Role = "participant") -> Iterator[httpx.Client]:
    """A browser's cookies and headers; signed on by token when it has a name."""
    with httpx.Client(base_url=api.url, headers=HTML, timeout=60) as browser:
        if name is not None:
            token = api.store.tokens.issue(api.store.people.ensure(name, role).id, now=api.now)
            answer = browser.post("/login", data={"token": token, "next": "/me"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/me")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie and "SameSite=lax" in cookie and token not in cookie
        yield browser


def csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
    assert found is not None
    return found[1]


def test_a_submissions_page_says_why_an_attempt_was_given_up(api: ServedApi) -> None:
    """What the terminal says of a run that was tried again, its page says, too."""
    person, puppet = api.store.people.ensure("ada"), Puppet(slots={"H100": 9})
    accept(api.store.intake, person.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    for number in (1, 2):
        attempt = claim(api.store.queue, free_slots({"puppet": puppet.capacity()}, api.store.attempts.open()), api.now)
        assert attempt is not None and attempt.number == number
        if number == 1:
            api.store.attempts.give_up(attempt, Ending.NODE_FAILURE, f"NODE_FAIL on {HOSTILE}", api.now)
    with browsing(api, "ada") as browser:
        said = "Attempt 1 at puppet was given up: NODE_FAIL on &lt;script&gt;alert(1)&lt;/script&gt;."
        assert said in browser.get("/s/1").text


def test_anybody_reads_boards_standings_and_problems(api: ServedApi) -> None:
    judged(api, "ada", 0.5)
    judged(api, "bob", 0.505)
    judged(api, "cyd", 0.9)
    with browsing(api) as anybody:
        front = anybody.get("/")
        assert front.status_code == 200 and 'href="/board/transpose/H100"' in front.text
        board = anybody.get("/board/TRANSPOSE/h100").text
        places = re.findall(
            r'<td class="number place"[^>]*>(\d+)(?: <span class="quiet">\((.+?)\)</span>)?</td>', board
        )
        assert places == [("1", "1–2"), ("2", "1–2"), ("3", "")]
        assert (
            re.search(r"500\.0 ms</span> <small>\+[\d.]+ −[\d.]+", board)
            and "<caption>" in board
            and 'scope="col"' in board
        )
        assert board.count("<circle") == 1, "only the first was ever a record"
        assert anybody.get("/board/transpose").headers["location"] == "/board/transpose/H100"
        problem = anybody.get("/problem/transpose").text
        assert f"POPCORN_API_URL={api.url}" in problem
        assert "popcorn submit --no-tui --leaderboard transpose --gpu H100 --mode leaderboard kernel.py" in problem
        template = anybody.get("/problem/transpose/template/Python")
        assert "attachment" in template.headers["content-disposition"] and "def custom_kernel" in template.text
        for path in ("/", "/board/transpose/H100", "/problem/transpose", "/login", "/nowhere"):
            answer = anybody.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "same-origin"
            assert '<html lang="en">' in answer.text and 'class="skip"' in answer.text and "<title>" in answer.text
            assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", answer.text)


def test_a_submission_is_its_owners_and_hides_what_is_hidden(api: ServedApi) -> None:
    number = judged(api, "ada")
    with browsing(api) as nobody:
        answer = nobody.get(f"/s/{number}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next=/s/{number}")
    for name, role in (("eve", "participant"), ("hana", "staff")):
        with browsing(api, name, role) as other:  # type: ignore[arg-type]
            answer = other.get(f"/s/{number}")
            assert answer.status_code == 404 and "k.py" not in answer.text
            token = csrf(other.get("/me").text)
            assert other.post(f"/s/{number}/cancel", data={"csrf": token}).status_code == 404
    with browsing(api, "ada") as ada:
        assert f'href="/s/{number}"' in ada.get("/me").text
        page = ada.get(f"/s/{number}").text
        for told in (
            "passed",
            "rows: 1",
            "case 0",
            "500 ms",
            "Where the time went",
            "My scores on H100",
        ):
            assert told in page, told
        assert "def custom_kernel(data)" in re.sub(r"<[^>]+>", "", page), "its lines are coloured"
        assert HOSTILE not in page and "&lt;script&gt;alert(1)" in page
        for path in ("/", "/me", f"/s/{number}", "/board/transpose/H100", "/problem/transpose"):
            text = ada.get(path).text
            for secret in (SECRET_LOG, HIDDEN_SPEC, ADMIN, "Traceback"):
                assert secret not in text, path
        remove(api.store.submissions, SubmissionId(number), None, "ada", api.now)
        assert ada.get(f"/s/{number}").status_code == 404
        assert api.store.submissions.get(SubmissionId(number)).source == "", "it is purged"


def test_a_profile_is_text_and_downloads_for_its_owner_only(api: ServedApi) -> None:
    store, now, blob = api.store, api.now, f"<html>{HOSTILE}".encode()
    person = store.people.ensure("ada")
    number = accept(store.intake, person.id, "transpose", "k.py", GOOD, "profile", ["H100"], now).submission_id
    attempt = claim(
        store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open()), now
    )
    assert attempt is not None
    sealed = [
        wire.Artifact(name=name, size=len(blob), sha256=hashlib.sha256(blob).hexdigest())
        for name in ("benchmark-0.table.txt", "changed.txt", "lost.txt")
    ]
    digest = wire.ProfileDigest(
        benchmark=0,
        spec="rows: 1",
        tool="ncu",
        calls=2,
        total_ns=3e6,
        limits=[f"{HOSTILE} takes 100 % of the kernels' time.", "By how much.", "What to try."],
        hints=[f"a hint with {HOSTILE}"],
        kernels=[wire.ProfiledKernel(name=HOSTILE, calls=2, total_ns=3e6, share=1.0, metrics={"occupancy_pct": 71.0})],
    )
    refused = wire.ProfileDigest(benchmark=1, spec="rows: 2", tool="ncu", trouble="an admin can set something")
    work = store.attempts.work(attempt.id)
    told = {"profile": f"a profile with {HOSTILE}", "artifacts": sealed, "digests": [digest, refused]}
    report = sealed_report(work, **told)
    score(store, attempt, report, now, brought=lambda names: {names[0]: blob, names[1]: b"other bytes"})
    address = f"/s/{number}/artifacts/H100/benchmark-0.table.txt"
    with browsing(api, "ada") as ada, browsing(api, "eve") as eve, browsing(api) as nobody:
        page = ada.get(f"/s/{number}").text
        assert HOSTILE not in page and "a profile with &lt;script&gt;" in page and address in page
        assert "changed.txt" not in page and "lost.txt" not in page, "what isn't as it was sealed isn't kept"
        for shown in ("benchmark-0 (rows: 1), Nsight Compute", "What to try.", "a hint with &lt;script&gt;", "71 %",
                      "no profile: an admin can set something", "1.5 ms"):  # fmt: skip
            assert shown in page, shown
        file = ada.get(address)
        assert (file.status_code, file.content) == (200, blob)
        assert file.headers["content-type"] == "application/octet-stream"
        assert file.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in file.headers["content-security-policy"]
        assert (eve.get(address).status_code, nobody.get(address).status_code) == (404, 303)


def test_a_token_that_waits_is_made_ones_own_by_pasting_it(api: ServedApi) -> None:
    pending = api.client(None).register()
    with browsing(api, "ada") as ada:
        token = csrf(ada.get("/me").text)
        assert ada.post("/me/link", data={"csrf": "x", "token": pending}).status_code == 403
        answer = ada.post("/me/link", data={"csrf": token, "token": pending})
        assert (answer.status_code, answer.headers["location"]) == (303, "/me?linked=1")
        assert "linked to you" in ada.get("/me?linked=1").text
    with browsing(api, "eve") as eve:
        assert eve.post("/me/link", data={"csrf": csrf(eve.get("/me").text), "token": pending}).status_code == 400
    person = api.store.tokens.person_of(pending, now=api.now)
    assert person is not None and person.name == "ada"


def stream(browser: httpx.Client, path: str) -> Iterator[str]:
    """The named events of a page's stream, as they come."""
    with browser.stream("GET", path) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith(":"):
                yield ":"
            if line.startswith("event: "):
                yield line.removeprefix("event: ")


def test_a_submissions_page_is_told_of_each_step_and_of_the_end(api: ServedApi) -> None:
    store = api.store
    ada = store.people.ensure("ada")
    number = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    with browsing(api, "ada") as browser:
        page = browser.get(f"/s/{number}").text
        assert re.search(rf'data-live="/live/-/s/{number}\?seen=\w+"', page) and "live.js" in page
        events = stream(browser, f"/live/-/s/{number}")
        assert [next(events), next(events)] == [":", ":"], "it is there, and nothing moved yet"
        attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), api.now)
        assert attempt is not None
        assert next(one for one in events if one != ":") == "moved"
        score(store, attempt, sealed_report(store.attempts.work(attempt.id)), api.now)
        rest = [one for one in events if one != ":"]
        assert rest[-1] == "over" and set(rest) == {"moved", "over"}
        assert "live.js" not in browser.get(f"/s/{number}").text, "nothing more will come"
        assert list(stream(browser, f"/live/-/s/{number}"))[-1] == "over"
    for name in ("eve", None):
        with browsing(api, name) as other:
            assert other.get(f"/live/-/s/{number}").status_code == 404


def test_what_happened_before_a_pages_stream_began_or_while_it_was_away_is_told_first(api: ServedApi) -> None:
    """Otherwise the page would show it only once something else happens, which may be much later."""
    store = api.store
    ada = store.people.ensure("ada")
    number = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    with browsing(api, "ada") as hers, browsing(api, "hana", "staff") as hana:
        pages = [(hers, f"/s/{number}"), (hana, "/staff")]
        lives = [html.unescape(re.findall(r'data-live="([^"]+)"', page.get(path).text)[0]) for page, path in pages]
        assert claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), api.now) is not None
        for (page, path), live in zip(pages, lives, strict=True):
            for query, headers in ((live, {}), (live.partition("?")[0], {"Last-Event-ID": live.partition("seen=")[2]})):
                with page.stream("GET", query, headers=headers) as answer:
                    lines = answer.iter_lines()
                    assert re.fullmatch(r"retry: \d{4}", next(lines)), "they come back one after another"
                    (version,) = {line for line in itertools.islice(lines, 5) if line.startswith("id: ")}
            (again,) = re.findall(r'data-live="[^"]*seen=(\w+)"', page.get(path).text)
            assert version == f"id: {again}", "the page shows it"
            with page.stream("GET", f"{live.partition('?')[0]}?seen={again}") as answer:
                assert not any(line.startswith("id: ") for line in itertools.islice(answer.iter_lines(), 5))


def test_a_board_is_told_of_a_new_record_and_shows_it(api: ServedApi) -> None:
    """What the browser below sees happen, as far as it goes without one."""
    first = judged(api, "ada", 0.5)
    with browsing(api) as anybody:
        board = anybody.get("/board/transpose/H100").text
        assert "<title>transpose on H100 – kbslurm</title>" in board and 'href="/login' in board
        (live,) = re.findall(r'data-live="([^"]+)"', board)
        events = stream(anybody, live)
        assert next(events) == ":", "nothing happened yet"
        judged(api, "grace", 0.25)
        assert next(one for one in events if one not in (":", "queue")) == "standings"
        events.close()  # type: ignore[attr-defined]
        board = anybody.get("/board/transpose/H100").text
        assert re.findall(r'<th scope="row"><(?:a|span) class="name"[^>]*>(\w+)', board)[:2] == ["grace", "ada"]
        assert board.count("<circle") == 2
    with browsing(api, "ada") as ada:
        mine = ada.get("/me").text
        assert "<title>My submissions – kbslurm</title>" in mine and f'href="/s/{first}"' in mine
        assert f"<title>Submission {first} – kbslurm</title>" in ada.get(f"/s/{first}").text


def test_a_board_is_told_of_each_change_of_its_queue(api: ServedApi) -> None:
    store = api.store
    assert store.leases.hold("daemon", "here", 600.0, api.now)
    with browsing(api) as anybody:

        def shown() -> str:
            (found,) = re.findall(r"\d+ waiting, \d+ running", anybody.get("/board/transpose/H100").text)
            return str(found)

        (live,) = re.findall(r'data-live="([^"]+)"', anybody.get("/board/transpose/H100").text)
        assert shown() == "0 waiting, 0 running"
        events = stream(anybody, html.unescape(live))
        next(events)
        ada = store.people.ensure("ada")
        number = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
        assert next(one for one in events if one != ":") and shown() == "1 waiting, 0 running"
        slots = free_slots({"puppet": {"H100": 1}}, store.attempts.open())
        attempt = claim(store.queue, slots, api.now)
        assert attempt is not None
        assert next(one for one in events if one != ":") and shown() == "0 waiting, 1 running"
        cancel(store.submissions, number, ada.id, api.now)
        assert store.attempts.end_cancelled(attempt, api.now)
        while shown() != "0 waiting, 0 running":
            assert next(one for one in events if one != ":")
        events.close()  # type: ignore[attr-defined]


def test_the_staff_page_is_told_that_something_happened(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.live.STAFF_S", 0.05)
    with browsing(api, "hana", "staff") as hana:
        assert re.search(r'data-live="/live/-/staff\?seen=\d+"', hana.get("/staff").text)
        events = stream(hana, "/live/-/staff")
        assert next(events) == ":"
        api.store.events.audit("host", "waved", "nobody", now=api.now)
        assert next(one for one in events if one != ":") == "moved"
        events.close()  # type: ignore[attr-defined]
    for name in ("eve", None):
        with browsing(api, name) as other:
            assert other.get("/live/-/staff").status_code == 403


def test_long_lists_come_in_pages_that_lead_to_one_another(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.api.pages.boards.drawn_boards.PAGE", 2)
    monkeypatch.setattr("kbslurm.api.pages.people.person_pages.MINE", 2)
    numbers = [judged(api, "ada", 0.9), *(judged(api, "ada", 0.5 + n / 10) for n in range(2))]
    for n in range(4):
        judged(api, f"p{n}", 0.1 + n / 50, 0.0001)

    def people(text: str) -> list[str]:
        return re.findall(r'data-side="\w+"[^>]*>.*?<th scope="row"><(?:a|span) class="name"[^>]*>(\w+)</', text)

    with browsing(api, "ada") as ada:
        for start, seen, leads in (
            (0, ["p0", "p1"], {"Next": "2"}),
            (2, ["p2", "p3"], {"Previous": "0", "Next": "4"}),
            (4, ["ada"], {"Previous": "2"}),
        ):
            text = ada.get(f"/board/transpose/H100?from={start}").text
            assert people(text) == seen
            found = re.findall(r'<a href="\?from=(\d+)">(Previous|Next) places', text)
            assert {word: number for number, word in found} == leads
        assert people(ada.get("/board/transpose/H100?from=99").text) == []
        for start, mine in ((0, numbers[:0:-1]), (2, numbers[:1]), (9, [])):
            text = ada.get(f"/me?from={start}").text.partition("<h2>Submissions</h2>")[2]
            assert [int(one) for one in re.findall(r'href="/s/(\d+)"', text)] == mine
        assert ada.get("/me?from=-1").status_code == 422 and ada.get(f"/me?from={2**31}").status_code == 422
    client = api.client("ada")
    rows = [client.call("GET", f"/submissions/transpose/H100?limit=2&offset={n}").good() for n in (0, 2, 4, 6)]
    assert [[row["rank"] for row in page] for page in rows] == [[1, 2], [3, 4], [5], []]
    lines = [client.call("GET", f"/user/submissions?limit=2&offset={n}").good() for n in (0, 2, 4)]
    assert [[row["id"] for row in page] for page in lines] == [numbers[:0:-1], numbers[:1], []]


def test_a_hostile_name_stays_text(api: ServedApi) -> None:
    judged(api, "<img src=x onerror=alert(1)>")
    with browsing(api) as anybody:
        text = anybody.get("/board/transpose/H100").text
        assert "<img" not in text and text.count("&lt;img src=x") >= 2


def test_a_name_is_seen_and_keeps_to_itself(api: ServedApi) -> None:
    """Names that nobody sees, that look like another to the dot, or that are read from right to left."""
    ada = api.store.people.add("ada")
    for like_hers in ("ada\u3164", "a\ufe0fda", "\u2800ada"):
        with pytest.raises(Invalid):
            api.store.people.add(like_hers)
        someone = api.store.people.for_account("github", str(ord(like_hers[0]) + len(like_hers)), like_hers, by="x")
        assert someone.id != ada.id and someone.name.startswith("ada (github"), someone
    for nobody in ("\u3164", "\u115f \u2800", "\u200b", "\u202eada"):
        with pytest.raises(Invalid):
            api.store.people.add(nobody)
    called = "\u05d0\u05d1 12"
    api.store.people.add(called)
    with browsing(api, "hana", "staff") as hana:
        asked = hana.post("/staff/ban", data={"csrf": csrf(hana.get("/staff").text), "person": called})
        assert f"<h1>Ban \u2068{called}\u2069?</h1>" in asked.text and f"\u2068{called}\u2069 is person" in asked.text


def test_a_closed_board_is_there_for_nobody_outside(api: ServedApi) -> None:
    judged(api, "ada")
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    paths = ("/board/transpose", "/board/transpose/H100", "/problem/transpose", "/live/transpose")
    with browsing(api, "eve") as outsider, browsing(api, "hana", "staff") as hana:
        assert "transpose" not in outsider.get("/").text
        for path in (*paths, "/problem/transpose/template/Python"):
            assert outsider.get(path).status_code == 404, path
        assert ">private<" in hana.get("/").text and hana.get(paths[1]).status_code == 200


def test_staff_act_by_forms_of_their_session_only(api: ServedApi) -> None:
    store = api.store
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve") as eve, browsing(api) as nobody:
        assert nobody.get("/staff").status_code == 303
        assert eve.get("/staff").status_code == 403 and 'href="/staff"' not in eve.get("/").text
        mine, hers = csrf(hana.get("/staff").text), csrf(eve.get("/me").text)
        assert mine != hers
        for browser, form in ((hana, {}), (hana, {"csrf": hers}), (eve, {"csrf": hers}), (nobody, {"csrf": mine})):
            assert browser.post("/staff/pause", data={"x": "1", **form}).status_code == 403
        foreign = hana.post("/staff/pause", data={"csrf": mine}, headers={"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403 and store.settings.accepts_jobs()

        def act(name: str, **form: str) -> int:
            return hana.post(f"/staff/{name}", data={"csrf": mine, **form}).status_code

        assert act("pause") == 303 and not store.settings.accepts_jobs()
        assert "paused" in hana.get("/staff").text
        assert act("resume") == 303 and store.settings.accepts_jobs()
        ada = store.people.ensure("ada")
        waiting = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
        assert act("cancel", submission="x") == 400 and act("dance") == 404
        assert act("cancel", submission=str(waiting), confirmed="yes") == 303
        assert store.submissions.get(waiting).is_done
        assert act("ban", person="hana") == 403 and act("ban", person="hana", confirmed="yes") == 403
        assert act("ban", person="eve", reason="cheats", confirmed="yes") == 303
        assert eve.get("/me").status_code == 303, "who is banned is signed on no more"
        assert act("unban", person="eve") == 303
        text = hana.get("/staff").text
        assert all(f'<th scope="row">{name}</th>' in text for name in ("cancel", "ban", "unban"))
        secret = hana.cookies[SESSION]
        assert hana.post("/logout", data={"csrf": mine}).status_code == 303
        assert store.tokens.person_of(secret, now=api.now) is None


def test_cancelling_and_banning_are_asked_about_first(api: ServedApi) -> None:
    store = api.store
    ada = store.people.ensure("ada")
    waiting = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve <b>") as eve:
        for act, form, told in (
            (
                "cancel",
                {"submission": str(waiting)},
                (f"Cancel submission {waiting}?", "k.py by ada on transpose: 1 open"),
            ),
            ("ban", {"person": "EVE <b>", "reason": "cheats"}, ("Ban eve &lt;b&gt;?", "told this reason: cheats")),
        ):
            before = store.events.audit_log(limit=50)
            sent = {"csrf": csrf(hana.get("/staff").text), **form}
            asked = hana.post(f"/staff/{act}", data=sent)
            assert asked.status_code == 200 and all(line in asked.text for line in told), asked.text
            assert store.events.audit_log(limit=50) == before, "nothing is done yet"
            assert not store.submissions.get(waiting).is_done or act == "ban"
            fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
            assert hana.post(f"/staff/{act}", data={**fields, "csrf": "0" * 64}).status_code == 403
            assert hana.post(f"/staff/{act}", data=fields).status_code == 303
            assert store.events.audit_log(limit=50) != before
        assert store.submissions.get(waiting).is_done and eve.get("/me").status_code == 303
        sent = {"csrf": csrf(hana.get("/staff").text)}
        assert hana.post("/staff/cancel", data={**sent, "submission": "999"}).status_code == 404
        assert hana.post("/staff/ban", data={**sent, "person": "nobody"}).status_code == 404


class Page(HTMLParser):
    """What a page leads to, and the names of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.streams, self.forms, self.elements = set[str](), set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.add(tag)
        self.elements |= {name for name in found if name.startswith("on") or name == "style"}
        self.links |= {found[name] for name in ("href", "src") if name in found}
        self.streams |= {found["data-live"]} if "data-live" in found else set()
        self.forms |= {found["action"]} if tag == "form" and found.get("role") != "search" else set()


def walked(browser: httpx.Client) -> tuple[set[str], set[str], set[str]]:
    """Every page that can be reached from the start page, the forms there, and the pages that didn't open."""
    todo, seen, forms, broken = ["/"], set[str](), set[str](), set[str]()
    while todo:
        path = todo.pop()
        if path in seen or path.startswith("#"):
            continue
        seen.add(path)
        answer = browser.get(path)
        if answer.status_code in (303, 308):
            todo.append(answer.headers["location"])
        elif answer.status_code != 200:
            broken.add(path)
        elif answer.headers["content-type"].startswith("text/html"):
            page = Page(answer.text)
            alone = {"style"} if "/worklog?" in path else set()  # its own, by its hash in the policy
            assert not page.elements & ({"img", "iframe", "object", "style"} - alone), path
            assert not {name for name in page.elements if name.startswith("on")}, path
            ours = {asset(one) for one in STATIC if one.endswith(".js")}
            assert {link for link in page.links if ".js?" in link} <= ours
            forms |= page.forms
            todo += [urljoin(path, link) for link in page.links]
            for live in page.streams:
                with browser.stream("GET", live) as stream:
                    broken |= set() if stream.status_code == 200 else {live}
    return seen, forms, broken


def test_everybody_is_led_only_to_what_they_may_see_and_nothing_that_people_set_is_markup(api: ServedApi) -> None:
    """Boards of every kind, with hostile words wherever somebody may choose them."""
    store, hostile = api.store, f"<img src=x onerror=alert(1)>\"'</pre>{HOSTILE}"
    judged(api, "ada")
    ada, problem = store.people.ensure("ada"), store.boards.get("transpose").problem
    problem = dataclasses.replace(problem, description=hostile, tests=({"rows": 1, "kind": hostile},))
    soon = api.now + timedelta(seconds=5)
    for board in ("private", "revoked", "deleted", "ended"):
        store.boards.add(board, problem, gpus=["H100"], confirm=False, now=api.now, deadline_at=soon)
    numbers = []
    for board, name in (("private", f"{HOSTILE[:8]}.py"), ("revoked", "a.py"), ("deleted", "b.py"), ("ended", "c.py")):
        numbers.append(accept(store.intake, ada.id, board, name, GOOD, "test", ["H100"], api.now).submission_id)
    for board in ("private", "revoked"):
        store.boards.set_visibility(board, "closed", by="host", now=api.now)
        (code,) = store.invites.make([board], 1, by="host", now=api.now)[1]
        store.invites.claim(code, ada.id, now=api.now)
    store.invites.revoke(code, by="host", now=api.now)
    store.boards.delete("deleted", force=True, by="host", now=api.now)
    later = api.context.clock
    assert isinstance(later, HandClock)
    later.go(60)
    with (
        browsing(api) as nobody,
        browsing(api, "ada") as hers,
        browsing(api, hostile[:60], "staff") as host,
        browsing(api, "eve") as banned,
    ):
        for whom in (store.people.ensure("eve"), store.people.ensure("zoe <b>")):
            store.people.ban(whom.id, hostile, by=hostile, now=api.now)
        everyone = {"/login"}
        own = {"/logout", "/compare", "/me/link", "/questions"}
        acts = {
            "pause", "resume", "cancel", "remove", "add", "ban", "unban", "delete", "rank", "team", "account", "link",
            "revoke", "shadow", "boards/new", "courses/new/import", "problems", "place-drain", "run", "triage",
        }  # fmt: skip
        people = store.people.like("", limit=50)
        acts |= {f"people/{one.id}/token" for one in people if one.role == "participant"}
        submits = "/problem/transpose/submit"  # others are closed
        of_boards = {
            f"/staff/board/{board}/{act}"
            for board in ("transpose", "private", "revoked", "ended")
            for act in (
                "about",
                "course",
                "deadline",
                "close",
                "reopen",
                "submissions",
                "freeze",
                "unfreeze",
                "late",
                "extend",
                "finalise",
                "grades",
                "similar",
                "code",
                "shows",
                "teams",
                "practice",
                "reference",
                "worklog",
                "archive",
                "rejudge",
                "judging",
                "final",
                "rate",
                "quota",
                "role",
                "invite",
                "delete",
                "version",
            )
        }
        of_boards.add("/staff/board/private/uninvite")
        for browser, forms in (
            (nobody, everyone),
            (banned, everyone),
            (hers, {*own, "/me", *(f"/s/{number}/cancel" for number in numbers), submits}),
            (host, {*own, *(f"/staff/{act}" for act in acts), *of_boards, submits}),
        ):
            seen, there, broken = walked(browser)
            assert (sorted(there - forms), sorted(forms - there), broken) == ([], [], set())
            assert ("/board/private/H100" in seen) is (browser in (hers, host)) and "/board/ended/H100" in seen
            assert ("/board/revoked/H100" in seen) is (browser is host)
        assert "This board is closed" in nobody.get("/problem/ended").text
        asked = host.post(
            "/staff/ban", data={"csrf": csrf(host.get("/staff").text), "person": "ada", "reason": hostile}
        )
        assert asked.status_code == 200 and not Page(asked.text).elements & {"img", "onerror"}


def test_what_is_sent_twice_is_done_once_and_no_error(api: ServedApi) -> None:
    """A double click sends a form twice, and its answer is the second one's."""
    pending = api.client(None).register()
    with browsing(api, "ada") as ada:
        form = {"csrf": csrf(ada.get("/me").text)}
        for _ in range(2):
            assert ada.post("/me/link", data={**form, "token": pending}).headers["location"] == "/me?linked=1"
        cookie = {"Cookie": f"{SESSION}={ada.cookies[SESSION]}", **HTML}
        for _ in range(2):
            answer = httpx.post(f"{api.url}/logout", data=form, headers=cookie, timeout=60)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert ada.get("/me").status_code == 303


def test_a_problems_page_takes_one_file_or_several_or_a_zip(api: ServedApi) -> None:
    """As a browser sends its form, without a script. What is sent again while it is open leads to the same page."""
    store, packed = api.store, BytesIO()
    main, half = b"from parts.half import half\n\ncustom_kernel = half\n", b"def half(data):\n    return data\n"
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("mine/deep/main.py", main)
        file.writestr("mine/parts/half.py", half)
    one, zipped = ("k.py", GOOD), ("mine.zip", packed.getvalue())
    with browsing(api, "ada") as ada, browsing(api) as nobody:
        assert "Sign in</a> to submit" in nobody.get("/problem/transpose").text
        shown = ada.get("/problem/transpose").text
        form = {"csrf": csrf(shown), "gpu": "H100", "mode": "test"}
        assert 'enctype="multipart/form-data"' in shown and "multiple required" in shown

        def sent(*files: tuple[str, bytes], by: httpx.Client = ada, **more: Any) -> httpx.Response:
            parts = [("file", file) for file in files] or [("file", ("", b""))]
            return by.post("/problem/transpose/submit", data={**form, **more}, files=parts)

        for files, more, names in (
            ([one], {}, ["k.py"]),
            ([("main.py", main), ("half.py", half)], {"entry": ""}, ["main.py", "half.py"]),
            (
                [zipped],
                {"entry": "deep/main.py", "mode": "profile", "benchmark": "1"},
                ["deep/main.py", "parts/half.py"],
            ),
        ):
            answer = sent(*files, **dict[str, Any](more))
            assert answer.status_code == 303, answer.text
            number = int(answer.headers["location"].removeprefix("/s/"))
            view = store.submissions.get(SubmissionId(number))
            assert (list(files_of(view.file_name, view.source or "")), view.mode) == (names, more.get("mode", "test"))
            assert sent(*files, **dict[str, Any](more)).headers["location"] == f"/s/{number}", "once"
            assert [run.gpu for run in view.runs] == ["H100"]
        for answer, status, said in (
            (sent(), 400, "no file was chosen"),
            (sent(("a.py", main), ("b.py", half)), 400, "isn&#39;t clear which of the files is called"),
            (sent(("a.py", main), ("a.py", half)), 400, "two files are called"),
            (sent(one, mode="odd"), 400, "there is no mode"),
            (sent(one, mode="profile", benchmark="x"), 400, "isn&#39;t the number of a benchmark"),
            (sent(one, mode="profile", benchmark="9"), 400, "has no benchmark 9"),
            (sent(one, gpu="B200"), 404, "B200"),
            (sent(("k.txt", GOOD)), 400, "must end in one of"),
            (sent(one, csrf="0" * 64), 403, "this form has expired"),
            (sent(one, by=nobody), 403, "you aren&#39;t signed in"),
        ):
            assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert len(store.submissions.newest()) == 3


def test_clicks_on_submit_at_the_same_time_submit_once(api: ServedApi) -> None:
    with browsing(api, "ada") as ada:
        form = {"csrf": csrf(ada.get("/problem/transpose").text), "gpu": "H100", "mode": "test"}
        with ThreadPoolExecutor(4) as threads:
            sent = [
                threads.submit(ada.post, "/problem/transpose/submit", data=form, files={"file": ("k.py", GOOD)})
                for _ in range(4)
            ]
            assert len({one.result().headers["location"] for one in sent}) == 1
    assert len(api.store.submissions.newest()) == 1


def test_a_stale_staff_page_says_what_is_so_and_does_nothing_twice(api: ServedApi) -> None:
    store = api.store
    ada = store.people.ensure("ada")
    ended, running = (
        accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
        for _ in range(2)
    )
    cancel(store.submissions, ended, None, api.now)
    slots = free_slots({"puppet": {"H100": 1}}, store.attempts.open())
    assert claim(store.queue, slots, api.now) is not None
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve"):
        token = csrf(hana.get("/staff").text)

        def act(name: str, **form: str) -> httpx.Response:
            return hana.post(f"/staff/{name}", data={"csrf": token, **form})

        for name, form, said in (
            ("pause", {}, "Submissions are paused already."),
            ("resume", {}, "Submissions are accepted already."),
            ("cancel", {"submission": str(running)}, f"Submission {running} is being cancelled already."),
            ("ban", {"person": "eve", "reason": "cheats"}, "eve is banned already, for this reason: cheats."),
            ("unban", {"person": "eve"}, "eve isn&#39;t banned."),
        ):
            assert act(name, confirmed="yes", **form).status_code == 303
            before = store.events.audit_log(limit=50)
            for more in ({"confirmed": "yes"}, {}):
                again = act(name, **form, **more)
                assert again.status_code == 409 and said in again.text, again.text
            assert store.events.audit_log(limit=50) == before, name
        over = act("cancel", submission=str(ended))
        assert over.status_code == 409 and f"Submission {ended} has ended already" in over.text
        text = hana.get("/staff").text
        assert (
            '<button class="plain" disabled>Resume</button>' in text and '<button class="plain">Pause</button>' in text
        )


def test_clicks_at_the_same_time_act_once(api: ServedApi) -> None:
    with browsing(api, "hana", "staff") as hana:
        token = csrf(hana.get("/staff").text)
        for act in ("pause", "resume"):
            with ThreadPoolExecutor(8) as threads:
                sent = [threads.submit(hana.post, f"/staff/{act}", data={"csrf": token}) for _ in range(8)]
            assert sorted(one.result().status_code for one in sent) == [303] + 7 * [409]
        assert len(api.store.events.audit_log(limit=50)) == 2


def test_whoever_is_banned_is_told_so_and_why_where_they_sign_in(api: ServedApi) -> None:
    eve = api.store.people.ensure("eve")
    token = api.store.tokens.issue(eve.id, now=api.now)
    api.store.people.ban(eve.id, f"shared an account {HOSTILE}", by="root", now=api.now)
    with browsing(api) as browser:
        answer = browser.post("/login", data={"token": token, "next": "/me"})
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
        assert "eve is banned: shared an account &lt;script&gt;" in answer.text and "Ask a host." in answer.text
        assert "unknown, was revoked" in browser.post("/login", data={"token": token[1:]}).text


def test_an_error_page_neither_signs_its_reader_out_nor_speaks_in_the_frameworks_words(api: ServedApi) -> None:
    with browsing(api, "ada") as ada, browsing(api) as nobody:
        for path, said in (
            ("/nowhere", "there is no page at this address"),
            ("/staff/ban", "this address only takes a form"),
            ("/logout", "this address only takes a form"),
        ):
            for browser in (ada, nobody):
                assert said in browser.get(path).text
            assert 'href="/login"' not in ada.get(path).text and 'href="/login"' in nobody.get(path).text
        api.store.people.ban(api.store.people.ensure("ada").id, "", by="root", now=api.now)
        assert ada.get("/me?from=50").headers["location"] == "/login?next=/me%3Ffrom%3D50"
        assert 'href="/login"' in ada.get("/nowhere").text, "a session that has ended is nobody's"


def test_no_refusal_may_be_kept_or_sniffed_whoever_makes_it(
    api: ServedApi, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are made outside the guard: of a bug, and of a limit."""
    monkeypatch.setattr(BoardList, "now", lambda self: 1 // 0)
    limits = "[server]\ntrusted_proxies = ['127.0.0.1/32']\nrequests_per_minute = 60\n"
    with served(database_url, tmp_path / "limited", toml=limits, boards=False) as limited:
        stranger = {"X-Forwarded-For": "203.0.113.9"}
        statuses = set()
        for url, headers in [(api.url, dict[str, str]())] + [(limited.url, stranger)] * 63:
            for accept_ in ("text/html", "*/*"):
                answer = httpx.get(f"{url}/", headers={"Accept": accept_, **headers}, timeout=60)
                statuses.add(answer.status_code)
                assert answer.headers["x-content-type-options"] == "nosniff", answer.status_code
                assert answer.headers["cache-control"] == "no-store"
                if "html" in answer.headers["content-type"]:
                    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert statuses == {429, 500}


def test_signing_on_wants_a_good_token_and_leads_nowhere_else(api: ServedApi) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    with browsing(api) as browser:
        answer = browser.post("/login", data={"token": "wrong"})
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
        assert browser.post("/login", json={"token": token}).status_code == 400
        answer = browser.post("/login", data={"token": token, "next": "//elsewhere.example"})
        assert answer.headers["location"] == "/"


def test_a_slash_too_many_leads_to_the_page(api: ServedApi) -> None:
    html = {"Accept": "text/html"}
    told = httpx.get(f"{api.url}/board/transpose/H100/?page=1", headers=html, timeout=60)
    assert (told.status_code, told.headers["Location"]) == (308, "/board/transpose/H100?page=1")
    assert httpx.get(f"{api.url}/board/transpose/", headers=html, follow_redirects=True, timeout=60).status_code == 200
    for path in ("/nowhere/", "//evil.example/", "//evil.example/board/transpose/"):
        assert httpx.get(f"{api.url}{path}", headers=html, timeout=60).status_code == 404
    assert httpx.get(f"{api.url}/leaderboards/", timeout=60).status_code == 404, (
        "a client's address is a client's business"
    )


def test_errors_are_pages_for_browsers_and_json_for_clients(api: ServedApi) -> None:
    with httpx.Client(base_url=api.url, timeout=60) as anybody:
        for path in ("/nowhere", "/board/nowhere", "/static/addresses.py"):
            page = anybody.get(path, headers=HTML)
            assert page.status_code == 404 and page.headers["content-type"].startswith("text/html")
            told = anybody.get(path, headers={"Accept": "*/*"})
            assert told.status_code == 404 and "detail" in told.json()


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_what_is_written_can_be_read(theme: int) -> None:
    style = static_file("style.css").decode()
    blocks = [one for one in re.findall(r":root \{(.+?)\}", style, flags=re.DOTALL) if "--paper" in one]
    assert len(blocks) == 2
    colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[theme]))
    for text in ("ink", "quiet", "link", "good", "bad", "warn", "gold"):
        for paper in ("paper", "surface", "raised", "own-soft"):
            assert contrast(colour[text], colour[paper]) >= 4.5, (text, paper)
    for kind in ("good", "bad", "warn", "gold"):
        assert contrast(colour[kind], colour[f"{kind}-soft"]) >= 4.5, kind
    assert contrast(colour["button-ink"], colour["button"]) >= 4.5
    assert contrast(colour["ink"], colour["same"]) >= 4.5
    for drawn in ("mark", "other", "focus", "edge"):
        for paper in ("paper", "surface", "raised"):
            assert contrast(colour[drawn], colour[paper]) >= 3, (drawn, paper)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours."""

    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_amounts_are_written_in_units_that_suit() -> None:
    assert [took(s) for s in (2.0, 0.0123456, 4.2e-6, 0.0, None)] == ["2 s", "12.35 ms", "4.2 µs", "0 ns", "–"]


# --------------------------------------------------------------------------------------------------- a real Chromium


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Chromium]:
    with started(tmp_path) as browser:
        yield browser


@needs(CHROMIUM)
def test_a_real_browser_follows_links_signs_on_and_sees_a_new_record_live(
    api: ServedApi, chromium: Chromium, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("KBSLURM_TEST_ARTIFACTS") or tmp_path)
    shots.mkdir(parents=True, exist_ok=True)
    first = judged(api, "ada", 0.5)
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)

    chromium.open(api.url)
    assert chromium.title() == "Competitions – kbslurm"
    chromium.click("a[href='/board/transpose/H100']")
    until(lambda: chromium.title() == "transpose on H100 – kbslurm", "the board opens")
    assert "ada" in chromium.ask("return document.querySelector('#live tbody').innerText")
    chromium.ask("window.stayed = true")
    judged(api, "grace", 0.25)
    until(lambda: "grace" in chromium.ask("return document.querySelector('#live tbody').innerText"), "grace shows")
    rows = chromium.ask("return [...document.querySelectorAll('#live tbody th .name')].map(cell => cell.innerText)")
    assert rows[:2] == ["grace", "ada"] and chromium.ask("return window.stayed") is True, "shown without a reload"
    assert chromium.ask("return document.querySelectorAll('#live svg circle').length") == 2
    chromium.picture(shots / "board.png")

    chromium.click(".who a")
    until(lambda: chromium.title() == "Sign in – kbslurm", "the sign-in page opens")
    chromium.write("#token", token)
    chromium.click("main button")
    until(lambda: chromium.title() == "My submissions – kbslurm", "one is signed on")
    chromium.click(f"a[href='/s/{first}']")
    until(lambda: chromium.title() == f"Submission {first} – kbslurm", "the submission opens")
    chromium.picture(shots / "submission.png")
    assert chromium.complaints() == []

    # As wide as a phone, nothing makes the page itself scroll sideways, and the first Tab reaches the skip link.
    chromium.call("POST", "/window/rect", width=500, height=800)
    for path in ("/", "/board/transpose/H100", "/problem/transpose", f"/s/{first}"):
        chromium.open(api.url + path)
        assert chromium.ask("return document.documentElement.scrollWidth <= innerWidth"), path
    chromium.call("POST", "/actions", actions=[{"type": "key", "id": "k", "actions": TAB}])
    assert chromium.ask("return document.activeElement.className") == "skip"
    assert chromium.ask("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert chromium.complaints() == []
    pictures = [shots / "board.png", shots / "submission.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


TAB = [{"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]
