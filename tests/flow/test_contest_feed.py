"""Boards as contests: the objects of the CLICS Contest API, 2026-01, their feed, and what it keeps from whom.

No package carries that version's schemas, so its rules for these objects are written out here.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.api import contest_feed
from kbslurm.client.http import Client
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store.contests import Contests
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import START, HandClock
from tests.flow.test_board_times import clock, due
from tests.flow.test_pages import judged
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

HOST = {"Authorization": f"Bearer {ADMIN}"}
WAIT_S = 60.0
Line = dict[str, Any]

ID = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,34}[A-Za-z0-9_-])?")
TIME = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d")
RELTIME = re.compile(r"-?([1-9]\d*)?\d:[0-5]\d:[0-5]\d\.\d{3}")
JUDGEMENTS = {"AC", "RE", "WA", "RTE", "TLE", "MLE", "SV", "JE"}
Check = Callable[[Any], bool]


def fits(pattern: re.Pattern[str], *, null: bool = False) -> Check:
    return lambda told: (null and told is None) or (isinstance(told, str) and pattern.fullmatch(told) is not None)


def is_a(*kinds: type) -> Check:
    return lambda told: type(told) in kinds


# Of each type: what must be there, and what may be.
NEEDED: dict[str, dict[str, Check]] = {
    "contest": {
        "id": fits(ID), "name": is_a(str), "duration": fits(RELTIME), "start_time": fits(TIME, null=True),
        "scoreboard_type": lambda told: told == "pass-fail", "penalty_time": fits(RELTIME),
    },
    "judgement-types": {
        "id": lambda told: told in JUDGEMENTS, "name": is_a(str), "solved": is_a(bool), "penalty": is_a(bool),
    },
    "languages": {"id": fits(ID), "name": is_a(str), "entry_point_required": is_a(bool), "extensions": is_a(list)},
    "problems": {
        "id": fits(ID), "label": is_a(str), "name": is_a(str), "ordinal": is_a(int), "test_data_count": is_a(int),
    },
    "teams": {"id": fits(ID), "name": is_a(str), "label": is_a(str)},
    "submissions": {
        "id": fits(ID), "language_id": fits(ID), "problem_id": fits(ID), "team_id": fits(ID), "time": fits(TIME),
        "contest_time": fits(RELTIME), "files": lambda told: told == [],
    },
    "judgements": {
        "id": fits(ID), "submission_id": fits(ID), "judgement_type_id": lambda told: told in JUDGEMENTS,
        "start_time": fits(TIME), "start_contest_time": fits(RELTIME), "end_time": fits(TIME),
        "end_contest_time": fits(RELTIME),
    },
    "state": {
        name: fits(TIME, null=True) for name in ("started", "ended", "frozen", "thawed", "finalized", "end_of_updates")
    },
}  # fmt: skip
ALSO: dict[str, dict[str, Check]] = {
    "contest": {"formal_name": is_a(str), "scoreboard_freeze_duration": fits(RELTIME, null=True)},
    "judgement-types": {"simplified_judgement_type_id": lambda told: told in JUDGEMENTS},
    "judgements": {"kbslurm_score_s": is_a(float, type(None)), "kbslurm_interval_s": is_a(list, type(None))},
}
REFERS = {"language_id": "languages", "problem_id": "problems", "team_id": "teams", "submission_id": "submissions"}


def check(kind: str, told: Any) -> None:
    """An object, or a collection of them, as the specification has it."""
    if isinstance(told, list):
        assert kind not in ("contest", "state")
        for one in told:
            check(kind, one)
        assert len({one["id"] for one in told}) == len(told), (kind, told)
        return
    needed, also = NEEDED[kind], ALSO.get(kind, {})
    assert needed.keys() <= told.keys() <= needed.keys() | also.keys(), (kind, told)
    for name, value in told.items():
        assert {**needed, **also}[name](value), (kind, name, value)


class Mirror:
    """What a program that follows the feed knows, by type and ID; every line is held to the specification."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.token = ""

    def read(self, line: Line) -> None:
        assert line.keys() == {"type", "id", "data", "token"}
        kind, data = line["type"], line["data"]
        check(kind, data)
        self.token = line["token"]
        if line["id"] is not None:
            assert data["id"] == line["id"]
            self.known.setdefault(kind, {})[line["id"]] = data
        else:
            self.known[kind] = {one["id"]: one for one in data} if isinstance(data, list) else {"": data}
        for one in self.known.get(kind, {}).values():
            for name, elsewhere in REFERS.items():
                assert name not in one or one[name] in self.known[elsewhere], (kind, one)

    def verdicts(self) -> dict[str, str]:
        """Names with their judgements, in the order of submission."""
        teams, entered = self.known["teams"], self.known["submissions"]
        return {
            f"{teams[one['team_id']]['name']} {number}": self.known["judgements"]
            .get(number, {})
            .get("judgement_type_id", "-")
            for number, one in entered.items()
        }


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_feed, "PAUSE_S", 0.02)


