"""A course: its people come from a file, sign in by a link or their university, and help or compete by their role."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.sessions import SESSION
from kbslurm.domain import access
from kbslurm.domain.access import BOARD_ROLES, MAY_ON_BOARD, BoardAct, BoardRole
from kbslurm.errors import QuotaSpent, Refused
from kbslurm.flow.submit import accept
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_api_login import SignOnStage, stage
from tests.flow.test_pages import judged
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

__all__ = ["stage"]
ROSTER = (
    "name,email,student id,section,team\n"
    "Ada Lovelace,ada@example.edu,1815,A,Engine\n"
    "Emmy Noether,emmy@example.edu,1882,A,Engine\n"
    "Grace Hopper,grace@example.edu,1906,B,\n"
)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot="the-bots-own-token") as built:
        yield built


def imported(api: ServedApi, text: str = ROSTER, course: str = "gpu", **query: Any) -> dict[str, Any]:
    answer = httpx.post(
        f"{api.url}/admin/courses/{course}/import", params=query, files={"file": ("roster.csv", text.encode())},
        headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def by_host(api: ServedApi, method: str, path: str, **sent: Any) -> Any:
    answer = httpx.request(method, f"{api.url}{path}", headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60, **sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def token_of(api: ServedApi, name: str) -> str:
    return api.store.tokens.issue(api.store.people.ensure(name).id, device="test", now=api.now)


# --------------------------------------------------------------------------------------------------------- the roster


def test_what_a_file_says_is_there_once_however_often_it_is_imported(api: ServedApi) -> None:
    assert len(imported(api, preview=True)["added"]) == 3
    assert api.store.roster.courses() == []
    assert len(imported(api)["added"]) == 3
    people = api.store.people.all()
    before = api.store.events.audit_log(limit=100)
    again = imported(api)
    assert (again["added"], again["changed"], again["removed"], again["unchanged"]) == ([], [], [], 3)
    assert api.store.people.all() == people
    assert api.store.events.audit_log(limit=100) == before, "what changes nothing is nothing to audit"
    (line,) = before
    assert (line.kind, line.subject) == ("staff.roster.import", "course:gpu")
    assert "ada" not in str(line.data).lower(), "the audit log has numbers, not personal data"


def test_a_file_with_a_wrong_line_changes_nothing(api: ServedApi) -> None:
    imported(api)
    wrong = ROSTER.replace("Engine", "Other") + "Nobody,nowhere\n"
    answer = httpx.post(
        f"{api.url}/admin/courses/gpu/import", files={"file": ("roster.csv", wrong)},
        headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60,
    )  # fmt: skip
    assert answer.status_code == 400
    assert "line 5: 'nowhere' isn't an e-mail address" in answer.json()["detail"]
    assert {one.team for one in api.store.roster.of_course("gpu")} == {"engine", None}


def test_two_courses_have_their_own_sections_and_teams_of_one_person(api: ServedApi) -> None:
    imported(api)
    imported(api, "name,email,section,team\nAda Lovelace,ada@example.edu,Z,Solo\n", course="later")
    (ada,) = api.store.roster.of_course("later")
    assert (ada.section, ada.team, ada.student_id) == ("Z", "solo", "1815")
    assert api.store.roster.get("gpu", ada.person_id).team == "engine"


def test_two_with_one_name_are_two_people(api: ServedApi) -> None:
    imported(api, "name,email\nAda Lovelace,one@example.edu\nAda Lovelace,two@example.edu\n")
    assert [one.name for one in api.store.people.all()] == ["Ada Lovelace", "Ada Lovelace 2"]
    assert imported(api, "name,email\nAda Lovelace,two@example.edu\n", remove=True)["removed"][0]["person"] == (
        "Ada Lovelace"
    )


def test_the_board_of_a_course_is_open_to_its_roster_and_to_nobody_else(api: ServedApi) -> None:
    imported(api)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu", "visibility": "closed"})
    for name, sees in (("Ada Lovelace", True), ("stranger", False)):
        told = httpx.get(f"{api.url}/leaderboards", headers={"X-Popcorn-Cli-Id": token_of(api, name)}, timeout=60)
        assert [board["name"] for board in told.json()] == (["transpose"] if sees else []), name
        sent = httpx.post(
            f"{api.url}/submission/transpose/H100/test", files={"file": ("k.py", GOOD)},
            headers={"X-Popcorn-Cli-Id": token_of(api, name)}, timeout=60,
        )  # fmt: skip
        assert sent.status_code == (202 if sees else 403), sent.text
    ada = api.store.people.find("Ada Lovelace")
    assert ada is not None
    api.store.roster.drop("gpu", ada.id, by="root", now=api.now)
    told = httpx.get(f"{api.url}/leaderboards", headers={"X-Popcorn-Cli-Id": token_of(api, ada.name)}, timeout=60)
    assert told.json() == []


# -------------------------------------------------------------------------------------------------------- invitations


def invitations(api: ServedApi, **wanted: Any) -> dict[str, str]:
    made = by_host(api, "POST", "/admin/courses/gpu/invitations", json=wanted)
    return {one["person"]: one["code"] for one in made["invitations"]}


def test_a_link_signs_its_person_in_once_and_looking_at_it_uses_nothing_up(api: ServedApi) -> None:
    imported(api)
    code = invitations(api)["Ada Lovelace"]
    with httpx.Client(base_url=api.url, timeout=60) as browser:
        for _ in range(2):  # a mail program's, and hers
            assert "Sign in as Ada Lovelace" in browser.get(f"/join/{code}").text
        assert browser.get("/me").status_code == 303
        assert browser.post(f"/join/{code}", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        answer = browser.post(f"/join/{code}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/me")
        assert "Ada Lovelace" in browser.get("/me").text
    with httpx.Client(base_url=api.url, timeout=60) as later:
        for answer in (later.get(f"/join/{code}"), later.post(f"/join/{code}")):
            assert answer.status_code == 401
            assert "was used already" in answer.text
        assert later.post("/user/invitation", json={"code": code}).status_code == 401


def test_an_invitation_is_no_token(api: ServedApi) -> None:
    imported(api)
    code = invitations(api)["Ada Lovelace"]
    for headers in ({"X-Popcorn-Cli-Id": code}, {"Cookie": f"{SESSION}={code}"}):
        with httpx.Client(base_url=api.url, timeout=60, headers=headers) as http:
            assert http.get("/user/me").status_code in (400, 401)
            assert http.get("/me").status_code == 303


def test_a_newer_link_ends_an_older_one_and_time_ends_both(api: ServedApi) -> None:
    imported(api)
    first = invitations(api)["Ada Lovelace"]
    second = invitations(api)["Ada Lovelace"]
    with httpx.Client(base_url=api.url, timeout=60) as http:
        assert http.get(f"/join/{first}").status_code == 401
        assert http.get(f"/join/{second}").status_code == 200
        assert isinstance(api.context.clock, HandClock)
        api.context.clock.go(15 * 86_400)
        assert http.get(f"/join/{second}").status_code == 401


def test_whoever_is_banned_or_of_staff_or_there_already_gets_no_link(api: ServedApi) -> None:
    imported(api)
    ada, emmy, grace = (api.store.people.find(name) for name in ("Ada Lovelace", "Emmy Noether", "Grace Hopper"))
    assert ada and emmy and grace
    code = invitations(api)["Ada Lovelace"]
    api.store.people.ban(ada.id, now=api.now)
    assert httpx.get(f"{api.url}/join/{code}", timeout=60).status_code == 403
    api.store.people.set_role(emmy.id, "staff", now=api.now)
    hana = api.store.people.add("hana", "staff", now=api.now)
    used = api.store.tokens.issue(grace.id, now=api.now)
    assert api.store.tokens.person_of(used, now=api.now)
    headers = {"Authorization": f"Bearer {api.store.tokens.issue(hana.id, now=api.now)}"}
    made = httpx.post(f"{api.url}/admin/courses/gpu/invitations", json={}, headers=headers, timeout=60).json()
    assert made["invitations"] == []
    assert {one["person"]: one["why"] for one in made["left_out"]} == {
        "Ada Lovelace": "banned",
        "Emmy Noether": "of staff: only an owner may make a link that signs them in",
        "Grace Hopper": "has signed in already",
    }
    again = httpx.post(
        f"{api.url}/admin/courses/gpu/invitations", json={"again": True}, headers=headers, timeout=60
    ).json()
    assert [one["person"] for one in again["invitations"]] == ["Grace Hopper"]


def test_invitations_as_a_csv_as_mails_and_in_a_terminal(api: ServedApi, tmp_path: Path) -> None:
    owner = api.store.people.add("olga", "owner", now=api.now)
    env = {"KBSLURM_URL": api.url, "KBSLURM_TOKEN": api.store.tokens.issue(owner.id)}
    kbslurm = CommandLine(cwd=tmp_path, env=env)
    (tmp_path / "roster.csv").write_text(ROSTER.replace("Ada Lovelace", "=Ada"))
    assert kbslurm("roster", "import", "roster.csv").code == 0
    said = kbslurm("roster", "invite", "--csv", "out/links.csv", "--mails", "out")
    assert said.code == 0, said.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/links.csv").read_text())))
    assert len(rows) == 3 and len({row["link"] for row in rows}) == 3
    assert rows[0]["name"] == "'=Ada"
    assert (tmp_path / "out/links.csv").stat().st_mode & 0o077 == 0
    mails = [message_from_bytes(file.read_bytes(), policy=policy.default) for file in (tmp_path / "out").glob("*.eml")]
    assert {str(mail["To"]) for mail in mails} == {"ada@example.edu", "emmy@example.edu", "grace@example.edu"}
    mail = next(mail for mail in mails if mail["To"] == "grace@example.edu")
    assert str(mail["Subject"]) == "Your account for course"
    link = next(row["link"] for row in rows if row["email"] == "grace@example.edu")
    assert link in mail.get_content() and "Hello Grace Hopper" in mail.get_content()
    laptop = CommandLine(cwd=tmp_path, env={"HOME": str(tmp_path / "home")})
    entered = laptop("login", api.url, "--invitation", link, "--json")
    assert entered.code == 0, entered.err
    assert entered.json()["person"] == "Grace Hopper"
    assert laptop("login", api.url, "--invitation", link).code == 4
    listed = kbslurm("roster", "list", "--json").json()["people"]
    assert {one["name"]: one["has_signed_in"] for one in listed}["Grace Hopper"] is True


def test_a_names_braces_are_no_field_of_a_mail(api: ServedApi, tmp_path: Path) -> None:
    owner = api.store.people.add("olga", "owner", now=api.now)
    env = {"KBSLURM_URL": api.url, "KBSLURM_TOKEN": api.store.tokens.issue(owner.id)}
    kbslurm = CommandLine(cwd=tmp_path, env=env)
    (tmp_path / "roster.csv").write_text("name,email\n{link} {code},a@example.edu\n")
    assert kbslurm("roster", "import", "roster.csv").code == 0
    assert kbslurm("roster", "invite", "--mails", "out").code == 0
    (mail,) = (tmp_path / "out").glob("*.eml")
    assert "Hello {link} {code}," in mail.read_text()
    refused = kbslurm("roster", "invite", "--mails", "out", "--subject", "a\nBcc: b@example.edu")
    assert (refused.code, "control character" in refused.err) == (2, True)


# ------------------------------------------------------------------------------------------------- the university's own


def expected(stage: SignOnStage, name: str = "Ada Lovelace", email: str = "ada@example.edu", **more: str) -> int:
    from kbslurm.domain.roster import read

    columns = {"name": name, "email": email, **more}
    sheet = read(f"{','.join(columns)}\n{','.join(columns.values())}\n".encode())
    issuer = stage.context.config.oidc.issuer
    plan = stage.context.store.roster.take("gpu", sheet.rows, remove=False, issuer=issuer, by="root")
    assert len(plan.changes) == 1
    (found,) = stage.context.store.roster.of_course("gpu")
    return found.person_id


def test_a_verified_address_is_whoever_the_roster_has_with_it(stage: SignOnStage) -> None:
    ada = expected(stage)
    stage.fake.spoil = {"email": "ADA@example.edu", "email_verified": True}
    browser = stage.browser()
    assert stage.sign_on(browser, "oidc").status_code == 303
    found = stage.who(browser)
    assert found is not None and found.id == ada
    # From now on it is the subject that says who it is, whatever address comes with it.
    stage.fake.spoil = {"email": "other@example.edu", "email_verified": True}
    again = stage.browser()
    stage.sign_on(again, "oidc")
    assert stage.who(again) == found
    # And nobody else comes in by the address any more.
    stage.fake.user = {"id": "999", "name": "mallory"}
    stage.fake.spoil = {"email": "ada@example.edu", "email_verified": True}
    other = stage.browser()
    stage.sign_on(other, "oidc")
    mallory = stage.who(other)
    assert mallory is not None and mallory.id != ada


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "ada@example.edu"},
        {"email": "ada@example.edu", "email_verified": False},
        {"email": "ada@example.edu", "email_verified": "false"},
        {"email": "ada@example.edu", "email_verified": 1},
        {"email": ["ada@example.edu"], "email_verified": True},
        {"email": "", "email_verified": True},
        {"email": "%", "email_verified": True},
    ],
)
def test_an_address_that_nobody_verified_is_nobodys(stage: SignOnStage, claims: dict[str, Any]) -> None:
    ada = expected(stage)
    stage.fake.spoil = claims
    browser = stage.browser()
    stage.sign_on(browser, "oidc")
    found = stage.who(browser)
    assert found is not None and found.id != ada


def test_an_address_never_makes_anybody_staff(stage: SignOnStage) -> None:
    ada = expected(stage)
    stage.context.store.people.set_role(stage.context.store.people.get(ada).id, "staff")  # type: ignore[arg-type]
    stage.fake.spoil = {"email": "ada@example.edu", "email_verified": True}
    browser = stage.browser()
    stage.sign_on(browser, "oidc")
    found = stage.who(browser)
    assert found is not None and (found.id != ada and found.role == "participant")


def test_a_subject_on_the_roster_needs_no_address(stage: SignOnStage) -> None:
    ada = expected(stage, **{"oidc subject": "subject-501"})
    browser = stage.browser()
    stage.sign_on(browser, "oidc")
    found = stage.who(browser)
    assert found is not None and found.id == ada


def test_whoever_is_banned_comes_not_back_by_their_address(stage: SignOnStage) -> None:
    ada = expected(stage)
    stage.context.store.people.ban(stage.context.store.people.get(ada).id)  # type: ignore[arg-type]
    stage.fake.spoil = {"email": "ada@example.edu", "email_verified": True}
    browser = stage.browser()
    assert stage.sign_on(browser, "oidc").status_code == 403
    assert stage.who(browser) is None


# -------------------------------------------------------------------------------------------------------------- roles

ACTS: Mapping[BoardAct, tuple[tuple[str, str, Any], ...]] = {
    "see": (
        ("GET", "/admin/leaderboards/transpose/limits", None),
        ("GET", "/admin/leaderboards/transpose/roles", None),
        ("GET", "/admin/leaderboards/transpose/export", None),
    ),
    "grade": (
        ("GET", "/admin/leaderboards/transpose/submissions", None),
        ("GET", "/admin/submissions/{number}", None),
        ("GET", "/admin/courses/gpu", None),
    ),
    "run": (
        ("PATCH", "/admin/leaderboards/transpose", {"description": "another"}),
        ("POST", "/admin/leaderboards/transpose/extend", {"person": "person:Ada Lovelace", "until": "2099-01-01"}),
        ("PUT", "/admin/leaderboards/transpose/quota", {"gpu_s_per_day": 60}),
        ("GET", "/admin/courses/gpu/budgets", None),
        ("POST", "/admin/leaderboards/transpose/rejudge-preview", {}),
        ("POST", "/admin/leaderboards/transpose/rejudge-cancel", None),
        ("POST", "/admin/submissions/{number}/cancel", None),
        ("POST", "/admin/leaderboards/transpose/close", None),
    ),
    "own": (
        ("PATCH", "/admin/leaderboards/transpose", {"teams": True}),
        ("PUT", "/admin/leaderboards/transpose/roles/Ada%20Lovelace", {"role": "observer"}),
        ("POST", "/admin/leaderboards/transpose/visibility", {"visibility": "closed"}),
        ("PUT", "/admin/courses/gpu/people/Ada%20Lovelace", {"section": "C"}),
        ("PUT", "/admin/courses/gpu/budgets", {"gpu_hours": 9}),
        ("DELETE", "/admin/courses/gpu/people/Grace%20Hopper", None),
        ("DELETE", "/admin/submissions/{number}", None),
        ("DELETE", "/admin/leaderboards/transpose?force=true", None),
    ),
}
# Whatever their role: of other boards, of the whole service, of people's rights.
NEVER: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/admin/leaderboards/other/limits", None),
    ("GET", "/admin/leaderboards/other/submissions", None),
    ("GET", "/admin/submissions/{other}", None),
    ("POST", "/admin/submissions/{other}/cancel", None),
    ("GET", "/admin/submissions/999999", None),
    ("PATCH", "/admin/leaderboards/other", {"description": "x"}),
    ("PATCH", "/admin/leaderboards/transpose", {"course": "secret"}),
    ("GET", "/admin/leaderboards/nowhere/limits", None),
    ("GET", "/admin/courses", None),
    ("GET", "/admin/courses/secret", None),
    ("GET", "/admin/courses/secret/budgets", None),
    ("PUT", "/admin/courses/secret/budgets", {"gpu_hours": 9}),
    ("PUT", "/admin/courses/secret/people/Ada%20Lovelace", {"section": "C"}),
    ("PUT", "/admin/courses/gpu/people/outsider", {"section": "C"}),
    ("POST", "/admin/courses/gpu/invitations", {}),
    ("POST", "/admin/leaderboards", {"directory": "/etc"}),
    ("GET", "/admin/users", None),
    ("POST", "/admin/users", {"name": "x"}),
    ("POST", "/admin/users/outsider/tokens", {}),
    ("PUT", "/admin/users/outsider/role", {"role": "participant"}),
    ("GET", "/admin/audit", None),
    ("POST", "/admin/stop", {}),
    ("POST", "/admin/ban/outsider", None),
)


@contextmanager
def helping(api: ServedApi, role: BoardRole | None, by: str) -> Iterator[tuple[httpx.Client, int, int]]:
    """Somebody with that role on the board or its course; a submission to it, and one to another."""
    imported(api)
    imported(api, "name,email\nSomebody,somebody@example.edu\n", course="secret")
    api.store.people.add("outsider", now=api.now)
    problem = api.store.boards.get("transpose").problem
    api.store.boards.add("other", problem, gpus=("H100",), visibility="closed", now=api.now)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu"})
    number = judged(api, "Ada Lovelace")
    root = api.store.people.ensure("root", "owner")
    other = accept(api.store.intake, root.id, "other", "k.py", GOOD, "test", ["H100"], api.now)
    tess = api.store.people.add("tess", now=api.now)
    if role is not None and by == "board":
        # The course's calls need a role on the course.
        by_host(api, "PUT", "/admin/leaderboards/transpose/roles/tess", json={"role": role})
    elif role is not None:
        by_host(api, "PUT", "/admin/courses/gpu/people/tess", json={"role": role})
    token = api.store.tokens.issue(tess.id, now=api.now)
    with httpx.Client(base_url=api.url, timeout=60, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http, number, other.submission_id


@pytest.mark.parametrize("role", [*BOARD_ROLES, None])
@pytest.mark.parametrize("by", ["board", "course"])
def test_a_role_on_a_board_may_what_the_one_rule_says_and_nothing_else(
    api: ServedApi, role: BoardRole | None, by: str
) -> None:
    with helping(api, role, by) as (http, number, other):
        numbers = {"number": number, "other": other}
        for method, path, sent in NEVER:
            answer = http.request(method, path.format(**numbers), json=sent)
            assert answer.status_code in (401, 403), (role, method, path, answer.status_code, answer.text)
        files = {"file": ("roster.csv", ROSTER.encode())}
        assert http.post("/admin/courses/gpu/import", files=files).status_code == 401
        for act, calls in ACTS.items():
            for method, path, sent in calls:
                may = role is not None and act in MAY_ON_BOARD[role] and (by == "course" or "/courses/" not in path)
                answer = http.request(method, path.format(**numbers), json=sent)
                assert (answer.status_code == 200) is may, (role, method, path, answer.status_code, answer.text)
                if not may:
                    assert answer.status_code in (401, 403), answer.text


@pytest.mark.parametrize("by", ["board", "course"])
def test_whoever_helps_is_told_of_nobody_elsewhere(api: ServedApi, by: str) -> None:
    """Not of people of other courses: neither their names, nor that there are any, by whatever one calls them."""
    with helping(api, "owner", by) as (http, _, _):
        known = {one.name: one for one in api.store.people.all()}
        elsewhere = (
            "Somebody",
            "Sombody",
            "somebody@example.edu",
            str(known["Somebody"].id),
            "outsider",
            "nobody",
            "9999",
        )
        board = "/admin/leaderboards/transpose"
        calls: list[tuple[str, str, Any]] = [
            ("PUT", f"{board}/roles/{{}}", {"role": "observer"}),
            ("POST", f"{board}/extend", {"person": "person:{}", "until": "2099-01-01"}),
            ("POST", f"{board}/rejudge-preview", {"filter": ["person={}"]}),
            ("GET", f"{board}/worklog/{{}}", None),
        ]
        if by == "course":
            calls += [("PUT", "/admin/courses/gpu/people/{}", {"section": "C"})]
            calls += [("DELETE", "/admin/courses/gpu/people/{}", None)]
        for method, path, body in calls:
            said = set()
            for whom in elsewhere:
                text = None if body is None else json.dumps(body).replace("{}", whom)
                told = {} if text is None else {"content": text, "headers": {"Content-Type": "application/json"}}
                answer = http.request(method, path.replace("{}", whom), **told)  # type: ignore[arg-type]
                assert answer.status_code in (403, 404), (method, path, whom, answer.text)
                said.add(answer.text.replace(repr(whom), "WHOM").replace(whom, "WHOM"))
            assert len(said) == 1 and "Did you mean" not in next(iter(said)), (path, said)
        answer = http.put(f"{board}/roles/Ada%20Lovelac", json={"role": "observer"})
        assert answer.status_code == 404 and "Did you mean Ada Lovelace?" in answer.text, "their own people are offered"
        for whom in ("Emmy Noether", "emmy@example.edu", "EMMY@example.edu", str(known["Emmy Noether"].id)):
            wanted = {"person": f"person:{whom}", "until": "2099-01-01"}
            assert http.post(f"{board}/extend", json=wanted).json()["person"] == "Emmy Noether"
        assert http.put(f"{board}/roles/emmy@example.edu", json={"role": "grader"}).status_code == 200
        listed = http.get("/admin/submissions", params={"person": "somebody@example.edu"}).json()
        assert listed == {"submissions": []}


def test_hosts_name_people_by_their_addresses_too(api: ServedApi, tmp_path: Path) -> None:
    imported(api)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu"})
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    assert kbslurm("board", "role", "transpose", "ada@example.edu", "grader").code == 0
    assert kbslurm("board", "extend", "transpose", "ADA@example.edu", "2099-01-01").code == 0
    assert api.store.times.extensions(api.store.boards.get("transpose"))[0].person == "Ada Lovelace"
    told = kbslurm("user", "delete", "grace@example.edu", "--json")
    assert told.code == 0 and told.json()["name"] == "Grace Hopper"
    assert kbslurm("user", "ban", "nobody@example.edu").code == 2
    api.store.people.add("grace@example.edu", now=api.now)
    refused = kbslurm("user", "delete", "grace@example.edu", "--yes")
    assert refused.code == 2 and "a name that somebody else has" in refused.err
    assert api.store.people.find("Grace Hopper") is not None


def test_the_rule_is_one_table(api: ServedApi) -> None:
    tess = api.store.people.add("tess", now=api.now)
    hana = api.store.people.add("hana", "staff", now=api.now)
    for act in access.NEEDS:
        assert access.may_on_board(hana, None, act)
        assert not access.may_on_board(tess, None, act)
        assert not access.may_on_board(None, None, act)
        for weaker, role in zip(BOARD_ROLES[1:], BOARD_ROLES, strict=False):
            assert access.may_on_board(tess, role, act) or not access.may_on_board(tess, weaker, act)
    banned = api.store.people.ban(tess.id, now=api.now)
    assert not access.may_on_board(banned, "owner", "see")


def test_a_ban_ends_a_role_and_the_board_is_seen_by_whoever_has_one(api: ServedApi) -> None:
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"visibility": "closed"})
    tess = api.store.people.add("tess", now=api.now)
    token = api.store.tokens.issue(tess.id, now=api.now)
    shown = {"X-Popcorn-Cli-Id": token}
    assert httpx.get(f"{api.url}/leaderboards", headers=shown, timeout=60).json() == []
    by_host(api, "PUT", "/admin/leaderboards/transpose/roles/tess", json={"role": "observer"})
    assert len(httpx.get(f"{api.url}/leaderboards", headers=shown, timeout=60).json()) == 1
    api.store.people.ban(tess.id, now=api.now)
    answer = httpx.get(
        f"{api.url}/admin/leaderboards/transpose/limits", headers={"Authorization": f"Bearer {token}"}, timeout=60
    )
    assert answer.status_code == 401


# -------------------------------------------------------------------------------------------------------------- teams


@pytest.fixture
def together(api: ServedApi) -> ServedApi:
    imported(api)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu", "teams": True})
    return api


def names(api: ServedApi) -> list[str]:
    return [row["user_name"] for row in httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()]


def test_a_team_has_one_line_and_its_name_wherever_the_board_is_shown(together: ServedApi, tmp_path: Path) -> None:
    api = together
    for name, score_s in (("Ada Lovelace", 0.5), ("Grace Hopper", 0.4), ("Emmy Noether", 0.3)):
        judged(api, name, score_s)
    told = httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()
    assert [(row["user_name"], row["team"], row["rank"]) for row in told] == [
        ("engine", "engine", 1), ("Grace Hopper", None, 2),
    ]  # fmt: skip
    page = httpx.get(f"{api.url}/board/transpose/H100", timeout=60).text
    assert "engine" in page and "Lovelace" not in page and "Noether" not in page
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    assert [row["person"] for row in kbslurm("export", "transpose", "--json").json()] == ["engine", "Grace Hopper"]
    assert "engine" in kbslurm("board", "transpose").out and "Noether" not in kbslurm("board", "transpose").out
    final = by_host(api, "POST", "/admin/leaderboards/transpose/final", json={"gpu": "H100", "top": 2})
    assert "Noether" not in str(final)
    assert [rival["person"] for rival in final["rivals"]] == ["engine", "Grace Hopper"]


def test_whoever_changes_teams_leaves_what_they_did_to_the_earlier_one(together: ServedApi) -> None:
    api = together
    judged(api, "Ada Lovelace", 0.3)
    assert names(api) == ["engine"]
    by_host(api, "PUT", "/admin/courses/gpu/people/ada@example.edu", json={"team": "solo"})
    assert names(api) == ["engine"]
    judged(api, "Ada Lovelace", 0.2)
    assert names(api) == ["solo", "engine"]


def test_a_ban_hides_only_what_that_member_did(together: ServedApi) -> None:
    api = together
    judged(api, "Ada Lovelace", 0.3)
    judged(api, "Emmy Noether", 0.4)
    ada = api.store.people.find("Ada Lovelace")
    assert ada is not None
    api.store.people.ban(ada.id, by="root", now=api.now)
    (row,) = httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()
    assert (row["user_name"], row["submission_score"]) == ("engine", pytest.approx(0.4))


def test_where_teams_dont_count_together_people_do(api: ServedApi) -> None:
    imported(api)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu"})
    judged(api, "Ada Lovelace", 0.3)
    judged(api, "Emmy Noether", 0.4)
    assert names(api) == ["Ada Lovelace", "Emmy Noether"]
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"teams": True})
    assert names(api) == ["engine"]


def test_on_a_board_for_teams_alone_whoever_is_in_none_is_told_why_they_cant_submit(together: ServedApi) -> None:
    api, store = together, together.store
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"teams_only": True})
    grace, emmy = (store.people.ensure(name) for name in ("Grace Hopper", "Emmy Noether"))
    accept(store.intake, emmy.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    for _ in range(2):  # also where a limit is counted
        with pytest.raises(Refused, match="board transpose is for teams, and you are in none") as refused:
            accept(store.intake, grace.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
        assert refused.value.hint == "Ask a host to put you into a team."
        store.limits.set_rate("transpose", "test", 20, by="root", now=api.now)
    assert store.submissions.newest(person=grace.id) == []
    told = {"X-Popcorn-Cli-Id": store.tokens.issue(grace.id, now=api.now)}
    sent = httpx.post(
        f"{api.url}/submission/transpose/H100/test", files={"file": ("k.py", GOOD)}, headers=told, timeout=60
    )
    assert (sent.status_code, "is for teams" in sent.json()["detail"]) == (403, True)
    assert "Only teams take part here" in httpx.get(f"{api.url}/problem/transpose", timeout=60).text
    by_host(api, "PUT", "/admin/courses/gpu/people/grace@example.edu", json={"team": "solo"})
    accept(store.intake, grace.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    for body in ({"teams": False}, {"teams": False, "teams_only": True}):
        path, key = f"{api.url}/admin/leaderboards/transpose", {"Authorization": f"Bearer {ADMIN}"}
        refusal = httpx.patch(path, json=body, headers=key, timeout=60)
        assert (refusal.status_code, "can't be for teams alone" in refusal.json()["detail"]) == (400, True)
    by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"teams": False, "teams_only": False})
    assert not store.boards.get("transpose").teams_only


def test_a_limit_is_the_teams(together: ServedApi) -> None:
    api, store = together, together.store
    store.limits.set_rate("transpose", "test", 2, by="root", now=api.now)
    ada, emmy, grace = (store.people.ensure(name).id for name in ("Ada Lovelace", "Emmy Noether", "Grace Hopper"))
    for person in (ada, emmy):
        accept(store.intake, person, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    with pytest.raises(QuotaSpent, match="per hour"):
        accept(store.intake, ada, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
    accept(store.intake, grace, "transpose", "k.py", GOOD, "test", ["H100"], api.now)


def test_members_who_submit_at_the_same_moment_share_one_limit(together: ServedApi) -> None:
    from concurrent.futures import ThreadPoolExecutor

    api, store = together, together.store
    store.limits.set_rate("transpose", "test", 3, by="root", now=api.now)
    members = [store.people.ensure(name).id for name in ("Ada Lovelace", "Emmy Noether")] * 8

    def submitted(person: Any) -> bool:
        try:
            accept(store.intake, person, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
        except QuotaSpent:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submitted, members)) == 3


# ---------------------------------------------------------------------------------------------------------- the pages


def test_the_staffs_pages_do_what_the_commands_do(api: ServedApi) -> None:
    hana = api.store.people.add("hana", "staff", now=api.now)
    session = api.store.tokens.issue(hana.id, kind="web", now=api.now)

    class Browser:
        cookies: Mapping[str, str] = {SESSION: session}

    csrf = {"csrf": Visitors(api.context).csrf(Browser())}  # type: ignore[arg-type]
    file = {"file": ("roster.csv", ROSTER.encode(), "text/csv")}

    def audited() -> tuple[str, str, str]:
        line = next(iter(api.store.events.audit_log(limit=1)))
        return line.kind, line.data["by"], line.data["via"]

    with httpx.Client(base_url=api.url, timeout=60, cookies={SESSION: session}) as http:
        preview = http.post("/staff/courses/new/import", data={**csrf, "name": "gpu", "preview": "yes"}, files=file)
        assert "would add 3" in preview.text and api.store.roster.courses() == []
        done = http.post("/staff/courses/new/import", data={**csrf, "name": "gpu", "preview": "no"}, files=file)
        assert "3 added" in done.text and audited() == ("staff.roster.import", "hana", "page")
        wrong = {"file": ("roster.csv", b"name,email\nAda,nowhere\n", "text/csv")}
        said = http.post("/staff/courses/gpu/import", data={**csrf, "preview": "no"}, files=wrong)
        assert said.status_code == 400 and "line 2: &#39;nowhere&#39; isn&#39;t an e-mail address" in said.text
        by_host(api, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu"})
        page = http.get("/staff/courses/gpu").text
        assert "ada@example.edu" in page and "Helpers on transpose" in page
        acts = {
            "set": {"person": "grace@example.edu", "section": "C", "team": "Solo", "role": "student"},
            "role": {"person": "Emmy Noether", "board": "transpose", "role": "grader"},
            "remove": {"person": "1906"},
        }
        kinds = {"set": "staff.roster.place", "role": "staff.board_role", "remove": "staff.roster.drop"}
        for act, form in acts.items():
            assert http.post(f"/staff/courses/gpu/{act}", data={**csrf, **form}).status_code == 303, act
            assert audited() == (kinds[act], "hana", "page")
        assert "grace@example.edu" not in http.get("/staff/courses/gpu").text
        links = http.post("/staff/courses/gpu/invite", data={**csrf, "person": ""})
        assert audited() == ("staff.roster.invite", "hana", "page")
        assert len(re.findall(r"/join/", links.text)) == 2 and "attachment" in links.headers["content-disposition"]
        exported = http.get("/staff/courses/gpu/roster.csv").text
        assert exported.splitlines()[0].startswith("kbslurm,name,email,student id,section,team,role")
        assert http.post("/staff/courses/gpu/set", data={"csrf": "x", "person": "ada"}).status_code == 403


def test_ten_thousand_people_are_imported_and_imported_again(database_url: str) -> None:
    from kbslurm.domain.roster import read

    text = "name,email,section\n" + "".join(f"Person {n},p{n}@example.edu,{n % 30}\n" for n in range(10_000))
    rows = read(text.encode()).rows
    with PostgresStore(database_url) as store:
        assert len(store.roster.take("gpu", rows, remove=False, issuer="", by="root").of("add")) == 10_000
        assert len(store.roster.take("gpu", rows, remove=False, issuer="", by="root").of("same")) == 10_000
        assert len(store.roster.of_course("gpu")) == 10_000
