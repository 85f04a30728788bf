"""Whatever changes what others see leaves a line in the audit log: who did it, how, and from where.

The lists here are complete by test: a new call or command that changes something has to be added, with its line in the
audit log or with the reason why it has none.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import psycopg
import pytest
from fastapi.routing import APIRoute

from kbslurm.api.app import create_app
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.sessions import SESSION
from kbslurm.cli.commands import COMMANDS, Command, Group
from kbslurm.cli.context import account_and_host
from kbslurm.contract.grades import SCHEME
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import judged
from tests.popcorn.served_api import ADMIN, GOOD, TRANSPOSE, ServedApi, served

BOT = "the-bots-own-token"
OWN = "somebody's own submission, token or session"
READS = "changes nothing"
# Calls without a line in the audit log, and why.
UNAUDITED = {
    **dict.fromkeys([f"POST /nodes/{{place}}/{{name}}/{verb}" for verb in ("claim", "beat", "result")], "no person's"),
    "POST /user/questions": OWN,
    "POST /questions": OWN,
    "POST /login": OWN,
    "POST /logout": OWN,
    "POST /me/link": OWN,
    "POST /s/{submission_id}/cancel": OWN,
    "POST /problem/{leaderboard}/submit": OWN,
    "POST /problem/{leaderboard}/consent": OWN,
    "PUT /user/consent/{leaderboard}": OWN,
    "POST /problem/{leaderboard}/nickname": OWN,
    "PUT /user/nickname/{leaderboard}": OWN,
    "POST /join/{code}": OWN,
    "POST /auth/logout": OWN,
    "POST /user/invitation": OWN,
    "POST /user/logout": OWN,
    "POST /user/join": OWN,
    "POST /user/submissions": OWN,
    "POST /submission/{leaderboard}/{gpu}/{mode}": OWN,
    "POST /profile": OWN,
    "POST /{leaderboard}/{gpu}/{mode}": OWN,
    "POST /user/submissions/{submission_id}/cancel": "audited when it isn't one's own, in test_hosts_http",
    "DELETE /user/submissions/{submission_id}": OWN,
    "POST /admin/leaderboards/{leaderboard}/rejudge-estimate": READS,
    "POST /admin/deletions": "as each deletion, in test_deleting",
}
# Calls about runs that have been measured, in their own test.
MEASURED = (
    "POST /admin/leaderboards/{leaderboard}/rejudge-apply",
    "POST /admin/leaderboards/{leaderboard}/final",
    "POST /admin/leaderboards/{leaderboard}/final-apply",
    "POST /admin/leaderboards/{leaderboard}/final-forget",
    "POST /admin/submissions/{submission_id}/shadow",
)
# Calls that need a site which allows what they do, in test_warm.
WARM = ("POST /admin/warm", "POST /admin/warm/drain")
# Calls about scripts, in test_scripts.
SCRIPTS = ("POST /admin/scripts", "DELETE /admin/scripts/{script}")
# Commands without one.
UNAUDITED_COMMANDS = {
    "submit": OWN, "ask": OWN, "code": OWN, "nickname": OWN, "login": OWN, "join": OWN, "logout": OWN,
    "cancel": "audited when it isn't one's own",
    **dict.fromkeys(("context list", "context use", "context show", "context remove"), "only on one's own machine"),
    "final": "as an order, an application and a discard, in test_finals", "problem sync": "as its call",
    "rejudge": "as its call", "question rejudge": "as its call", "shadow order": "in the contract of the store",
    "run": "in test_scripts", "place reload": "as its call",
    "warm start": "in test_warm", "warm drain": "in test_warm",
    **dict.fromkeys(("up", "tick", "api", "demo", "bot run", "db upgrade", "db downgrade"), "runs or prepares it"),
    **dict.fromkeys(
        ("image build", "image pull", "image push", "site init", "place init slurm", "place init local",
         "place init github", "place init modal", "place init ray", "ray pool", "github install", "modal deploy",
         "problem import"),
        "files and accounts",
    ),
    **dict.fromkeys(
        ("audit", "board announcements", "board list", "board show", "question list", "question show",
         "submission list", "submission show", "submission code",
         "board times", "bot check", "config show", "config schema", "db check",
         "diff", "doctor", "github check", "history", "image list", "image verify", "intake show", "invite list",
         "limit show", "logs", "submission diff", "budget show", "grades why", "archive verify", "mcp",
         "modal check", "ray check", "problem list", "problem show", "problem pull", "problem verify", "profile",
         "shadow report", "site check", "place list", "place show", "place check", "place logs",
         "site list", "site render",
         "roster list", "roster show", "roster export",
         "site show", "site schema", "stats", "status", "triage", "try", "usage", "user list",
         "user token list", "warm list", "watch", "whoami", "why"),
        READS,
    ),
}  # fmt: skip


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot=BOT) as built:
        yield built


def repository(folder: Path) -> Path:
    """A git repository with a set of one problem."""
    shutil.copytree(TRANSPOSE, folder / "problems" / "turn")
    (folder / "problems" / "spring.yaml").write_text(
        "name: spring\ndescription: one problem\nproblems:\n  - directory: turn\n    name: turn\n"
        "    deadline: 2099-01-01\n    gpus: [H100]\n"
    )
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.edu"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "problems"]):
        subprocess.run([*git, *words], check=True)
    return folder


def calls(api: ServedApi, tmp_path: Path) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Every call of a host that changes something, in an order in which each works: its path and what is sent."""
    number = judged(api)
    ends = datetime(2099, 1, 1, tzinfo=UTC)
    api.store.boards.add("due", loading.load(TRANSPOSE), gpus=["H100"], deadline_at=ends, now=api.now)
    api.store.boards.add("over", loading.load(TRANSPOSE), gpus=["H100"], now=api.now)
    api.store.boards.close("over", now=api.now)
    board = "/admin/leaderboards/transpose"
    scan = tmp_path / "scan"
    shutil.copytree(TRANSPOSE, scan)
    pending = [api.store.tokens.issue(None, kind="pending", device="laptop", now=api.now) for _ in range(2)]
    (invited,) = api.store.invites.make(["transpose"], 1, by="root", now=api.now)[1]
    api.store.people.for_account("discord", "501", "eve", by="root", now=api.now)
    author = api.store.submissions.get(number).person_id  # type: ignore[arg-type]
    plain = api.store.questions.ask(author, "Why?", board="transpose", now=api.now)
    appeal = api.store.questions.ask(author, "Please.", submission=number, appeal=True, now=api.now)
    return {
        "POST /admin/stop": ("/admin/stop", {}),
        "POST /admin/start": ("/admin/start", {}),
        "POST /admin/submissions/{submission_id}/cancel": (f"/admin/submissions/{number}/cancel", {}),
        "POST /admin/leaderboards": ("/admin/leaderboards", {"json": {"directory": str(scan)}}),
        "POST /admin/leaderboards/{leaderboard}/visibility": (
            "/admin/leaderboards/scan/visibility", {"json": {"visibility": "closed"}},
        ),
        "POST /admin/leaderboards/{leaderboard}/extend": (
            f"{board}/extend", {"json": {"person": "person:ada", "until": "2099-01-01"}},
        ),
        "POST /admin/leaderboards/{leaderboard}/late": (
            "/admin/leaderboards/due/late", {"json": {"until": "2099-01-02", "percent": 10}},
        ),
        "POST /admin/leaderboards/{leaderboard}/grades": (f"{board}/grades", {"json": {"scheme": SCHEME}}),
        "POST /admin/leaderboards/{leaderboard}/finalise": (
            "/admin/leaderboards/over/finalise", {"json": {"finals": False}},
        ),
        "POST /admin/leaderboards/{leaderboard}/unfinalise": ("/admin/leaderboards/over/unfinalise", {"json": {}}),
        "PUT /admin/leaderboards/{leaderboard}/code": (f"{board}/code", {"json": {"rule": "consent"}}),
        "POST /admin/leaderboards/{leaderboard}/freeze": (f"{board}/freeze", {"json": {}}),
        "POST /admin/leaderboards/{leaderboard}/unfreeze": (f"{board}/unfreeze", {"json": {}}),
        "PUT /admin/leaderboards/{leaderboard}/rate-limits": (
            f"{board}/rate-limits", {"json": {"mode_category": "test", "max_submissions_per_hour": 5}},
        ),
        "DELETE /admin/leaderboards/{leaderboard}/rate-limits/{category}": (f"{board}/rate-limits/test", {}),
        "PUT /admin/leaderboards/{leaderboard}/quota": (f"{board}/quota", {"json": {"gpu_s_per_day": 60}}),
        "POST /admin/invites": ("/admin/invites", {"json": {"leaderboards": ["transpose"], "count": 1}}),
        "DELETE /admin/invites/{code}": (f"/admin/invites/{invited}", {}),
        "POST /admin/ban/{user_id}": ("/admin/ban/eve", {}),
        "DELETE /admin/ban/{user_id}": ("/admin/ban/eve", {}),
        "POST /admin/people": ("/admin/people", {"json": {"name": "bob", "provider": "github", "account": "7"}}),
        "POST /admin/link": ("/admin/link", {"json": {"token": pending[0], "person": "person:ada"}}),
        "POST /admin/leaderboards/upload": (
            "/admin/leaderboards/upload?name=sent&gpu=H100",
            {"files": {"file": ("reference.py", (TRANSPOSE.parent / "one_file/running_sum.py").read_bytes())}},
        ),
        "POST /admin/leaderboards/{leaderboard}/verify": (f"{board}/verify", {"json": {"mode": "test"}}),
        "POST /admin/leaderboards/{leaderboard}/rejudge-preview": (f"{board}/rejudge-preview", {"json": {}}),
        "POST /admin/update-problems": (
            "/admin/update-problems",
            {"json": {"repository": str(repository(tmp_path / "git")), "problem_set": "spring"}},
        ),
        "POST /admin/leaderboards/of-problem": (
            "/admin/leaderboards/of-problem", {"json": {"name": "again", "problem": "transpose", "gpus": ["H100"]}},
        ),
        "PATCH /admin/leaderboards/{leaderboard}": ("/admin/leaderboards/again", {"json": {"description": "another"}}),
        "POST /admin/problems": (
            "/admin/problems?name=sum",
            {"files": {"file": ("reference.py", (TRANSPOSE.parent / "one_file/running_sum.py").read_bytes())}},
        ),
        "POST /admin/users": ("/admin/users", {"json": {"name": "tom"}}),
        "PUT /admin/users/{user_id}/role": ("/admin/users/tom/role", {"json": {"role": "participant"}}),
        "PUT /admin/users/{user_id}/team": ("/admin/users/tom/team", {"json": {"team": "blue"}}),
        "PUT /admin/users/{user_id}/cluster_account": (
            "/admin/users/tom/cluster_account", {"json": {"cluster_account": "def-tom"}},
        ),
        "POST /admin/users/{user_id}/accounts": ("/admin/users/tom/accounts", {"json": {"account": "github:9"}}),
        "POST /admin/users/{user_id}/tokens": ("/admin/users/tom/tokens", {"json": {"device": "desk"}}),
        "DELETE /admin/users/{user_id}/tokens": ("/admin/users/tom/tokens", {}),
        "POST /admin/courses/{course}/import": (
            "/admin/courses/gpu/import", {"files": {"file": ("roster.csv", b"name,email\nzoe,zoe@example.edu\n")}},
        ),
        "PUT /admin/courses/{course}/people/{user_id}": (
            "/admin/courses/gpu/people/zoe@example.edu", {"json": {"section": "A"}},
        ),
        "PUT /admin/courses/{course}/budgets": ("/admin/courses/gpu/budgets", {"json": {"gpu_hours": 9}}),
        "POST /admin/courses/{course}/invitations": ("/admin/courses/gpu/invitations", {"json": {}}),
        "DELETE /admin/courses/{course}/people/{user_id}": ("/admin/courses/gpu/people/zoe@example.edu", {}),
        "PUT /admin/leaderboards/{leaderboard}/roles/{user_id}": (f"{board}/roles/tom", {"json": {"role": "grader"}}),
        "POST /admin/leaderboards/{leaderboard}/archive": (f"{board}/archive", {"json": {"place": "desk:/archive"}}),
        "GET /admin/leaderboards/{leaderboard}/worklog/{whose}": (f"{board}/worklog/tom", {}),
        "DELETE /admin/users/{user_id}": ("/admin/users/tom", {}),
        "POST /admin/leaderboards/{leaderboard}/rejudge-cancel": (f"{board}/rejudge-cancel", {}),
        "POST /admin/questions/{question_id}/rejudge": (
            f"/admin/questions/{appeal.id}/rejudge", {"json": {"act": "preview"}},
        ),
        "POST /admin/questions/{question_id}/answer": (
            f"/admin/questions/{appeal.id}/answer", {"json": {"text": "It is judged again."}},
        ),
        "POST /admin/questions/{question_id}/close": (f"/admin/questions/{plain.id}/close", {}),
        "POST /admin/places/{place}/drain": ("/admin/places/local/drain", {"json": {"why": "a fan"}}),
        "POST /admin/places/{place}/resume": ("/admin/places/local/resume", {"json": {}}),
        "POST /admin/reload": ("/admin/reload", {}),
        "GET /admin/leaderboards/{leaderboard}/export": (f"{board}/export", {}),
        "GET /admin/leaderboards/{leaderboard}/similar": (f"{board}/similar", {}),
        "GET /admin/leaderboards/{leaderboard}/names": (f"{board}/names", {}),
        "DELETE /admin/submissions/{submission_id}": (f"/admin/submissions/{number}", {}),
        "POST /admin/leaderboards/{leaderboard}/close": (f"{board}/close", {}),
        "DELETE /admin/leaderboards/{leaderboard}": ("/admin/leaderboards/scan", {}),
    }  # fmt: skip


