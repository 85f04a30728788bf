"""The staff's pages: what needs attention with what mends it, places in sentences, people, the audit log, a rejudge as
moves, finals, access; nothing that was typed is lost, and whoever helps on a board sees that board alone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest

from kbslurm.api.pages.staff import audit as staff_audit
from kbslurm.api.pages.staff import people as staff_people
from kbslurm.api.pages.staff import service as staff_service
from kbslurm.api.sessions import SESSION
from kbslurm.domain.access import BoardRole
from kbslurm.domain.run import PersonId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store.rejudgings import Wanted
from kbslurm.store.views import Attention
from tests.flow import gallery
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import HOSTILE, browsing, csrf
from tests.flow.test_warm import DGX
from tests.popcorn.served_api import GOOD, ServedApi, served

BOARD = "/staff/board/transpose"
PACE = {"calls": 12, "interval_s": 15.0, "budget_left": 28.0, "failing": 0, "slow": False, "why": "", "way": ""}
CLOSED = {"state": "closed", "cause": "", "why": "", "since": None, "try_at": None, "times": 0}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("hana", "owner")
        yield built


@pytest.fixture
def hana(api: ServedApi) -> Iterator[httpx.Client]:
    with browsing(api, "hana", "owner") as browser:
        yield browser


def sent(browser: httpx.Client, path: str, /, **fields: str) -> httpx.Response:
    return browser.post(path, data={"csrf": csrf(browser.get("/me").text), **fields})


def confirmed(browser: httpx.Client, path: str, /, **fields: str) -> httpx.Response:
    """The answer to the page that asks first, by the form that it has."""
    asked = sent(browser, path, **fields)
    assert asked.status_code == 200 and f'action="{path}"' in asked.text, asked.text
    form = {name: html.unescape(text) for name, text in HIDDEN.findall(asked.text)}
    assert form.pop("confirmed") == "yes"
    return browser.post(path, data={**form, "confirmed": "yes"})


HIDDEN = re.compile(r'<input type="hidden" name="([\w-]+)" value="([^"]*)">')


def words(text: str) -> str:
    """What a page says."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def lane(**told: Any) -> dict[str, Any]:
    """What a daemon tells of a place."""
    return {
        "troubles": 0, "in_vain": 0, "why": "", "lapse": "", "pace": None, "limits": [], "slots": {}, "widest": {},
        "staff_only": False, "role": "home", "classes": {}, "prices": {}, "breaker": CLOSED, "shut": {}, **told,
    }  # fmt: skip


def led(api: ServedApi, places: dict[str, Any], overflow: dict[str, Any] | None = None) -> None:
    """A daemon leads and has told this."""
    from datetime import UTC, datetime

    told = {"places": places, "overflow": overflow or {}, "warm": []}
    assert api.store.leases.hold("daemon", "login1:4242", 900, datetime.now(UTC), info=told)


def judge_what_waits(api: ServedApi, faster: float = 1.0) -> None:
    """All queued runs get a verdict, each with another score."""
    store, n = api.store, 0
    while True:
        slots = free_slots({"puppet": Puppet(slots={"H100": 99}).capacity()}, store.attempts.open())
        attempt = claim(store.queue, slots, api.now)
        if attempt is None:
            return
        score_s = 3e-3 * 1.07 ** ((n * 5) % 12) * faster
        report = sealed_report(
            store.attempts.work(attempt.id), score_s=score_s, interval_s=[score_s * 0.999, score_s * 1.001]
        )
        score(store, attempt, report, api.now)
        n += 1


# ------------------------------------------------------------------------------------------------------- attention


def test_every_kind_of_attention_says_what_comes_next() -> None:
    kinds = set(get_args(get_type_hints(Attention)["kind"]))
    assert {kind for kind, _ in staff_service.WHAT_NEXT} == kinds


