"""Who may make which call: everybody walks every route that the app has, and one that isn't listed here fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from kbslurm.api.app import create_app
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.sessions import SESSION
from kbslurm.store.views import Person
from tests.popcorn.served_api import ServedApi, served

PATIENCE_S = 120.0
# `person` calls know their caller by a token, `host` calls by a bearer, pages by a session; none takes another's.
MAY: Mapping[str, str] = {
    "anyone": """
        GET /health
        GET /leaderboards
        GET /gpus/{leaderboard}
        GET /runner_queue/{gpu}
        GET /submissions/{leaderboard}/{gpu}
        GET /final/{leaderboard}/{gpu}
        GET /code/{leaderboard}/{gpu}
        GET /code/{leaderboard}/{gpu}/{submission_id}
        GET /submission_count/{leaderboard}/{gpu}
        GET /announcements/{leaderboard}
        GET /contests
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
        GET /contests/{leaderboard}/judgement-types/{object_id}
        GET /contests/{leaderboard}/languages/{object_id}
        GET /contests/{leaderboard}/problems/{object_id}
        GET /contests/{leaderboard}/teams/{object_id}
        GET /contests/{leaderboard}/submissions/{object_id}
        GET /contests/{leaderboard}/judgements/{object_id}
        GET /auth/init
        GET /auth/login/{provider}
        GET /auth/callback/{provider}
        POST /auth/logout
        GET /
        GET /board/{leaderboard}
        GET /boards.json
        GET /boards.csv
        GET /board/{leaderboard}/{gpu}
        GET /board/{leaderboard}/{gpu}/hall
        GET /board/{leaderboard}/{gpu}.json
        GET /board/{leaderboard}/{gpu}.csv
        GET /board/{leaderboard}/{gpu}/records.json
        GET /board/{leaderboard}/{gpu}/code.csv
        GET /board/{leaderboard}/{gpu}/code.json
        GET /compare.csv
        GET /compare.json
        GET /person/{whose}/places.csv
        GET /person/{whose}/places.json
        GET /problem/{leaderboard}/cases.csv
        GET /problem/{leaderboard}/cases.json
        GET /board/{leaderboard}/{gpu}/final.json
        GET /board/{leaderboard}/{gpu}/final.csv
        GET /board/{leaderboard}/{gpu}/practice.json
        GET /board/{leaderboard}/{gpu}/practice.csv
        GET /board/{leaderboard}/{gpu}/records.csv
        GET /board/{leaderboard}/{gpu}/picture.png
        GET /embed/board/{leaderboard}/{gpu}
        GET /board/{leaderboard}/{gpu}/code
        GET /board/{leaderboard}/{gpu}/code/{submission_id}
        GET /problem/{leaderboard}
        GET /leaderboards/{leaderboard}/problem
        GET /problem/{leaderboard}/template/{language}
        GET /static/{name}
        GET /favicon.ico
        GET /design
        GET /compare
        GET /person/{whose}
        GET /login
        POST /login
        GET /join/{code}
        POST /join/{code}
        POST /user/invitation
        POST /logout
        GET /live/{leaderboard}
        GET /live/-/front
        GET /openapi.json
    """,
    "person": """
        GET /user/questions
        POST /user/questions
        GET /user/submissions
        GET /user/submissions/{submission_id}
        GET /user/submissions/{submission_id}/whole
        GET /user/runs/{run_id}/why
        GET /user/submissions/{submission_id}/why
        DELETE /user/submissions/{submission_id}
        POST /user/submissions/{submission_id}/cancel
        GET /user/me
        POST /user/logout
        POST /user/join
        PUT /user/consent/{leaderboard}
        GET /user/submissions/{submission_id}/artifacts
        GET /user/submissions/{submission_id}/artifacts/{gpu}/{name}
        POST /user/submissions
        POST /profile
        GET /jobs/{job_id}
        GET /jobs/{job_id}/artifacts/{gpu}/{index}
        GET /user/places
        GET /user/standing/{leaderboard}
        GET /user/submissions/{submission_id}/places
        PUT /user/nickname/{leaderboard}
        POST /submission/{leaderboard}/{gpu}/{mode}
        POST /{leaderboard}/{gpu}/{mode}
    """,
    "host": """
        GET /admin/submissions/{submission_id}/artifacts
        GET /admin/submissions/{submission_id}/artifacts/{gpu}/{name}
        POST /admin/start
        POST /admin/stop
        GET /admin/stats
        GET /admin/usage
        GET /admin/status
        GET /admin/overview
        GET /admin/audit
        POST /admin/update-problems
        GET /admin/questions
        GET /admin/questions/{question_id}
        POST /admin/questions/{question_id}/answer
        POST /admin/questions/{question_id}/close
        GET /admin/questions/{question_id}/rejudge-estimate
        POST /admin/questions/{question_id}/rejudge
        GET /admin/submissions
        GET /admin/submissions/{submission_id}
        DELETE /admin/submissions/{submission_id}
        POST /admin/submissions/{submission_id}/cancel
        GET /admin/leaderboards/{leaderboard}/submissions
        POST /admin/leaderboards
        POST /admin/leaderboards/of-problem
        PATCH /admin/leaderboards/{leaderboard}
        DELETE /admin/leaderboards/{leaderboard}
        POST /admin/leaderboards/{leaderboard}/visibility
        POST /admin/leaderboards/{leaderboard}/close
        POST /admin/leaderboards/{leaderboard}/extend
        PUT /admin/leaderboards/{leaderboard}/rate-limits
        GET /admin/leaderboards/{leaderboard}/rate-limits
        DELETE /admin/leaderboards/{leaderboard}/rate-limits/{category}
        PUT /admin/leaderboards/{leaderboard}/quota
        GET /admin/leaderboards/{leaderboard}/limits
        POST /admin/invites
        GET /admin/leaderboards/{leaderboard}/invites
        DELETE /admin/invites/{code}
        POST /admin/ban/{user_id}
        DELETE /admin/ban/{user_id}
        POST /admin/people
        GET /admin/people/{user_id}
        POST /admin/link
        POST /admin/leaderboards/upload
        POST /admin/leaderboards/{leaderboard}/verify
        POST /admin/leaderboards/{leaderboard}/rejudge-preview
        POST /admin/leaderboards/{leaderboard}/rejudge-estimate
        POST /admin/scripts
        GET /admin/scripts/{script}
        DELETE /admin/scripts/{script}
        GET /admin/database
        GET /admin/warm
        POST /admin/warm
        POST /admin/warm/drain
        GET /admin/places
        POST /admin/places/{place}/drain
        POST /admin/places/{place}/resume
        GET /admin/places/{place}/log
        POST /admin/reload
        GET /admin/reload/{order}
        POST /admin/leaderboards/{leaderboard}/rejudge-apply
        POST /admin/leaderboards/{leaderboard}/rejudge-cancel
        GET /admin/leaderboards/{leaderboard}/export
        GET /admin/leaderboards/{leaderboard}/names
        GET /admin/people
        GET /admin/problems
        GET /admin/problems/{problem}
        POST /admin/problems
        GET /admin/users
        POST /admin/users
        GET /admin/users/{user_id}
        PUT /admin/users/{user_id}/role
        PUT /admin/users/{user_id}/team
        PUT /admin/users/{user_id}/cluster_account
        POST /admin/users/{user_id}/accounts
        GET /admin/users/{user_id}/tokens
        POST /admin/users/{user_id}/tokens
        DELETE /admin/users/{user_id}/tokens
        POST /admin/leaderboards/{leaderboard}/final
        POST /admin/leaderboards/{leaderboard}/final-apply
        POST /admin/leaderboards/{leaderboard}/final-forget
        POST /admin/submissions/{submission_id}/shadow
        GET /admin/leaderboards/{leaderboard}/shadows
        DELETE /admin/users/{user_id}
        GET /admin/users/{user_id}/deletion
        GET /admin/deletions
        POST /admin/deletions
        GET /admin/leaderboards/{leaderboard}/times
        POST /admin/leaderboards/{leaderboard}/late
        POST /admin/leaderboards/{leaderboard}/freeze
        POST /admin/leaderboards/{leaderboard}/unfreeze
        POST /admin/leaderboards/{leaderboard}/finalise
        POST /admin/leaderboards/{leaderboard}/unfinalise
        POST /admin/leaderboards/{leaderboard}/grades
        GET /admin/leaderboards/{leaderboard}/similar
        GET /admin/leaderboards/{leaderboard}/code
        PUT /admin/leaderboards/{leaderboard}/code
        GET /admin/submissions/{submission_id}/similar/{other_id}
        GET /admin/courses
        GET /admin/courses/{course}
        POST /admin/courses/{course}/import
        POST /admin/courses/{course}/invitations
        GET /admin/courses/{course}/budgets
        PUT /admin/courses/{course}/budgets
        PUT /admin/courses/{course}/people/{user_id}
        DELETE /admin/courses/{course}/people/{user_id}
        GET /admin/leaderboards/{leaderboard}/roles
        PUT /admin/leaderboards/{leaderboard}/roles/{user_id}
        POST /admin/leaderboards/{leaderboard}/archive
        GET /admin/leaderboards/{leaderboard}/worklog/{whose}
        POST /bot/people
        POST /bot/link
        GET /bot/may
        POST /bot/resync
        GET /bot/verifications/{submission_id}
        GET /events
        GET /metrics
    """,
    "page": """
        GET /me
        GET /me.json
        GET /me.csv
        GET /me/scores.json
        GET /me/scores.csv
        POST /me/link
        GET /questions
        POST /questions
        GET /s/{submission_id}
        GET /s/{submission_id}.csv
        GET /s/{submission_id}.json
        GET /s/{submission_id}/diff/{other_id}.csv
        GET /s/{submission_id}/diff/{other_id}.json
        GET /s/{submission_id}/diff/{other_id}
        GET /s/{submission_id}/artifacts/{gpu}/{name}
        POST /s/{submission_id}/cancel
        GET /problem/{leaderboard}/submit
        POST /problem/{leaderboard}/submit
        POST /problem/{leaderboard}/consent
        POST /problem/{leaderboard}/nickname
        GET /live/-/s/{submission_id}
    """,
    "staff page": """
        GET /staff
        GET /staff.csv
        GET /staff.json
        GET /staff/audit.csv
        GET /staff/audit.json
        GET /staff/board/{leaderboard}.csv
        GET /staff/board/{leaderboard}.json
        GET /staff/board/{leaderboard}/entry.csv
        GET /staff/board/{leaderboard}/entry.json
        GET /staff/board/{leaderboard}/finals.csv
        GET /staff/board/{leaderboard}/finals.json
        GET /staff/board/{leaderboard}/rejudge.csv
        GET /staff/board/{leaderboard}/rejudge.json
        GET /staff/board/{leaderboard}/submissions.csv
        GET /staff/board/{leaderboard}/submissions.json
        GET /staff/boards.csv
        GET /staff/boards.json
        GET /staff/courses.csv
        GET /staff/courses.json
        GET /staff/courses/{course}/budgets.csv
        GET /staff/courses/{course}/budgets.json
        GET /staff/people.csv
        GET /staff/people.json
        GET /staff/people/{person_id}.csv
        GET /staff/people/{person_id}.json
        GET /staff/places.csv
        GET /staff/places.json
        GET /staff/submissions/{submission_id}.csv
        GET /staff/submissions/{submission_id}.json
        GET /staff/triage
        POST /staff/triage
        GET /staff/board/{leaderboard}/triage
        GET /staff/board/{leaderboard}/triage.json
        GET /staff/board/{leaderboard}/triage.csv
        GET /staff/submissions/{submission_id}/triage
        GET /staff/submissions/{submission_id}/triage.json
        GET /staff/submissions/{submission_id}/triage.csv
        GET /staff/run
        GET /staff/run.json
        GET /staff/run.csv
        POST /staff/run
        GET /staff/run/{script}
        POST /staff/run/{script}/cancel
        POST /staff/{act}
        GET /staff/board/{leaderboard}
        GET /staff/board/{leaderboard}/reveal
        GET /staff/board/{leaderboard}/worklog
        GET /staff/board/{leaderboard}/submissions
        GET /staff/board/{leaderboard}/export
        POST /staff/board/{leaderboard}/{act}
        GET /staff/submissions/{submission_id}
        GET /staff/boards/new
        POST /staff/boards/new
        GET /staff/boards
        GET /staff/people
        GET /staff/problems
        GET /staff/problems.json
        GET /staff/problems.csv
        POST /staff/problems
        POST /staff/people/{person_id}/token
        GET /staff/board/{leaderboard}/shadows
        GET /staff/board/{leaderboard}/shadows.json
        GET /staff/board/{leaderboard}/shadows.csv
        GET /staff/people/{person_id}
        GET /staff/places
        GET /staff/audit
        GET /staff/board/{leaderboard}/rejudge
        GET /staff/board/{leaderboard}/finals
        GET /staff/board/{leaderboard}/entry
        GET /staff/questions
        POST /staff/questions/{question_id}/{act}
        GET /staff/courses
        GET /staff/courses/{course}
        GET /staff/courses/{course}/roster.csv
        POST /staff/courses/{course}/import
        POST /staff/courses/{course}/{act}
        GET /live/-/staff
    """,
    "node": """
        GET /nodes/{place}/{name}/kit
        POST /nodes/{place}/{name}/claim
        POST /nodes/{place}/{name}/beat
        POST /nodes/{place}/{name}/result
    """,
}
WHO = {route: who for who, routes in MAY.items() for route in (line.strip() for line in routes.splitlines()) if route}
# Nothing that exists, so that whoever may make a call changes nothing by it.
NAMES = {
    "leaderboard": "nowhere", "gpu": "H100", "mode": "test", "user_id": "nobody", "submission_id": "999999",
    "run_id": "999999", "provider": "github", "act": "wave", "name": "x.css", "language": "python",
    "problem": "nothing", "code": "none", "category": "test", "job_id": "999999", "index": "0",
    "course": "no-course", "question_id": "999999", "other_id": "999998", "object_id": "none", "script": "999997",
    "whose": "nobody", "person_id": "999999", "place": "nowhere", "order": "none",
}  # fmt: skip
TELLS_NOBODY = {
    "GET /live/-/s/{submission_id}",
    "POST /login",
    "GET /join/{code}",
    "POST /join/{code}",
}  # the same answer, here, for those who may
KEEPS = {"GET /static/{name}", "GET /favicon.ico", "GET /"}
UNKNOWN, TO_LOGIN = 400, "/login?next="


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, bot="the-bots-own-token") as built:
        yield built


def routes_of(api: ServedApi) -> list[APIRoute]:
    return [route for route in create_app(api.context).routes if isinstance(route, APIRoute)]


def names_of(route: APIRoute) -> list[str]:
    return [f"{method} {route.path}" for method in sorted(route.methods or ())]


def test_every_route_says_who_may_use_it(api: ServedApi) -> None:
    there = [name for route in routes_of(api) for name in names_of(route)]
    assert len(there) == len(set(there))
    assert set(there) == set(WHO), set(there) ^ set(WHO)


class Walker:
    """Somebody, with fresh credentials for each call: some calls end them."""

    def __init__(self, api: ServedApi, http: httpx.Client, name: str, person: Person | None) -> None:
        self.api, self.http, self.name, self.person = api, http, name, person

    @property
    def may(self) -> set[str]:
        """What they may, by the words of the table."""
        if self.person is None or self.name.startswith("banned"):
            return {"anyone"}
        return {"anyone", "person", "page"} | ({"host", "staff page"} if self.person.is_staff else set())

    def shown(self) -> Iterator[tuple[str, dict[str, str]]]:
        """How they can say who they are; nobody, not at all."""
        if self.person is None:
            yield "none", {}
            return
        issue, now = self.api.store.tokens.issue, self.api.now
        yield "person", {"X-Popcorn-Cli-Id": issue(self.person.id, device="x", now=now)}
        yield "host", {"Authorization": f"Bearer {issue(self.person.id, device='x', now=now)}"}
        yield "page", {"Cookie": f"{SESSION}={issue(self.person.id, kind='web', now=now)}"}

    @contextmanager
    def calls(self, route: APIRoute, name: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        path, sent = route.path, dict[str, Any]()
        for known, value in NAMES.items():
            path = path.replace(f"{{{known}}}", value)
        assert "{" not in path, path
        if not name.startswith("GET "):
            sent = {"json": []} if route.include_in_schema else {"data": {"csrf": self._csrf(headers), "x": "y"}}
        with self.http.stream(name.partition(" ")[0], path, headers=headers, **sent) as answer:
            yield answer

    def _csrf(self, headers: dict[str, str]) -> str:
        class Browser:
            cookies: Mapping[str, str] = {SESSION: headers.get("Cookie", "").partition("=")[2]}

        return Visitors(self.api.context).csrf(Browser())  # type: ignore[arg-type]


def test_everybody_is_kept_out_of_what_is_not_theirs(api: ServedApi) -> None:
    people = api.store.people
    wrong: list[tuple[str, str, str, int]] = []
    with httpx.Client(base_url=api.url, timeout=PATIENCE_S) as http:
        everybody = [
            Walker(api, http, "nobody", None),
            Walker(api, http, "participant", people.ensure("ada")),
            Walker(api, http, "banned participant", people.ensure("eve")),
            Walker(api, http, "banned host", people.ensure("mallory", "staff")),
            Walker(api, http, "host", people.ensure("hana", "staff")),
            Walker(api, http, "owner", people.ensure("olga", "owner")),
        ]
        for name in ("eve", "mallory"):
            people.ban(people.ensure(name).id, "cheats")
        for route in routes_of(api):
            for name in names_of(route):
                for walker in everybody:
                    for by, headers in walker.shown():
                        with walker.calls(route, name, headers) as answer:
                            kept_out = is_kept_out(answer)
                            assert answer.headers["x-content-type-options"] == "nosniff", (name, walker.name)
                            if name not in KEEPS:
                                assert answer.headers["cache-control"] == "no-store", (name, walker.name)
                        who = WHO[name]
                        fits = who == "anyone" or by == who.removeprefix("staff ")
                        if kept_out is (fits and who in walker.may) and name not in TELLS_NOBODY:
                            wrong.append((name, walker.name, by, answer.status_code))
    assert not wrong, "\n".join(map(str, wrong))


def is_kept_out(answer: httpx.Response) -> bool:
    """Whether it was refused because of who asked."""
    if answer.status_code == UNKNOWN:
        return b"X-Popcorn-Cli-Id is missing" in answer.read()
    return answer.status_code in (401, 403) or answer.headers.get("location", "").startswith(TO_LOGIN)