def newest(store: PostgresStore) -> Any:
    return next(iter(store.events.audit_log(limit=1)), None)


def test_every_call_of_a_host_that_changes_something_is_in_the_audit_log(api: ServedApi, tmp_path: Path) -> None:
    hana = api.store.people.add("hana", "staff", now=api.now)
    token = api.store.tokens.issue(hana.id, device="laptop", now=api.now)
    done = set()
    with httpx.Client(base_url=api.url, timeout=120, headers={"Authorization": f"Bearer {token}"}) as http:
        for name, (path, sent) in calls(api, tmp_path).items():
            before = newest(api.store)
            answer = http.request(name.partition(" ")[0], path, **sent)
            assert answer.status_code == 200, (name, answer.text)
            line = newest(api.store)
            assert line != before, name
            told = {key: line.data.get(key) for key in ("by", "via", "where")}
            assert told == {"by": "hana", "via": "api", "where": "127.0.0.1"}, name
            done.add(name)
    with httpx.Client(base_url=api.url, timeout=120, headers={"Authorization": f"Bearer {BOT}"}) as bot:
        as_eve = {"X-Kbslurm-Acting-For": "discord:501"}
        fresh = api.store.tokens.issue(None, kind="pending", device="laptop", now=api.now)
        api.store.people.set_role(api.store.people.by_account("discord", "501").id, "staff", now=api.now)  # type: ignore[union-attr]
        for name, sent in {
            "POST /bot/people": {"json": {"account": "502", "name": "fay"}},
            "POST /bot/resync": {"headers": as_eve},
            "POST /bot/link": {"json": {"token": fresh}, "headers": {"X-Kbslurm-Acting-For": "discord:502"}},
        }.items():
            before = newest(api.store)
            assert bot.request("POST", name.partition(" ")[2], **sent).status_code == 200, name  # type: ignore[arg-type]
            line = newest(api.store)
            assert line != before and line.data["via"] == "discord", name
            done.add(name)
    made = {name for name in done if not name.startswith("GET")}
    by_pages = {  # they do the same acts
        "POST /staff/{act}", "POST /staff/board/{leaderboard}/{act}", "POST /staff/courses/{course}/import",
        "POST /staff/courses/{course}/{act}", "POST /staff/questions/{question_id}/{act}", "POST /staff/boards/new",
        "POST /staff/problems", "POST /staff/people/{person_id}/token", "POST /staff/run",
        "POST /staff/run/{script}/cancel", "POST /staff/triage",
    }  # fmt: skip
    assert changing_calls(api) - by_pages == made | set(UNAUDITED) | set(MEASURED) | set(WARM) | set(SCRIPTS)