def test_what_needs_attention_has_what_mends_it_beside_it(api: ServedApi, hana: httpx.Client) -> None:
    store = api.store
    assert "Nothing needs attention." not in hana.get("/staff").text, "no daemon leads"
    assert "no daemon is leading" in words(hana.get("/staff").text)
    led(api, {"local": lane(slots={"H100": 2})})
    assert "Nothing needs attention." in hana.get("/staff").text
    ada = store.people.ensure("ada")
    old = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["A100"], api.now - timedelta(hours=9))
    gallery.judged(store, "bob", api.now, 0.5)
    store.rejudgings.order("transpose", Wanted(), None, by="hana", now=api.now)
    store.questions.ask(ada.id, "Why?", board="transpose", submission=None, appeal=False, now=api.now)
    (run,) = store.submissions.get(old.submission_id).runs
    text = hana.get("/staff").text
    said = words(text)
    assert "1 question waits for an answer." in said and 'href="/staff/questions"' in text
    assert f"1 run has waited for A100 for more than 6 hours: run {run.id}" in said and 'href="/staff/places"' in text
    assert "A rejudge of transpose, ordered by hana, waits for a decision, 1 run still to end." in said
    assert f'href="{BOARD}/rejudge"' in text
    found = staff_service.to_attend(api.context, api.now)
    assert [one.kind for one in found] == ["old", "rejudge"] and found[0].advice
    boards = words(hana.get("/staff/boards").text)
    assert "1 question rejudge" in boards and f'href="{BOARD}"' in hana.get("/staff/boards").text


def test_a_run_that_needs_attention_leads_to_its_submission_and_can_be_cancelled_there(
    api: ServedApi, hana: httpx.Client
) -> None:
    store = api.store
    number = accept(
        store.intake, store.people.ensure("ada").id, "transpose", "k.py", GOOD, "test", ["H100"], api.now
    ).submission_id
    slots = free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open())
    assert claim(store.queue, slots, api.now - timedelta(hours=1)) is not None
    text = hana.get("/staff").text
    assert f'href="/staff/submissions/{number}"' in text and "has not taken it so far" in words(text)
    form = f'<input type="hidden" name="submission" value="{number}"><button class="plain">Cancel it</button>'
    assert form in text
    assert sent(hana, "/staff/cancel", submission=str(number)).status_code == 200, "it asks first"
    page = hana.get(f"/staff/submissions/{number}").text
    assert "Cancel its runs" in page and "Remove it" in page
    then = f"/staff/submissions/{number}"
    done = confirmed(hana, "/staff/cancel", submission=str(number), then=then)
    assert (done.status_code, done.headers["location"]) == (303, then)
    done = confirmed(hana, "/staff/remove", submission=str(number), then=then)
    assert done.status_code == 303 and store.submissions.get(number).removed_at is not None
    again = sent(hana, "/staff/remove", submission=str(number))
    assert again.status_code == 409 and "removed already" in words(again.text)
    assert "Remove it" not in hana.get(then).text and "Cancel its runs" not in hana.get(then).text


@pytest.mark.parametrize("then", ["https://evil.example", "//evil.example", "/me", "/staff/../me", "/staff?x=1", "\\"])
def test_a_form_leads_to_the_staffs_pages_only(api: ServedApi, hana: httpx.Client, then: str) -> None:
    assert sent(hana, "/staff/pause", then=then).headers["location"] == "/staff"