def key(api: ServedApi, name: str) -> dict[str, str]:
    return {"X-Popcorn-Cli-Id": str(api.client(name).cli_id)}


def get(api: ServedApi, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(f"{api.url}/contests{path}", headers=headers, timeout=WAIT_S)


def so_far(api: ServedApi, headers: dict[str, str] | None = None, since: str = "") -> list[Line]:
    """The feed as it is, without waiting for more."""
    more = f"&since_token={since}" if since else ""
    answer = get(api, f"/transpose/event-feed?stream=false{more}", headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines() if line]


def mirrored(api: ServedApi, headers: dict[str, str] | None = None) -> Mirror:
    mirror = Mirror()
    for line in so_far(api, headers):
        mirror.read(line)
    return mirror


def failed(api: ServedApi, by: str, verdict: str = "wrong") -> int:
    """A submission for the ranking that gets this verdict."""
    clock(api).go(60)
    person = api.store.people.ensure(by)
    receipt = accept(api.store.intake, person.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], api.now)
    slots = free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, api.store.attempts.open())
    attempt = claim(api.store.queue, slots, api.now)
    assert attempt is not None
    report = sealed_report(api.store.attempts.work(attempt.id), verdict=verdict, reason="row 3 differs", score_s=None)
    score(api.store, attempt, report, api.now)
    return receipt.submission_id


@contextmanager
def following(api: ServedApi, headers: dict[str, str] | None = None, since: str = "") -> Iterator[Iterator[str]]:
    more = f"?since_token={since}" if since else ""
    url = f"{api.url}/contests/transpose/event-feed{more}"
    with httpx.stream("GET", url, headers=headers, timeout=WAIT_S) as answer:
        assert answer.status_code == 200
        yield answer.iter_lines()


# ------------------------------------------------------------------------------------------------- what it tells


def test_the_feed_and_the_calls_tell_the_same_as_the_specification_words_it(api: ServedApi) -> None:
    due(api, hours=2)
    first = judged(api, "ada", 0.5)
    second = failed(api, "bea")
    accept(api.store.intake, api.store.people.ensure("ada").id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    lines = so_far(api)
    assert [line["type"] for line in lines] == [
        "contest", "judgement-types", "languages", "problems", "teams", "submissions", "judgements", "state",
    ]  # fmt: skip
    mirror = mirrored(api)
    assert mirror.verdicts() == {f"ada {first}-H100": "AC", f"bea {second}-H100": "RE"}, "a test isn't for the ranking"
    told = mirror.known["judgements"][f"{first}-H100"]
    (place,) = api.store.standings.best("transpose", "H100")
    assert (told["kbslurm_score_s"], told["kbslurm_interval_s"]) == (place.score_s, [place.low_s, place.high_s])
    assert mirror.known["contest"][""]["duration"] == "2:00:00.000"
    assert mirror.known["submissions"][f"{first}-H100"]["contest_time"] == "0:01:00.000"
    assert set(mirror.known["problems"]) == {"H100", "A100"}
    assert "row 3 differs" not in json.dumps(lines) and GOOD.decode() not in json.dumps(lines)

    assert get(api, "").json() == [mirror.known["contest"][""]]
    assert get(api, "/transpose").json() == mirror.known["contest"][""]
    assert get(api, "/TRANSPOSE/state").json() == mirror.known["state"][""]
    for kind in ("judgement-types", "languages", "problems", "teams", "submissions", "judgements"):
        assert {one["id"]: one for one in get(api, f"/transpose/{kind}").json()} == mirror.known[kind], kind
        for number, one in mirror.known[kind].items():
            assert get(api, f"/transpose/{kind}/{number}").json() == one
        assert get(api, f"/transpose/{kind}/nothing").status_code == 404
    access = get(api, "/transpose/access").json()
    offered = {row["type"]: set(row["properties"]) for row in access["endpoints"]}
    assert {line["type"] for line in lines} == set(offered) and access["capabilities"] == []
    for kind, objects in mirror.known.items():
        assert all(set(one) == offered[kind] for one in objects.values()), kind


def test_how_a_submission_failed_is_for_its_author_and_for_hosts(api: ServedApi) -> None:
    for verdict in ("wrong", "violation"):
        failed(api, "ada", verdict)
    for who, found in ((None, ["RE", "RE"]), (key(api, "bea"), ["RE", "RE"]), (key(api, "ada"), ["WA", "SV"])):
        assert list(mirrored(api, who).verdicts().values()) == found
    assert list(mirrored(api, HOST).verdicts().values()) == ["WA", "SV"]


def test_teams_that_count_together_are_one_team_and_ids_say_nothing(api: ServedApi) -> None:
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET teams = true")
    ada, bea = (api.store.people.ensure(name) for name in ("ada", "bea"))
    for person in (ada, bea):
        api.store.people.set_team(person.id, "engine", by="host", now=api.now)
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.6)
    judged(api, "cyd", 0.7)
    mirror = mirrored(api)
    assert sorted(one["name"] for one in mirror.known["teams"].values()) == ["cyd", "engine"]
    assert [key.split()[0] for key in mirror.verdicts()] == ["engine", "engine", "cyd"]
    (other,) = (number for number, one in mirror.known["teams"].items() if one["name"] == "cyd")
    assert len(other) == 16 and not other.isdecimal()