def measure_all(api: ServedApi) -> None:
    """Every run that waits comes to its end, those of a final with its rivals' times too."""
    while True:
        slots = free_slots({"local": Puppet(slots={"H100": 9}).capacity()}, api.store.attempts.open())
        attempt = claim(api.store.queue, slots, api.now)
        if attempt is None:
            return
        work = api.store.attempts.work(attempt.id)
        told: dict[str, Any] = {"score_s": 0.5, "baseline_s": 0.5, "interval_s": [0.49, 0.51]}
        if rivals := work.problem.config.get("rivals"):
            told["rivals"] = [0.8 for _ in cast("list[Any]", rivals)]
        score(api.store, attempt, sealed_report(work, **told), api.now)


def test_every_call_about_measured_runs_is_in_the_audit_log(api: ServedApi) -> None:
    numbers = [judged(api, name) for name in ("ada", "bob")]
    hana = api.store.people.add("hana", "staff", now=api.now)
    token = api.store.tokens.issue(hana.id, device="laptop", now=api.now)
    board, gpu = "/admin/leaderboards/transpose", {"gpu": "H100"}
    acts: list[tuple[str, dict[str, Any]]] = [
        (f"{board}/final", {**gpu, "top": 2}),
        (f"{board}/final-forget", gpu),
        (f"{board}/final", {**gpu, "top": 2}),
        (f"{board}/final-apply", gpu),
        (f"{board}/rejudge-preview", {}),
        (f"{board}/rejudge-apply", {}),
        (f"/admin/submissions/{numbers[0]}/shadow", {"place": "local"}),
    ]
    done = set()
    with httpx.Client(base_url=api.url, timeout=120, headers={"Authorization": f"Bearer {token}"}) as http:
        for path, sent in acts:
            before = newest(api.store)
            answer = http.post(path, json=sent)
            assert answer.status_code == 200, (path, answer.text)
            line = newest(api.store)
            assert line != before, path
            told = {key: line.data.get(key) for key in ("by", "via", "where")}
            assert told == {"by": "hana", "via": "api", "where": "127.0.0.1"}, path
            done.add(f"POST {path}")
            measure_all(api)
    shown = {
        path.replace("transpose", "{leaderboard}").replace(f"/{numbers[0]}/", "/{submission_id}/") for path in done
    }
    assert shown == {*MEASURED, "POST /admin/leaderboards/{leaderboard}/rejudge-preview"}