def test_places_are_told_in_sentences(api: ServedApi, hana: httpx.Client) -> None:
    soon = (api.now + timedelta(minutes=7)).isoformat()
    led(
        api,
        {
            "cluster": lane(pace=PACE, slots={"H100": 8}),
            "broken": lane(pace=PACE, slots={"V100": 4}, troubles=5, why="broken: sbatch: <b>no</b> controller"),
            "hiccup": lane(pace=PACE, slots={"V100": 4}, troubles=1, why="hiccup: a slow answer"),
            "silent": lane(pace={**PACE, "failing": 3, "why": "no answer"}, slots={"V100": 4}),
            "modal": lane(
                role="overflow", slots={"H100": 3}, prices={"H100": 3.6 / 3600}, staff_only=True,
                breaker={**CLOSED, "state": "open", "why": "the app answered 503", "try_at": soon},
            ),
            "github": lane(
                role="overflow", slots={"H100": 2}, lapse="the token has expired",
                limits=[{"left": 42, "most": 5000, "what": "API calls", "resets_at": None}],
            ),
            "half": lane(slots={"H100": 1}, shut={"H100": "its runs would wait too long"}),
        },
        {
            "rule": "after 10 min", "currency": "EUR", "gpus": {"H100": "home first"},
            "held_up": {"H100": "the month's budget is spent"}, "held_boards": {"H100": {"transpose": "spent"}},
            "held_teams": {}, "budget": {"month": 200.0, "spent": 150.0, "boards": {}, "team": None, "teams": {}},
        },
    )  # fmt: skip
    pages = [hana.get(path).text for path in ("/staff", "/staff/places")]
    for text in pages:
        said = words(text)
        for sentence in (
            "working It takes runs.",
            "It failed 5 times in a row. sbatch: <b>no</b> controller",
            "kbslurm place check broken says what to do",
            "It isn't used for a while. a slow answer",
            "Its scheduler doesn't answer; it is asked again every 15 s. no answer",
            "It gets no runs, tried again in 7 min. the app answered 503",
            "Overflow, only for staff's runs",
            "3.60 EUR/h",
            "It can't be used until this is mended. the token has expired",
            "kbslurm place check github says what to do",
            "42 of 5000 API calls left.",
            "No runs: its runs would wait too long",
            "0 of 8 in use",
            "Asked every 15 s; 28 calls left this minute.",
        ):
            assert sentence in said, (sentence, said)
        assert "<b>no</b>" not in text and not re.search(r"\{'|': ", said), "no dictionary"
        order = [text.index(f">{name}<") for name in ("broken", "half", "cluster")]
        assert order == sorted(order), "trouble first"
    said = words(pages[1])
    assert "the month 150.00 200.00 EUR 75 %" in said and "H100 runs of board transpose: spent" in said


# ---------------------------------------------------------------------------------------------------------- people


def test_people_are_found_by_what_they_are_known_by(
    api: ServedApi, hana: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = api.store
    ada, eve = store.people.add("Ada L.", now=api.now), store.people.add(HOSTILE[:60], now=api.now)
    store.people.link_account(ada.id, "discord", "4711")
    store.people.ban(eve.id, "shared an account", by="hana", now=api.now)
    data = {"csrf": csrf(hana.get("/me").text), "name": "gpu-2026", "preview": "no"}
    file = {"file": ("roster.csv", b"name,email\nGrace Hopper,grace@example.edu\n")}
    assert hana.post("/staff/courses/new/import", data=data, files=file).status_code == 200
    grace = store.people.by_email("grace@example.edu")
    assert grace is not None
    accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)

    def found(**asked: str) -> list[str]:
        text = hana.get("/staff/people", params=asked).text
        return [html.unescape(one) for one in re.findall(r'<a href="/staff/people/\d+">([^<]*)</a>', text)]

    assert found()[0] == "hana", "staff first"
    assert set(found()) == {"hana", "Ada L.", eve.name, grace.name}
    for text in ("da l", "4711", str(ada.id)):
        assert "Ada L." in found(q=text), text
    assert found(q="4711") == ["Ada L."] and found(q="grace@exam") == [grace.name] and found(q="%") == []
    assert found(only="banned") == [eve.name] and found(only="staff") == ["hana"]
    assert found(q="ada", only="banned") == []
    assert "Nobody matches." in hana.get("/staff/people", params={"q": "nobody at all"}).text
    assert hana.get("/staff/people", params={"only": "x"}).status_code == 400
    text = hana.get("/staff/people").text
    assert HOSTILE[:60] not in text and "Discord" in words(text) and "gpu-2026" in words(text)
    line = words(text[text.index(">Ada L.<") :][: text[text.index(">Ada L.<") :].index("</tr>")])
    assert "participant" in line and "Discord" in line and " 1 " in line and "never" in line
    monkeypatch.setattr(staff_people, "SHOWN", 2)
    first, second = hana.get("/staff/people"), hana.get("/staff/people", params={"from": "2"})
    assert "these are 1 to 2" in words(first.text) and 'href="?from=2"' in first.text
    assert "these are 3 to 4" in words(second.text) and "Next" not in second.text