def test_late_ones_are_not_in_it_as_they_do_not_rank(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    judged(api, "ada", 0.5)
    host.set_late("transpose", until=(START + timedelta(days=2)).isoformat(), percent=10, per="hour")
    clock(api).go(2 * 3600)
    late = judged(api, "bea", 0.25)
    assert [one.split()[0] for one in mirrored(api).verdicts()] == ["ada"]
    host.extend("transpose", "person:bea", (api.now + timedelta(hours=1)).isoformat())
    assert f"bea {late}-H100" in mirrored(api).verdicts(), "an extension makes it one in time"


def test_a_contest_goes_from_running_to_final(api: ServedApi, host: Client) -> None:
    due(api, hours=1)
    judged(api, "ada", 0.5)

    def state() -> dict[str, bool]:
        told = get(api, "/transpose/state").json()
        check("state", told)
        return {name: value is not None for name, value in told.items()}

    flags = dict.fromkeys(("started", "frozen", "ended", "thawed", "finalized", "end_of_updates"), False)
    assert state() == {**flags, "started": True}
    host.freeze("transpose")
    assert state() == {**flags, "started": True, "frozen": True}
    clock(api).go(2 * 3600)
    assert state() == {**flags, "started": True, "frozen": True, "ended": True}
    host.unfreeze("transpose")
    host.finalise("transpose")
    done = {"started": True, "ended": True, "finalized": True, "end_of_updates": True}
    assert state() == {**flags, **done}


# ------------------------------------------------------------------------------------------------- what it hides


def test_a_freeze_hides_what_came_after_it_and_its_end_shows_it(api: ServedApi, host: Client) -> None:
    judged(api, "ada", 0.5)
    clock(api).go(5)
    host.freeze("transpose")
    mirror = mirrored(api)
    clock(api).go(5)
    hidden = judged(api, "zoe", 0.123456)
    mine = failed(api, "ada")
    assert len(mirrored(api).verdicts()) == 1
    told = so_far(api, since=mirror.token)
    assert [line["type"] for line in told] == ["state"], "a line for each of them would say that there are some"
    for path in ("teams", "submissions", "judgements", f"submissions/{hidden}-H100", f"judgements/{hidden}-H100"):
        text = get(api, f"/transpose/{path}").text
        assert "zoe" not in text and "123456" not in text and f'"{hidden}-H100"' not in text, path
    assert get(api, f"/transpose/judgements/{hidden}-H100").status_code == 404
    assert set(mirrored(api, key(api, "zoe")).verdicts()) - set(mirror.verdicts()) == {f"zoe {hidden}-H100"}
    assert set(mirrored(api, key(api, "ada")).verdicts()) - set(mirror.verdicts()) == {f"ada {mine}-H100"}
    assert len(mirrored(api, HOST).verdicts()) == 3

    host.unfreeze("transpose")
    for line in so_far(api, since=mirror.token):
        mirror.read(line)
    assert mirror.known == mirrored(api).known and f"zoe {hidden}-H100" in mirror.verdicts()


@pytest.mark.parametrize(
    "hides", ["names = 'anonymous'", "names = 'nicknames'", "standings = 'own'", "standings = 'hidden'"]
)
def test_a_board_that_hides_names_or_standings_tells_only_ones_own(api: ServedApi, hides: str) -> None:
    mine = judged(api, "ada", 0.5)
    judged(api, "zoe", 0.123456)
    with api.store._pool.statement() as connection:
        connection.execute(f"UPDATE leaderboard SET {hides}".encode())
    for who in (None, key(api, "ada")):
        text = json.dumps(so_far(api, who))
        assert "zoe" not in text and "123456" not in text
        assert list(mirrored(api, who).verdicts()) == ([] if who is None else [f"ada {mine}-H100"])
        for path in ("teams", "submissions", "judgements"):
            assert len(get(api, f"/transpose/{path}", who).json()) == (who is not None), path
    assert len(mirrored(api, HOST).verdicts()) == 2


def test_a_private_board_is_no_contest_for_others(api: ServedApi, host: Client) -> None:
    judged(api, "ada", 0.5)
    code = api.store.invites.make(["transpose"], 1, by="host", now=api.now)[1][0]
    api.store.invites.claim(code, api.store.people.ensure("ada").id, now=api.now)
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    paths = ["", "/state", "/access", "/teams", "/submissions", "/judgements", "/problems", "/event-feed?stream=false"]
    for path in paths:
        for who in (None, key(api, "eve"), {"Authorization": "Bearer nonsense"}):
            answer, missing = get(api, f"/transpose{path}", who), get(api, f"/nothing{path}", who)
            assert answer.status_code == missing.status_code == 404, path
            assert answer.text == missing.text.replace("nothing", "transpose")
        for who in (key(api, "ada"), HOST):
            assert get(api, f"/transpose{path}", who).status_code == 200, path
    assert get(api, "").json() == []
    assert len(get(api, "", key(api, "ada")).json()) == len(get(api, "", HOST).json()) == 1


def test_names_that_are_no_ids_of_the_specification_get_others_that_tell_nothing(api: ServedApi) -> None:
    problem, name = api.store.boards.get("transpose").problem, "a" * 40
    board = api.store.boards.add(name, problem, gpus=["H100", "RTX-6000-Ada-Generation"], now=api.now)
    path = f"/_{board.id}"
    assert get(api, path).json()["id"] == path[1:] and get(api, f"/{name}").json() == get(api, path).json()
    problems = get(api, f"{path}/problems").json()
    check("problems", problems)
    assert [one["label"] for one in problems] == ["H100", "RTX-6000-Ada-Generation"]
    api.store.boards.set_visibility(name, "closed", by="host", now=api.now)
    assert get(api, path).text == get(api, "/_999").text.replace("_999", path[1:])
    assert get(api, path, HOST).status_code == 200


def test_whoever_is_banned_or_takes_something_back_disappears_at_the_reader(api: ServedApi) -> None:
    kept, back = judged(api, "ada", 0.5), judged(api, "ada", 0.6)
    judged(api, "eve", 0.4)
    mirror = mirrored(api)
    eve, ada = api.store.people.ensure("eve"), api.store.people.ensure("ada")
    api.store.people.ban(eve.id, by="host", reason="", now=api.now)
    remove(api.store.submissions, back, ada.id, "ada", api.now)  # type: ignore[arg-type]
    for line in so_far(api, since=mirror.token):
        mirror.read(line)
    assert mirror.verdicts() == {f"ada {kept}-H100": "AC"}
    assert [one["name"] for one in mirror.known["teams"].values()] == ["ada"]


# ------------------------------------------------------------------------------------------------- how it goes on


def test_what_happens_comes_as_it_does_and_a_token_leads_on_from_there(api: ServedApi) -> None:
    mirror = Mirror()

    def until(lines: Iterator[str], so: Callable[[], bool]) -> None:
        while not so():
            line = next(lines)
            if line:
                mirror.read(json.loads(line))

    with following(api) as lines:
        until(lines, lambda: "state" in mirror.known)
        person = api.store.people.ensure("ada")
        receipt = accept(api.store.intake, person.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], api.now)
        number = f"{receipt.submission_id}-H100"
        until(lines, lambda: number in mirror.known["submissions"])
        assert mirror.verdicts() == {f"ada {number}": "-"}, "told before there is a verdict"
        slots = free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, api.store.attempts.open())
        attempt = claim(api.store.queue, slots, api.now)
        assert attempt is not None
        score(api.store, attempt, sealed_report(api.store.attempts.work(attempt.id)), api.now)
        until(lines, lambda: number in mirror.known["judgements"])
    later = judged(api, "bea", 0.4)
    missed = so_far(api, since=mirror.token)
    assert {line["id"] for line in missed if line["type"] == "submissions"} == {f"{later}-H100"}, "only what is new"
    for line in missed:
        mirror.read(line)
    assert mirror.known == mirrored(api).known
    assert [line["type"] for line in so_far(api, since=mirror.token)] == ["state"]