def changing_calls(api: ServedApi) -> set[str]:
    """Every call of the app that isn't a GET."""
    routes = [route for route in create_app(api.context).routes if isinstance(route, APIRoute)]
    return {f"{method} {route.path}" for route in routes for method in route.methods or () if method != "GET"}


@pytest.mark.parametrize(
    "act",
    [
        "pause",
        "resume",
        "cancel",
        "remove",
        "add",
        "ban",
        "unban",
        "delete",
        "rank",
        "team",
        "account",
        "link",
        "revoke",
    ],
)
def test_every_form_of_the_staff_page_is_in_the_audit_log(api: ServedApi, act: str) -> None:
    ada = api.store.people.ensure("ada")
    number = accept(api.store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], api.now).submission_id
    if act == "resume":  # what changes nothing is only said
        api.store.settings.set_accepts_jobs(False, by="root", now=api.now)
    if act == "unban":
        api.store.people.ban(ada.id, by="root", now=api.now)
    hana = api.store.people.add("hana", "staff", now=api.now)
    session = api.store.tokens.issue(hana.id, kind="web", now=api.now)

    class Browser:
        cookies: Mapping[str, str] = {SESSION: session}

    form = {
        "csrf": Visitors(api.context).csrf(Browser()),  # type: ignore[arg-type]
        "person": "zoe" if act == "add" else "ada",
        "submission": str(number),
        "confirmed": "yes",
        "role": "participant",
        "team": "red",
        "account": "discord:77" if act == "link" else "proj42",
    }
    with httpx.Client(base_url=api.url, timeout=60, cookies={SESSION: session}) as http:
        assert http.post(f"/staff/{act}", data=form).status_code == 303
        line = newest(api.store)
        assert {key: line.data[key] for key in ("by", "via", "where")} == {
            "by": "hana", "via": "page", "where": "127.0.0.1",
        }  # fmt: skip
        assert "hana</td><td>page 127.0.0.1" in http.get("/staff").text


