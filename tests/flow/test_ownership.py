"""What belongs to somebody else stays theirs: every route, asked for things that exist, by everybody who may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api.sessions import SESSION
from kbslurm.domain.run import SubmissionId
from tests.flow.stage import HandClock
from tests.flow.test_audit import calls
from tests.flow.test_roles import NAMES, WHO, names_of, routes_of
from tests.fuzz.requests import GOOD
from tests.fuzz.world import ADAS, BOT, World
from tests.popcorn.served_api import ServedApi, served

PATIENCE_S = 120.0
TO_SIGN_IN = 401  # as a call would be refused
# Only ada's, whatever one's rights are.
OWN = """
    GET /user/submissions/{submission_id}
    GET /user/submissions/{submission_id}/whole
    GET /user/submissions/{submission_id}/places
    GET /user/submissions/{submission_id}/artifacts
    GET /user/submissions/{submission_id}/artifacts/{gpu}/{name}
    GET /jobs/{job_id}
    GET /jobs/{job_id}/artifacts/{gpu}/{index}
    GET /s/{submission_id}
    GET /s/{submission_id}.json
    GET /s/{submission_id}.csv
    GET /s/{submission_id}/diff/{other_id}.json
    GET /s/{submission_id}/diff/{other_id}.csv
    GET /s/{submission_id}/diff/{other_id}
    GET /s/{submission_id}/artifacts/{gpu}/{name}
    GET /live/-/s/{submission_id}
    POST /s/{submission_id}/cancel
"""
# Hers and staff's.
AND_STAFFS = """
    GET /user/runs/{run_id}/why
    GET /user/submissions/{submission_id}/why
    GET /announcements/{leaderboard}
    GET /gpus/{leaderboard}
    GET /submissions/{leaderboard}/{gpu}
    GET /submission_count/{leaderboard}/{gpu}
    GET /code/{leaderboard}/{gpu}
    GET /board/{leaderboard}/{gpu}/code
    PUT /user/consent/{leaderboard}
    POST /problem/{leaderboard}/consent
    GET /contests/{leaderboard}
    GET /contests/{leaderboard}/state
    GET /contests/{leaderboard}/access
    GET /contests/{leaderboard}/judgement-types
    GET /contests/{leaderboard}/languages
    GET /contests/{leaderboard}/problems
    GET /contests/{leaderboard}/teams
    GET /contests/{leaderboard}/submissions
    GET /contests/{leaderboard}/judgements
    GET /contests/{leaderboard}/event-feed
    GET /contests/{leaderboard}/problems/{object_id}
    GET /board/{leaderboard}
    GET /board/{leaderboard}/{gpu}
    GET /board/{leaderboard}/{gpu}.json
    GET /board/{leaderboard}/{gpu}.csv
    GET /board/{leaderboard}/{gpu}/records.json
    GET /board/{leaderboard}/{gpu}/code.json
    GET /board/{leaderboard}/{gpu}/code.csv
    GET /problem/{leaderboard}/cases.json
    GET /problem/{leaderboard}/cases.csv
    GET /board/{leaderboard}/{gpu}/final.json
    GET /board/{leaderboard}/{gpu}/final.csv
    GET /board/{leaderboard}/{gpu}/practice.json
    GET /board/{leaderboard}/{gpu}/practice.csv
    GET /board/{leaderboard}/{gpu}/records.csv
    GET /problem/{leaderboard}
    GET /problem/{leaderboard}/template/{language}
    GET /problem/{leaderboard}/submit
    GET /live/{leaderboard}
    GET /user/standing/{leaderboard}
    PUT /user/nickname/{leaderboard}
    POST /user/submissions/{submission_id}/cancel
    POST /user/questions
    POST /questions
    POST /user/submissions
    POST /profile
    POST /problem/{leaderboard}/submit
    POST /problem/{leaderboard}/nickname
    POST /submission/{leaderboard}/{gpu}/{mode}
"""
# Nobody's, of a private board: these are for whoever follows a link.
NOBODYS = """
    GET /board/{leaderboard}/{gpu}/picture.png
    GET /embed/board/{leaderboard}/{gpu}