@pytest.mark.parametrize("token", ["c999999999", "e1", "c-1", "nonsense", "c"])
def test_a_token_that_is_none_of_this_feeds_is_refused(api: ServedApi, token: str) -> None:
    answer = get(api, f"/transpose/event-feed?since_token={token}")
    assert answer.status_code == 400
    assert answer.json()["detail"] == f"'{token}' isn't a token of this feed. Start again without since_token."


def test_a_feed_of_several_pages_misses_nothing(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [judged(api, name, 0.5) for name in ("ada", "bea", "ada", "cyd", "bea")]
    for page in (1, 2, 5):
        monkeypatch.setattr(contest_feed, "PAGE", page)
        assert [int(one.split()[1].removesuffix("-H100")) for one in mirrored(api).verdicts()] == numbers


def test_a_stream_ends_when_its_reader_may_no_longer_see_the_board(api: ServedApi) -> None:
    api.store.people.ensure("ada")
    for who in (None, key(api, "ada")):
        api.store.boards.set_visibility("transpose", "public", by="host", now=api.now)
        with following(api, who) as lines:
            while '"state"' not in next(lines):
                pass
            api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
            assert not [line for line in lines if line], "the stream is over, without another word"


def test_a_quiet_feed_is_kept_alive_and_tells_nothing_by_it(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest_feed, "HEARTBEAT_S", 0.2)
    with following(api, since=mirrored(api).token) as lines:
        assert [next(lines) == "" for _ in range(4)] == [True, False, True, True]
    monkeypatch.setattr(contest_feed, "HEARTBEAT_S", 3600.0)
    looked, looks = threading.Event(), Contests.changed

    def changed(self: Contests, *told: Any) -> Any:
        try:
            return looks(self, *told)
        finally:
            looked.set()

    monkeypatch.setattr(Contests, "changed", changed)
    api.store.boards.add("other", api.store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    with following(api, since=mirrored(api).token) as lines:
        assert (next(lines), json.loads(next(lines))["type"]) == ("", "state")
        looked.clear()
        api.store.events.audit("host", "waved", "nobody", now=api.now)
        assert looked.wait(WAIT_S)
        judged(api, "ada", 0.5)
        assert json.loads(next(lines))["type"] == "teams", "no line for what wasn't for it"


def test_readers_who_see_the_same_are_answered_by_one_look_and_none_holds_a_connection(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, find = [], contest_feed.ContestFeed._news

    def news(self: Any, *told: Any) -> Any:
        looks.append(told[0])
        return find(self, *told)

    monkeypatch.setattr(contest_feed.ContestFeed, "_news", news)
    readers, ready, done = 24, threading.Barrier(25), []

    def read() -> None:
        with following(api) as lines:
            while '"state"' not in next(lines):
                pass
            ready.wait(WAIT_S)
            for line in lines:
                if '"submissions"' in line:
                    done.append(line)
                    return

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    ready.wait(WAIT_S)
    with api.store._pool.statement() as connection:
        used = connection.execute(
            b"SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
        ).fetchone()
    assert used is not None and used["n"] <= 3, "as many streams wait as there are readers, on no connection"
    looks.clear()
    judged(api, "ada", 0.5)
    for thread in threads:
        thread.join(WAIT_S)
    assert len(done) == readers and len(set(done)) <= 4
    assert len(looks) < 3 * readers, "each event wakes all, and they share what is looked up"