def leaves(listed: Mapping[str, Command | Group], before: str = "") -> Iterator[str]:
    for name, one in listed.items():
        if isinstance(one, Group):
            yield from leaves(one.commands, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_of_a_host_that_changes_something_is_in_the_audit_log(database_url: str, tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    (tmp_path / "kbslurm.toml").write_text('[daemon.local]\nname = "local"\nslots = { H100 = 1 }\n')
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(SCHEME)
    with PostgresStore(database_url) as store:
        store.people.add("ada")
        pending = store.tokens.issue(None, kind="pending", device="laptop")
        commands: dict[str, tuple[str, ...]] = {
            "user add": ("grace",),
            "user role": ("grace", "staff"),
            "user team": ("grace", "blue"),
            "user account": ("grace", "def-hopper"),
            "user ban": ("grace",),
            "user unban": ("grace",),
            "user link": ("grace", pending),
            "user token issue": ("grace",),
            "user token revoke": ("grace",),
            "problem add": (str(TRANSPOSE),),
            "board create": ("turn", "--problem", "transpose", "--gpus", "H100", "--deadline", "2098-12-31"),
            "board edit": ("turn", "--description", "another"),
            "board extend": ("turn", "grace", "2099-01-01"),
            "board late": ("turn", "--until", "2099-01-03", "--percent", "10"),
            "board freeze": ("turn",),
            "board unfreeze": ("turn",),
            "board code": ("turn", "consent"),
            "limit rate": ("turn", "test", "5"),
            "limit quota": ("turn", "60"),
            "intake stop": (),
            "intake start": (),
            "place drain": ("local", "--why", "a fan"),
            "place resume": ("local",),
            "export": ("turn",),
            "similar": ("turn",),
            "board names": ("turn",),
            "grades show": ("turn", "--scheme", str(scheme)),
            "invite make": ("turn",),
            "roster import": ("roster.csv", "--course", "gpu-2026"),
            "roster set": ("zoe@example.edu", "--section", "A"),
            "budget set": ("gpu-2026", "--gpu-hours", "9", "--each-person"),
            "budget clear": ("gpu-2026", "--each-person"),
            "roster invite": (),
            "roster remove": ("zoe@example.edu",),
            "board role": ("turn", "grace", "grader"),
            "question answer": ("1", "Yes.", "--to-all"),
            "question close": ("2",),
            "archive write": ("turn", "--out", str(tmp_path / "archive")),
            "worklog": ("turn", "grace"),
            "user delete": ("grace", "--yes"),
            "board close": ("turn",),
            "board finalise": ("turn", "--without-finals"),
            "board delete": ("turn",),
        }
        (tmp_path / "roster.csv").write_text("name,email\nzoe,zoe@example.edu\nyan,yan@example.edu\n")
        for name, words in commands.items():
            before = newest(store)
            told = kbslurm(*name.split(), *words)
            assert told.code == 0, (name, told.err)
            line = newest(store)
            assert line != before, name
            assert {key: line.data.get(key) for key in ("by", "via", "where")} == {
                "by": "ada", "via": "command", "where": account_and_host(),
            }, name  # fmt: skip
            if name == "board create":
                for text in ("May we?", "When?"):
                    assert kbslurm("ask", text, "--board", "turn", "--as", "grace").code == 0
            if name == "invite make":
                assert kbslurm("invite", "revoke", told.out.split()[0]).code == 0
                assert newest(store).kind == "staff.invite.revoke" or newest(store) != line
    assert set(leaves(COMMANDS)) == {*commands, "invite revoke", *UNAUDITED_COMMANDS}
    assert "command" in kbslurm("audit").out


def test_a_staff_member_who_cancels_with_the_command_line_is_in_the_audit_log(
    api: ServedApi, database_url: str, tmp_path: Path
) -> None:
    number = judged(api)
    api.store.people.add("hana", "staff", now=api.now)
    with httpx.Client(base_url=api.url, timeout=60) as http:
        token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
        sent = {"file": ("k.py", GOOD)}
        told = http.post("/submission/transpose/H100/test", files=sent, headers={"X-Popcorn-Cli-Id": token}).json()
        number = told["details"]["id"]
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    assert kbslurm("cancel", str(number), "--as", "hana").code == 0
    line = newest(api.store)
    assert (line.kind, line.subject, line.data["by"]) == ("staff.cancel", f"submission:{number}", "hana")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM event WHERE kind LIKE 'staff.%'",
        "UPDATE event SET data = '{}' WHERE kind LIKE 'staff.%'",
        "TRUNCATE event CASCADE",
    ],
)
def test_the_audit_log_is_append_only_in_the_database(database_url: str, statement: str) -> None:
    with PostgresStore(database_url) as store:
        store.people.add("grace", by="ada")
        with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.IntegrityError):
            connection.execute(statement)
        assert newest(store).data["name"] == "grace"