"""
TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    " AND table_name <> ALL (ARRAY['token', 'used_state', 'alembic_version']) ORDER BY 1"
)


def listed(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


class Existing:
    """A service with ada's things in it, and everybody's ways to ask for them."""

    def __init__(self, api: ServedApi, folder: Path) -> None:
        (folder / "world").mkdir()
        self.api, self.world = api, World(api, folder / "world")
        self.world.settle()
        self.known = self.world.tend()
        self.sent = {name: told for name, told in calls(api, folder).items() if not name.startswith("GET")}
        with psycopg.connect(api.store.url) as connection:
            connection.execute(
                "INSERT INTO artifact (attempt_id, name, data, at)"
                " SELECT attempt_id, 'benchmark-0.' || name, data, at FROM artifact"
            )
            claimed = connection.execute("SELECT code FROM invite WHERE person_id = %s", (self.world.people["ada"],))
            (code,) = claimed.fetchone() or ("",)
        (run,) = api.store.submissions.get(SubmissionId(self.world.numbers["private"])).runs
        profile = str(self.world.numbers["profiled"])
        self.names = {
            **NAMES, "leaderboard": "vault", "user_id": "ada", "run_id": str(run.id), "submission_id": profile,
            "other_id": profile, "job_id": profile, "act": "ban", "question_id": str(self.world.question),
            "name": "functions.json", "language": "Python", "problem": "transpose", "code": code,
            "object_id": "H100",
        }  # fmt: skip
        upload = {"files": {"file": ("k.py", GOOD)}}
        self.bodies: dict[str, dict[str, Any]] = {
            "POST /user/join": {"json": {"code": code}},
            "POST /user/questions": {"json": {"text": "Why?", "leaderboard": "vault"}},
            "POST /questions": {"data": {"text": "Why?", "board": "vault"}},
            "PUT /user/consent/{leaderboard}": {"json": {"consents": True}},
            "PUT /user/nickname/{leaderboard}": {"json": {"nickname": None}},
            "POST /problem/{leaderboard}/nickname": {"data": {"nickname": ""}},
            "POST /user/submissions": {**upload, "params": {"leaderboard": "vault", "gpu": "H100", "mode": "test"}},
            "POST /submission/{leaderboard}/{gpu}/{mode}": upload,
            "POST /profile": {**upload, "data": {"leaderboard": "vault"}},
            "POST /{leaderboard}/{gpu}/{mode}": upload,
            "POST /problem/{leaderboard}/submit": {**upload, "data": {"gpu": "H100", "mode": "test"}},
            "POST /staff/{act}": {"data": {"person": "ada", "confirmed": "yes"}},
        }

    def shown(self, name: str) -> Iterator[tuple[str, dict[str, str]]]:
        """How they can say who they are, with fresh tokens: some calls end them."""
        if name == "nobody":
            yield "none", {}
            return
        issue, person, now = self.api.store.tokens.issue, self.world.people[name], self.api.now
        yield "person", {"X-Popcorn-Cli-Id": issue(person, now=now)}
        yield "host", {"Authorization": f"Bearer {issue(person, now=now)}"}
        yield "acting", {"X-Popcorn-Cli-Id": issue(person, now=now), "X-Kbslurm-Acting-For": "person:ada"}
        bearer = {"Authorization": f"Bearer {issue(person, now=now)}"}
        yield "acting host", {**bearer, "X-Kbslurm-Acting-For": "person:ada"}
        yield "page", {"Cookie": f"{SESSION}={issue(person, kind='web', now=now)}"}

    def asks(self, http: httpx.Client, route: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """The status, and the body or, of a stream, its beginning."""
        method, _, path = route.partition(" ")
        sent: dict[str, Any] = {}
        if route in self.sent:
            path, told = self.sent[route]
            sent = dict(told)
        elif method != "GET":
            sent = dict(self.bodies.get(route, {"json": {}} if WHO[route] in ("host", "person") else {"data": {}}))
        if "data" in sent:
            sent["data"] = {**sent["data"], "csrf": self._csrf(headers)}
        for name, value in self.names.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, path
        with http.stream(method, path, headers=dict(headers), **sent) as answer:
            kind, where = answer.headers.get("content-type", ""), answer.headers.get("location", "")
            if where.startswith("/login?next="):
                return TO_SIGN_IN, where
            if kind.startswith(("text/event-stream", "application/x-ndjson")):
                return answer.status_code, next(answer.iter_text(), "")
            return answer.status_code, answer.read().decode(errors="replace")

    def _csrf(self, headers: Mapping[str, str]) -> str:
        from kbslurm.api.pages.visitors import Visitors

        class Browser:
            cookies: Mapping[str, str] = {SESSION: headers.get("Cookie", "").partition("=")[2]}

        return Visitors(self.api.context).csrf(Browser())  # type: ignore[arg-type]

    def stored(self) -> dict[str, str]:
        """What each table holds, as a checksum; without the tokens, which everybody makes for themselves."""
        with psycopg.connect(self.api.store.url) as connection:
            return {
                name: str(
                    connection.execute(
                        f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {name} t".encode()
                    ).fetchone()
                )
                for (name,) in connection.execute(TABLES.encode()).fetchall()
            }


@pytest.fixture
def existing(database_url: str, tmp_path: Path) -> Iterator[Existing]:
    with served(database_url, tmp_path / "service", clock=HandClock(), boards=False, bot=BOT) as api:
        yield Existing(api, tmp_path)


def test_nobody_reads_or_changes_what_exists_of_others(existing: Existing) -> None:
    """Each call as well-formed as its owner's or a host's would be, for the same things."""
    routes = sorted({name for route in routes_of(existing.api) for name in names_of(route)})
    secrets = [one for one in existing.world.secrets(existing.known) if one.readers <= ADAS]
    before, seen, wrong = existing.stored(), dict[tuple[str, str, str], int](), list[str]()
    with httpx.Client(base_url=existing.api.url, timeout=PATIENCE_S) as http:
        for who in ("nobody", "eve", "mallory", "hal"):
            for route in routes:
                for by, headers in existing.shown(who):
                    status, text = existing.asks(http, route, headers)
                    seen[who, route, by] = status
                    wrong += [f"{who} by {by}, {route}: {one.what}" for one in secrets if one.text in text]
            after = existing.stored()
            wrong += [f"{who} changed {table}" for table in before if before[table] != after[table]]
            before = after
        for route in listed(OWN) | listed(AND_STAFFS) | listed(NOBODYS):
            given = {status for (_, asked, _), status in seen.items() if asked == route}
            wrong += [f"{route}: {status}" for status in given if status not in (400, 401, 403, 404)]
    assert not wrong, "\n".join(wrong)


def test_those_whose_it_is_and_hosts_do_get_it(existing: Existing) -> None:
    """Otherwise the walk above would show nothing: the same requests, by those who may."""
    found: dict[str, set[str]] = {"ada": set(), "grace": set()}
    texts = {"ada": "", "grace": ""}
    with httpx.Client(base_url=existing.api.url, timeout=PATIENCE_S) as http:
        for who in found:
            for route in sorted(listed(OWN) | listed(AND_STAFFS) | listed(NOBODYS)):
                for by, headers in existing.shown(who):
                    if "acting" in by:
                        continue
                    status, text = existing.asks(http, route, headers)
                    if status < 400:
                        found[who].add(route)
                        texts[who] += text
        hosts = [route for route in existing.sent if WHO[route] == "host"]
        (headers,) = [headers for by, headers in existing.shown("grace") if by == "host"]
        refused = {route: existing.asks(http, route, headers)[0] for route in hosts}
    assert found["ada"] == listed(OWN) | listed(AND_STAFFS)
    assert found["grace"] == listed(AND_STAFFS)
    told = {one.what for one in existing.world.secrets(existing.known) if one.text in texts["ada"]}
    assert told >= {"ada's source", "a profile's file", "a private board"}, told
    only_owners = {route for route, status in refused.items() if status != 200}
    assert not only_owners, {route: refused[route] for route in only_owners}
