"""Published code: the one rule, every outlet of code, and consent that is given and taken back, every way."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api.sessions import SESSION
from kbslurm.client.http import Client
from kbslurm.domain.access import CodeRule, may_read_code
from kbslurm.errors import KbslurmError, NotFound
from tests.command_line import CommandLine
from tests.flow.stage import START, HandClock
from tests.flow.test_board_times import clock, due
from tests.flow.test_pages import browsing, csrf, judged
from tests.flow.test_roles import NAMES, names_of, routes_of
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

TEXT = GOOD.decode()
CODE = "/code/transpose/H100"
# Every way to read somebody else's code: without being a host, and as one.
OUTLETS = {
    "GET /code/{leaderboard}/{gpu}/{submission_id}",
    "GET /board/{leaderboard}/{gpu}/code/{submission_id}",
}
HOSTS_OUTLETS = {
    "GET /admin/submissions/{submission_id}",
    "GET /admin/submissions/{submission_id}/similar/{other_id}",
    "GET /staff/submissions/{submission_id}",
    "GET /staff/submissions/{submission_id}/triage",
}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def listed(api: ServedApi, **headers: str) -> Any:
    return httpx.get(f"{api.url}{CODE}", headers=headers, timeout=60).json()


def names(api: ServedApi) -> list[str]:
    """Whose code is published; the board's page leads to just that."""
    found = listed(api)["published"]
    clock(api).go(2)  # a board's page is as much as a second old
    page = httpx.get(f"{api.url}/board/transpose/H100").text
    assert re.findall(r'href="/board/transpose/H100/code/(\d+)"', page) == [str(one["submission"]) for one in found]
    return [one["person"] for one in found]


@pytest.mark.parametrize("has_agreed", [False, True])
@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("rule", ["never", "deadline", "consent"])
def test_the_rule(rule: CodeRule, is_over: bool, has_agreed: bool) -> None:
    hour = timedelta(hours=1)

    def may(announced_at: datetime | None = START, frozen_at: datetime | None = None) -> bool:
        return may_read_code(
            rule, is_over=is_over, has_agreed=has_agreed, announced_at=announced_at, accepted_at=START + hour,
            frozen_at=frozen_at,
        )  # fmt: skip

    assert may() is (is_over and rule != "never" and (rule == "deadline" or has_agreed))
    assert may(announced_at=START + 2 * hour) is (is_over and rule != "never" and has_agreed)
    assert may(frozen_at=START) is False
    assert may(frozen_at=START + hour) is may()