def test_a_host_who_makes_somebodys_own_calls_for_them_is_named(api: ServedApi) -> None:
    """What was done bears only that person's name: a submission in it, one that is deleted, access to a board."""
    ada = api.store.people.ensure("ada")
    hana = api.store.people.add("hana", "staff", now=api.now)
    (code,) = api.store.invites.make(["transpose"], 1, by="root", now=api.now)[1]
    upload = {"files": {"file": ("k.py", GOOD)}}
    acts: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/submission/transpose/H100/test", upload),
        ("POST", "/user/submissions?leaderboard=transpose&gpu=H100&mode=test", upload),
        ("POST", "/user/submissions/1/cancel", {}),
        ("DELETE", "/user/submissions/1", {}),
        ("POST", "/user/join", {"json": {"code": code}}),
    ]
    token = api.store.tokens.issue(hana.id, device="laptop", now=api.now)
    for_ada = {"Authorization": f"Bearer {token}", "X-Kbslurm-Acting-For": "person:ada"}
    with httpx.Client(base_url=api.url, timeout=120, headers=for_ada) as http:
        for method, path, sent in acts:
            answer = http.request(method, path, **sent)
            assert answer.status_code < 300, (path, answer.text)
            line = newest(api.store)
            assert line is not None, path
            assert (line.kind, line.subject) == ("staff.act_for", f"person:{ada.id}"), path
            assert line.data == {
                "call": f"{method} {path.partition('?')[0]}", "by": "hana", "via": "api", "where": "127.0.0.1",
            }  # fmt: skip
        told = newest(api.store)
        assert http.get("/user/me").json()["name"] == "ada"
        assert http.request("DELETE", "/user/submissions/9").status_code == 404
        assert http.post("/user/logout").status_code == 400
        assert newest(api.store) == told, "nothing was changed"


def test_only_owners_act_for_staff(api: ServedApi) -> None:
    people = api.store.people
    hosts = {name: people.add(name, role, now=api.now) for name, role in (("hana", "staff"), ("olga", "owner"))}  # type: ignore[arg-type]
    people.add("mia", "staff", now=api.now)
    tokens = {name: api.store.tokens.issue(one.id, now=api.now) for name, one in hosts.items()}
    whom = {"ada": "participant", "hana": "staff", "mia": "staff", "olga": "owner"}
    people.ensure("ada")
    with httpx.Client(base_url=api.url, timeout=120) as http:
        allowed = {
            name: [
                one
                for one in whom
                if http.get(
                    "/user/me", headers={"Authorization": f"Bearer {token}", "X-Kbslurm-Acting-For": f"person:{one}"}
                ).status_code
                == 200
            ]
            for name, token in {**tokens, "admin": ADMIN}.items()
        }
    assert allowed == {"hana": ["ada", "hana"], "olga": [*whom], "admin": [*whom]}