def test_a_persons_page_does_what_the_commands_do(api: ServedApi, hana: httpx.Client) -> None:
    store = api.store
    ada = store.people.add("ada", now=api.now)
    token = store.tokens.issue(ada.id, device="laptop", now=api.now)
    (held,) = store.tokens.of_person(ada.id)
    path, whom = f"/staff/people/{ada.id}", f"person:{ada.id}"

    def done(act: str, **fields: str) -> None:
        answer = sent(hana, f"/staff/{act}", person=whom, then=path, **fields)
        assert (answer.status_code, answer.headers.get("location")) == (303, path), answer.text

    done("team", team="red")
    done("account", account="proj42")
    done("link", account="github:99")
    done("rank", role="staff")
    found = store.people.get(ada.id)
    assert (found.team, found.cluster_account, found.github_id, found.role) == ("red", "proj42", "99", "staff")
    text = hana.get(path).text
    assert all(one in words(text) for one in ("red", "proj42", "99", "staff", f"Revoke token {held.id}"))
    assert token not in text, "its secret is known to nobody"
    assert store.tokens.person_of(token, now=api.now) is not None
    answer = confirmed(hana, "/staff/revoke", person=whom, token=str(held.id), then=path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert store.tokens.person_of(token, now=api.now) is None
    assert sent(hana, "/staff/revoke", person=whom, token="x", confirmed="yes").status_code == 400
    assert confirmed(hana, "/staff/ban", person=whom, reason="why not", then=path).status_code == 303
    assert "Banned since" in words(hana.get(path).text) and "why not" in words(hana.get(path).text)
    done("unban")
    assert hana.get("/staff/people/999999").status_code == 404
    with browsing(api, "tom", "staff") as tom:
        assert sent(tom, "/staff/rank", person=whom, role="owner").status_code == 403
        own = tom.get(path).text
        assert "Role and accounts" not in own and "/staff/ban" not in own, "ada is staff now, which tom can't change"


# ----------------------------------------------------------------------------------------------------------- audit


def test_the_audit_log_has_names_and_times_and_is_narrowed(
    api: ServedApi, hana: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = api.store
    ada = store.people.add("ada", now=api.now)
    store.people.ban(ada.id, "shared an account", by="tom", now=api.now)
    store.limits.set_quota("transpose", 300.0, by="hana", now=api.now)
    for n in range(5):
        store.events.audit("tom", "waved", f"submission:{n}", {"to": ["x", "y"], "deep": {"a": None}}, now=api.now)
    text = hana.get("/staff/audit").text
    said = words(text)
    assert f'<a href="/staff/people/{ada.id}">ada</a>' in text and f'<a href="{BOARD}">transpose</a>' in text
    assert "reason: shared an account" in said and "to: x y, deep: a none" in said
    assert f'<time datetime="{api.now.isoformat()}">' in text and 'src="/static/time.js' in text

    def acts(**asked: str) -> list[str]:
        found = hana.get("/staff/audit", params=asked).text
        return re.findall(r'<th scope="row"><a href="/staff/audit\?act=[^"]*">([^<]*)</a>', found)

    assert acts(by="TOM") == 5 * ["waved"] + ["ban"] and acts(act="ban") == ["ban"]
    assert acts(by="hana") == ["quota"] and acts(by="tom", act="quota") == []
    assert "No action matches." in hana.get("/staff/audit", params={"act": "%"}).text
    monkeypatch.setattr(staff_audit, "SHOWN", 2)
    seen, path = list[str](), "/staff/audit?by=tom"
    while path:
        page = hana.get(path).text
        seen += re.findall(r'href="/staff/audit\?act=[^"]*">([^<]*)</a>', page)
        older = re.search(r'href="(\?[^"]*before=[^"]*)">Older', page)
        path = f"/staff/audit{html.unescape(older[1])}" if older else ""
    assert seen == 5 * ["waved"] + ["ban"]


# --------------------------------------------------------------------------------------------------- boards' pages


def test_a_rejudge_is_shown_as_moves_and_applying_it_does_just_that(api: ServedApi, hana: httpx.Client) -> None:
    store = api.store
    gallery.played(store, api.now - timedelta(days=4), names=gallery.NAMES[:6])
    store.people.ban(store.people.ensure("linus").id, by="hana", now=api.now)
    before = store.standings.best("transpose", "H100", live=True)
    path = f"{BOARD}/rejudge"
    estimate = hana.get(path, params={"gpu": "H100", "estimate": "yes"})
    assert "Judge these 12 runs again" in words(estimate.text)
    wrong = hana.get(path, params={"submission": "x", "estimate": "yes"})
    assert wrong.status_code == 400 and "isn't a submission number" in words(wrong.text)
    assert 'value="x"' in wrong.text, "it can be corrected"
    assert sent(hana, path, gpu="H100").headers["location"] == path
    text = hana.get(path).text
    assert "An open rejudge" in text and "disabled>Make the new verdicts count" in text
    early = confirmed(hana, f"{path}-apply")
    assert early.status_code == 403 and "haven't finished yet" in words(early.text)
    judge_what_waits(api, faster=0.5)
    assert store.standings.best("transpose", "H100", live=True) == before, "nothing counts yet"
    known = store.rejudgings.open("transpose")
    assert known is not None
    foreseen = store.standings.rejudged("transpose", "H100", rejudging=known.id, version=known.version)
    text = hana.get(path).text
    for place, one in enumerate(foreseen, 1):
        line = next(row for row in text.split("<tr>") if f">{one.person}</a>" in row)
        was = next(n for n, old in enumerate(before, 1) if old.person_id == one.person_id)
        numbers = re.findall(r'<td class="number">(\d+)</td>', line)
        assert numbers == [str(was), str(place)], one.person
        assert ("▲" in line, "▼" in line) == (place < was, place > was)
    assert sent(hana, f"{path}-apply", rejudging="999", confirmed="yes").status_code == 409
    done = confirmed(hana, f"{path}-apply", rejudging=str(known.id))
    assert (done.status_code, done.headers["location"]) == (303, path)
    after = store.standings.best("transpose", "H100", live=True)
    assert after == foreseen and [one.person for one in after] != [one.person for one in before]
    again = sent(hana, f"{path}-apply", rejudging=str(known.id), confirmed="yes")
    assert again.status_code == 409 and "open any more" in words(again.text)
    assert sent(hana, path, person="nobody").status_code == 404
    assert sent(hana, path, verdict="passed").status_code == 303
    done = confirmed(hana, f"{path}-cancel")
    assert done.status_code == 303 and store.rejudgings.open("transpose") is None


def test_finals_are_ordered_and_decided_on_their_page(api: ServedApi, hana: httpx.Client) -> None:
    store, path = api.store, f"{BOARD}/finals"
    gallery.played(store, api.now - timedelta(days=4), names=gallery.NAMES[:4])
    assert "Order a final" in hana.get(path).text
    assert sent(hana, f"{BOARD}/final", gpu="B200", top="3").status_code == 404
    assert sent(hana, f"{BOARD}/final", gpu="H100", top="3").headers["location"] == path
    text = words(hana.get(path).text)
    assert "It is being measured" in text and "Who takes part on H100" in text
    assert sent(hana, f"{BOARD}/final", gpu="H100", top="3").status_code == 409, "a second click"
    assert "A final of transpose on H100" in words(hana.get("/staff").text)
    early = confirmed(hana, f"{BOARD}/final-apply", gpu="H100")
    assert early.status_code in (400, 403) and store.finals.open("transpose", "H100") is not None
    assert confirmed(hana, f"{BOARD}/final-forget", gpu="H100").headers["location"] == path
    assert store.finals.open("transpose", "H100") is None
    assert sent(hana, f"{BOARD}/final-forget", gpu="H100").status_code == 409


def test_access_and_limits_are_set_on_their_page(api: ServedApi, hana: httpx.Client) -> None:
    store, path = api.store, f"{BOARD}/entry"
    store.people.add("gina", now=api.now)

    def done(act: str, **fields: str) -> str:
        answer = sent(hana, f"{BOARD}/{act}", **fields)
        assert (answer.status_code, answer.headers.get("location")) == (303, path), answer.text
        return hana.get(path).text

    assert 'name="max" inputmode="numeric" maxlength="7" value="7"' in done("rate", category="leaderboard", max="7")
    assert 'value="7"' not in done("rate", category="leaderboard", max="")
    assert 'value="90.5"' in done("quota", gpu_s="90.5")
    for act, fields in (
        ("rate", {"category": "leaderboard", "max": "many"}),
        ("rate", {"category": "odd", "max": "1"}),
        ("quota", {"gpu_s": "nan"}),
        ("quota", {"gpu_s": "-1"}),
        ("role", {"person": "", "role": "grader"}),
        ("role", {"person": "gina", "role": "king"}),
        ("invite", {"count": "0"}),
        ("invite", {"count": "x"}),
    ):
        assert sent(hana, f"{BOARD}/{act}", **fields).status_code in (400, 404), (act, fields)
    assert "gina : grader" in words(done("role", person="gina", role="grader"))
    assert "Nobody but staff." in done("role", person="gina", role="none")
    done("invite", count="2", newcomers="yes")
    first, second = (one.code for one in store.invites.of_board("transpose"))
    text = hana.get(path).text
    assert first in text and second in text and "2 invitations" in words(text)
    assert confirmed(hana, f"{BOARD}/uninvite", code=first).headers["location"] == path
    assert first not in hana.get(path).text
    assert sent(hana, f"{BOARD}/uninvite", code=first).status_code == 409
    held = store.boards.get("transpose")
    wrong = sent(hana, f"{BOARD}/delete", only=str(held.id + 1), confirmed="yes")
    assert wrong.status_code != 303 and store.boards.find("transpose") is not None, "another board of that name"
    assert confirmed(hana, f"{BOARD}/delete").headers["location"] == "/staff/boards"
    assert store.boards.find("transpose") is None and hana.get(BOARD).status_code == 404


def test_nothing_that_was_typed_is_lost_when_a_form_is_refused(api: ServedApi, hana: httpx.Client) -> None:
    store, typed = api.store, f"2031-13-45 {HOSTILE}"[:60]
    answer = sent(hana, f"{BOARD}/deadline", deadline=typed, zone="Europe/Berlin")
    assert answer.status_code == 400 and "isn't a valid deadline" in words(answer.text)
    assert f'name="deadline" value="{html.escape(typed, quote=True)}"'.replace("&#x27;", "&#39;") in answer.text
    assert 'value="Europe/Berlin"' in answer.text and f'action="{BOARD}/deadline"' in answer.text
    again = dict(HIDDEN.findall(answer.text))
    mended = hana.post(f"{BOARD}/deadline", data={**again, "deadline": "2099-01-01", "zone": "Europe/Berlin"})
    assert mended.status_code == 303 and store.boards.get("transpose").zone == "Europe/Berlin"
    board = sent(hana, "/staff/boards/new", name="no spaces", problem="transpose", gpus="H100", teams="yes")
    assert board.status_code == 400 and 'value="no spaces"' in board.text
    assert '<input type="checkbox" name="teams" value="yes" checked>' in board.text
    scheme = 'by = "time"\n[[steps]]\n'
    grades = sent(hana, f"{BOARD}/grades", scheme=scheme)
    assert grades.status_code == 400 and f"{scheme}</textarea>" in html.unescape(grades.text)
    ada = store.people.ensure("ada")
    number = store.questions.ask(ada.id, "Why?", board="transpose", submission=None, appeal=False, now=api.now).id
    assert sent(hana, f"/staff/questions/{number}/answer", text="So.").status_code == 303
    late = sent(hana, f"/staff/questions/{number}/answer", text="A long answer.", to_all="yes")
    assert late.status_code in (400, 403) and "A long answer.</textarea>" in late.text
    seen = sent(hana, f"{BOARD}/about", description="x", gpus="B 200;", visibility="closed")
    assert "<option selected>closed</option>" in seen.text
    for client in ({"Accept": "application/json"}, {"Accept": "*/*"}):
        said = hana.post(f"{BOARD}/deadline", data={**again, "deadline": "soon"}, headers=client)
        assert said.status_code == 400 and "detail" in said.json(), "clients get JSON"


# -------------------------------------------------------------------------------------------------------- helpers


@pytest.mark.parametrize(
    ("role", "reads", "announces"),
    [("observer", False, False), ("grader", True, False), ("assistant", True, True), ("owner", True, True)],
)
def test_whoever_helps_on_a_board_sees_that_board_alone(
    api: ServedApi, role: BoardRole, reads: bool, announces: bool
) -> None:
    store = api.store
    held = store.boards.get("transpose")
    store.boards.add("vault", held.problem, gpus=["H100"], confirm=False, now=api.now)
    ada = store.people.ensure("ada")
    mine, other = (
        store.questions.ask(ada.id, f"About {name}?", board=name, submission=None, appeal=False, now=api.now).id
        for name in ("transpose", "vault")
    )
    store.boards.set_visibility("vault", "closed", by="hana", now=api.now)
    gina = store.people.ensure("gina")
    with browsing(api, "gina") as helper, browsing(api, "eve") as eve:
        assert 'href="/staff"' not in helper.get("/me").text and helper.get("/staff").status_code == 403
        store.roster.set_role_on(held.id, gina.id, role, by="hana", now=api.now)
        assert 'href="/staff"' in helper.get("/me").text and 'href="/staff"' not in eve.get("/me").text
        text = helper.get("/staff").text
        assert f"You are {role} here." in words(text) and "vault" not in text
        assert (f'href="{BOARD}/submissions"' in text) is reads
        for link in re.findall(r'href="(/[^"]*)"', text):
            answer = helper.get(html.unescape(link), follow_redirects=True)
            assert answer.status_code == 200 and "/login" not in str(answer.url), link
        asked = helper.get("/staff/questions")
        assert asked.status_code == (200 if reads else 403) and "vault" not in asked.text
        assert ("About transpose?" in asked.text) is reads and ("To everyone" in asked.text) is announces
        for number in (mine, other):
            told = sent(helper, f"/staff/questions/{number}/answer", text="So.", to_all="yes").status_code
            assert told == (303 if number == mine and announces else 403), number
        if not announces:
            told = sent(helper, f"/staff/questions/{mine}/answer", text="So.").status_code
            assert told == (303 if reads else 403)
        assert sent(helper, f"/staff/questions/{mine}/rejudge").status_code == (400 if announces else 403)
        for path in ("people", f"people/{ada.id}", "audit", "places", "boards", "boards/new", "courses"):
            assert helper.get(f"/staff/{path}").status_code == 403, path
        for page in ("", "/rejudge", "/finals", "/entry"):
            assert helper.get(f"{BOARD}{page}").status_code == 403, page
        for act in ("pause", "remove", "rank", "revoke", "warm-start"):
            assert sent(helper, f"/staff/{act}", person="ada", submission="1").status_code == 403, act
        for act in ("rejudge", "final", "rate", "invite", "role", "delete"):
            assert sent(helper, f"{BOARD}/{act}", confirmed="yes").status_code == 403, act
        store.people.ban(gina.id, by="hana", now=api.now)
        assert helper.get("/staff").status_code == 303, "a ban ends a role"


def test_a_deleted_board_leaves_no_way_to_the_staffs_pages(api: ServedApi) -> None:
    store, gina = api.store, api.store.people.ensure("gina")
    held = store.boards.get("transpose")
    store.roster.set_role_on(held.id, gina.id, "owner", by="hana", now=api.now)
    store.boards.delete("transpose", force=True, by="hana", now=api.now)
    token = store.tokens.issue(PersonId(gina.id), kind="web", now=api.now)
    answer = httpx.get(f"{api.url}/staff", cookies={SESSION: token}, headers={"Accept": "text/html"}, timeout=60)
    assert answer.status_code == 403


def test_warm_workers_are_started_and_let_go_on_the_page_of_places(database_url: str, tmp_path: Path) -> None:
    site = tmp_path / "dgx.toml"
    site.write_text(DGX)
    told = f'[sites]\nuse = ["{site}"]\n'
    with served(database_url, tmp_path / "service", toml=told) as api, browsing(api, "hana", "owner") as hana:
        path, spot = "/staff/places", {"place": "dgx", "gpu": "A100", "count": "1", "then": "/staff/places"}
        assert "What the sites allow" in words(hana.get(path).text)
        for wrong in ("0", "many", "-1"):
            assert sent(hana, "/staff/warm-start", **{**spot, "count": wrong}).status_code == 400
        assert sent(hana, "/staff/warm-start", **{**spot, "gpu": "B200"}).status_code == 400
        assert sent(hana, "/staff/warm-start", **spot).headers["location"] == path
        (worker,) = api.store.keepers.open()
        text = hana.get(path).text
        assert "Those that may hold a GPU now" in text and f'name="worker" value="{worker.id}"' in text
        assert sent(hana, "/staff/warm-drain", worker="x").status_code == 400
        assert sent(hana, "/staff/warm-drain", worker=str(worker.id), then=path).headers["location"] == path
        acts = [event.kind for event in api.store.events.audit_log(limit=2)]
        assert acts == ["staff.warm.drain", "staff.warm.start"]
        assert hana.get(path).status_code == 200


def test_a_boards_page_counts_and_says_where_runs_may_rank(api: ServedApi, hana: httpx.Client) -> None:
    store = api.store
    gallery.played(store, api.now - timedelta(days=4), names=gallery.NAMES[:3])
    said = words(hana.get(BOARD).text)
    assert "Submissions 6 People 3 Queued 0 Running 0" in said and "✓ passed 6" in said
    assert sent(hana, f"{BOARD}/judging", min_isolation="2", cold="yes").status_code == 303
    held = store.boards.get("transpose")
    assert (held.min_isolation, held.cold) == (2, True)
    assert sent(hana, f"{BOARD}/judging", min_isolation="4").status_code == 400
    assert sent(hana, f"{BOARD}/judging", min_isolation="0").status_code == 303
    assert not store.boards.get("transpose").cold


def test_a_submission_is_measured_elsewhere_from_its_page(api: ServedApi, hana: httpx.Client) -> None:
    number = gallery.judged(api.store, "ada", api.now, 0.5)
    path = f"/staff/submissions/{number}"
    assert "<option>local</option>" in hana.get(path).text
    answer = sent(hana, "/staff/shadow", submission=str(number), place="local", then=path)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert api.store.events.audit_log(limit=1)[0].kind == "staff.shadow"
    assert sent(hana, "/staff/shadow", submission=str(number), place="nowhere").status_code == 404