def test_code_is_published_once_the_board_is_over_and_only_under_its_rule(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    early = judged(api, "ada", 0.5)
    assert names(api) == [] and listed(api)["in_words"] == "Code on this board isn't published."
    clock(api).go(60)
    host.set_code_rule("transpose", "deadline", "MIT")
    late = judged(api, "bea", 0.4)
    assert names(api) == [], "people still submit"
    clock(api).go(2 * 3600)
    assert names(api) == ["bea"], "ada submitted before it was announced"
    told = httpx.get(f"{api.url}{CODE}/{late}").json()
    assert told["files"] == [{"name": "submission.py", "text": TEXT}] and told["licence"] == "MIT"
    assert httpx.get(f"{api.url}{CODE}/{early}").status_code == 404
    with Client(api.url, token=api.client("ada").cli_id) as ada:
        assert ada.consent("transpose", consents=True)["consents"] is True
        assert names(api) == ["bea", "ada"]
        ada.consent("transpose", consents=False)
        assert names(api) == ["bea"]
        ada.consent("transpose", consents=True)
    host.extend("transpose", "person:ada", (api.now + timedelta(hours=1)).isoformat())
    assert names(api) == [], "ada may submit again"
    clock(api).go(2 * 3600)
    assert names(api) == ["bea", "ada"]
    host.set_code_rule("transpose", "consent")
    assert names(api) == ["ada"] and listed(api)["licence"] == "MIT"
    host.delete_user("ada")
    assert names(api) == []
    host.set_code_rule("transpose", "never")
    assert names(api) == []
    acts = [entry["act"] for entry in host.audit(limit=50)]
    assert acts.count("code") == 3
    with psycopg.connect(api.store.url) as connection:
        assert connection.execute("SELECT count(*) FROM code_consent").fetchone() == (0,)


def test_a_freeze_and_what_was_taken_back_hide_code(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    host.set_code_rule("transpose", "deadline", "")
    first = judged(api, "ada", 0.5)
    host.freeze("transpose", None)
    second = judged(api, "bea", 0.4)
    clock(api).go(2 * 3600)
    assert names(api) == ["ada"] and httpx.get(f"{api.url}{CODE}/{second}").status_code == 404
    host.unfreeze("transpose")
    assert names(api) == ["bea", "ada"]
    host.delete_any(first)
    assert names(api) == ["bea"] and httpx.get(f"{api.url}{CODE}/{first}").status_code == 404
    host.set_visibility("transpose", "closed")
    assert httpx.get(f"{api.url}{CODE}").status_code == 404, "nor may anybody see the board"
    assert httpx.get(f"{api.url}{CODE}/{second}").status_code == 404


@pytest.mark.parametrize("said", [{"names": "anonymous"}, {"standings": "hidden"}])
def test_where_people_or_places_are_hidden_no_code_is_published(
    api: ServedApi, host: Client, said: dict[str, Any]
) -> None:
    """It tells whose it is; and the numbers that others see there aren't those of submissions."""
    due(api, hours=1)
    host.set_code_rule("transpose", "deadline", "")
    first = judged(api, "ada", 0.5)
    clock(api).go(2 * 3600)
    assert names(api) == ["ada"]
    host.edit_board("transpose", **said)
    assert names(api) == [] and "as long as names or standings are hidden" in listed(api)["in_words"]
    assert httpx.get(f"{api.url}{CODE}/{first}").status_code == 404
    host.edit_board("transpose", names="real", standings="shown")
    assert names(api) == ["ada"]


def test_no_other_outlet_shows_anybodys_code(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    host.set_code_rule("transpose", "deadline", "MIT")
    number, other = judged(api, "ada", 0.5), judged(api, "bea", 0.4)
    marker = TEXT.strip().splitlines()[-1].strip()
    eve, hana = api.store.people.ensure("eve"), api.store.people.ensure("hana", "staff")
    values = {
        **NAMES,
        "leaderboard": "transpose",
        "submission_id": str(number),
        "other_id": str(other),
        "problem": "transpose",
    }

    def shown(headers: dict[str, str]) -> set[str]:
        found = set()
        with httpx.Client(base_url=api.url, timeout=120, headers=headers) as http:
            for route in routes_of(api):
                for name in names_of(route):
                    path = name.partition(" ")[2]
                    if not name.startswith("GET ") or path.startswith("/live/") or path == "/events":
                        continue
                    for known, value in values.items():
                        path = path.replace(f"{{{known}}}", value)
                    asked = {"stream": "false"} if path.endswith("/event-feed") else {}
                    asked = {"from": str(number)} if path.endswith("/submit") else asked
                    text = http.get(path, params=asked).text
                    if marker in html.unescape(text) or marker in html.unescape(re.sub("<[^>]*>", "", text)):
                        found.add(name)
        return found

    def ways(person: int) -> Iterator[dict[str, str]]:
        yield {"X-Popcorn-Cli-Id": api.store.tokens.issue(person, now=api.now)}  # type: ignore[arg-type]
        yield {"Authorization": f"Bearer {api.store.tokens.issue(person, now=api.now)}"}  # type: ignore[arg-type]
        yield {"Cookie": f"{SESSION}={api.store.tokens.issue(person, kind='web', now=api.now)}"}  # type: ignore[arg-type]

    for headers in ({}, *ways(eve.id)):
        assert shown(headers) == set(), headers
    clock(api).go(2 * 3600)
    for headers in ({}, *ways(eve.id)):
        assert shown(headers) == OUTLETS, headers
    host.set_code_rule("transpose", "never")
    assert shown({}) == set()
    as_host = set().union(*map(shown, ways(hana.id)))
    assert as_host == HOSTS_OUTLETS


def test_the_commands_work_in_the_database_and_over_http(
    api: ServedApi, host: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(api, hours=1)
    steering = f"{TEXT}# \x1b]0;owned\x07\x1b[2J\n"
    monkeypatch.setattr("tests.flow.test_pages.GOOD", steering.encode())
    number = judged(api, "ada", 0.5)
    clock(api).go(2 * 3600)
    api.store.people.ensure("hana", "staff")
    api.store.boards.close("transpose", by="host", now=START)  # over by the commands' own clock, too
    for turn, (env, more) in enumerate(
        (
            ({"DATABASE_URL": api.store.url}, ("--as", "ada")),
            ({"KBSLURM_URL": api.url}, ()),
        )
    ):
        theirs, mine = dict(env), dict(env)
        if "KBSLURM_URL" in env:
            theirs["KBSLURM_TOKEN"] = api.store.tokens.issue(api.store.people.ensure("hana").id, now=api.now)
            mine["KBSLURM_TOKEN"] = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
        kbslurm, ada = CommandLine(cwd=tmp_path, env=theirs), CommandLine(cwd=tmp_path, env=mine)
        told = kbslurm("board", "code", "transpose", "consent", "--licence", "MIT")
        assert told.code == 0 and "who agrees" in told.out and "MIT" in told.out, told.err
        assert kbslurm("board", "code", "transpose", "--json").json()["rule"] == "consent"
        assert "didn't agree" in ada("code", "transpose", *more).out
        assert ada("code", "transpose", "--agree", "--json", *more).json()["consents"] is True
        told = ada("code", "transpose", *more)
        assert f"#{number}" in told.out and "You agreed" in told.out, told.err
        told = ada("code", "transpose", str(number), "--gpu", "h100", *more)
        assert told.code == 0 and told.out.startswith(TEXT) and "MIT" in told.err, (turn, told.err)
        assert "owned" in told.out and not {"\x1b", "\x07"} & set(told.out), "nothing of it steers a reader's terminal"
        told = ada("code", "transpose", str(number), "--json", *more).json()
        assert told["person"] == "ada" and told["files"][0]["text"] == steering
        assert ada("code", "transpose", "--take-back", *more).code == 0
        assert ada("code", "transpose", str(number), *more).code == 2
        for words in (("sometimes",), ("--licence", "MIT")):
            assert kbslurm("board", "code", "transpose", *words).code == 2
        assert ada("code", "transpose", "1", "--agree", *more).code == 2


def test_the_pages_and_who_may_set_the_rule(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    number = judged(api, "ada", 0.5)
    with browsing(api, "hana", "staff") as hana, browsing(api, "ada") as ada, browsing(api) as nobody:
        assert "Publishing code" not in ada.get("/problem/transpose").text
        token = csrf(hana.get("/staff/board/transpose").text)
        form = {"csrf": token, "rule": "consent", "licence": "<b>mine</b>"}
        assert hana.post("/staff/board/transpose/code", data=form).status_code == 303
        assert hana.post("/staff/board/transpose/code", data={**form, "rule": "x"}).status_code == 400
        assert host.audit(limit=1)[0]["by"] == "hana"
        page = ada.get("/problem/transpose").text
        assert "Agree that my code here is published" in page and "<b>mine" not in page
        assert ada.post("/problem/transpose/consent", data={"csrf": csrf(page), "consents": "yes"}).status_code == 303
        assert (
            "Take back" in ada.get("/problem/transpose").text
            and "Agree that" not in nobody.get("/problem/transpose").text
        )
        assert "Nobody&#39;s is yet" in nobody.get("/board/transpose/H100/code").text
        clock(api).go(2 * 3600)
        assert f"/board/transpose/H100/code/{number}" in nobody.get("/board/transpose/H100/code").text
        page = nobody.get(f"/board/transpose/H100/code/{number}").text
        assert "&lt;b&gt;mine" in page and "<b>mine" not in page and "k.py" not in page
        assert nobody.post("/problem/transpose/consent", data={"consents": "yes"}).status_code in (401, 403)
    api.store.people.ensure("tom")
    host.set_board_role("transpose", "tom", "assistant")
    with Client(api.url, admin=api.store.tokens.issue(api.store.people.ensure("tom").id, now=api.now)) as tom:
        assert tom.code_rule("transpose")["rule"] == "consent"
        with pytest.raises(KbslurmError, match="owner"):
            tom.set_code_rule("transpose", "deadline")
    with pytest.raises(NotFound):
        host.set_code_rule("nowhere", "deadline")
