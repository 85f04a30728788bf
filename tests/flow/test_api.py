"""The API beside popcorn's calls: feed, acting for others, secrets, OpenAPI, limits in the rows, problems from git."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api.rate_limits import Limit, Limits
from kbslurm.api.server import Serving
from kbslurm.client.errors import ServerGone
from kbslurm.client.http import Client
from kbslurm.config import shared_folders
from kbslurm.contract.models import MODELS
from kbslurm.contract.usage import UsageTold
from kbslurm.domain.access import Role
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import PersonId, Slot, SubmissionId
from kbslurm.errors import DeadlinePassed, Invalid, NotFound, QuotaSpent, Refused, Unauthenticated
from kbslurm.flow.place import Place
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import START, HandClock
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served
from tests.services import GIT, need

PLANTED_LOG = "planted-secret-log-5f2c"
PLANTED_SPEC = "planted-hidden-spec-91aa"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


PEOPLE: tuple[tuple[str, Role], ...] = (("ada", "participant"), ("grace", "staff"))


def judged(api: ServedApi, by: str = "ada") -> int:
    """A leaderboard submission with a verdict and secrets in its report; nothing really runs."""
    store, now = api.store, api.now
    person = store.people.ensure(by)
    receipt = accept(store.intake, person.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], now)
    puppet = Puppet(slots={"H100": 9})
    from kbslurm.flow.queue import claim, free_slots

    attempt = claim(store.queue, free_slots({"puppet": puppet.capacity()}, store.attempts.open()), now)
    assert attempt is not None
    assert Place(backend=puppet).name == "puppet"
    report = sealed_report(
        store.attempts.work(attempt.id),
        secret_log=PLANTED_LOG,
        tests=[wire.TestResult(phase="hidden", index=0, spec=PLANTED_SPEC, status="pass")],
        benchmarks=[
            wire.BenchmarkResult(phase="hidden", index=0, spec=PLANTED_SPEC, status="pass", calls=3, mean_ns=5.0)
        ],
    )
    score(store, attempt, report, now)
    return receipt.submission_id


# ---------------------------------------------------------------------------------------------------------- the client


def test_the_client_says_what_the_server_meant(api: ServedApi) -> None:
    number = judged(api)
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    with Client(api.url, token=token) as ada, Client(api.url) as nobody, Client(api.url, admin="x") as wrong:
        assert ada.me().name == "ada"
        assert ada.board("TRANSPOSE").gpus == ("H100", "A100")
        told = ada.submission(number)
        assert (told.status, told.done, told.queue) == ("succeeded", True, None)
        (place,) = ada.ranking("transpose", "h100")
        assert (place.rank, place.person, place.submission_id) == (1, "ada", number)
        waiting = ada.submit("transpose", "A100", "test", "k.py", GOOD)
        assert waiting.queue.place == 1
        assert [line.id for line in ada.submissions("transpose")] == [waiting.submission_id, number]
        ada.cancel(waiting.submission_id)
        assert ada.submission(waiting.submission_id).error == "it was cancelled"
        ada.delete(waiting.submission_id)
        for call, kind in (
            (lambda: ada.submission(waiting.submission_id), NotFound),
            (lambda: ada.board("nowhere"), NotFound),
            (lambda: ada.submit("transpose", "A100", "guess", "k.py", GOOD), Invalid),
            (lambda: ada.join("none"), NotFound),
            (lambda: nobody.submissions(), Invalid),
            (lambda: wrong.overview(), Unauthenticated),
            (lambda: ada.overview(), Unauthenticated),
        ):
            with pytest.raises(kind):
                call()
    with Client("http://127.0.0.1:9") as gone, pytest.raises(ServerGone):
        gone.boards()


def test_hosts_are_told_what_was_used_and_competitors_no_money(api: ServedApi) -> None:
    store, now = api.store, api.now
    ada = store.people.ensure("ada")
    store.people.set_team(ada.id, "blue")
    for _ in range(2):
        accept(store.intake, ada.id, "transpose", "k.py", GOOD, "test", ["H100"], now)
    slot = Slot(backend="modal", gpu="H100", free=1, overflow=True, price=0.01, why="home is down")
    attempt = store.queue.claim([slot], now, rules=Rules())
    assert attempt is not None
    tokens = {name: store.tokens.issue(store.people.ensure(name, role).id, now=now) for name, role in PEOPLE}
    with Client(api.url, admin=ADMIN) as host, Client(api.url, token=tokens["ada"]) as mine:
        assert mine.me().team == host.person("ada").team == "blue"
        told = host.usage(by="team", month=f"{now:%Y-%m}", board="TRANSPOSE")
        UsageTold.model_validate(told)
        (row,) = told["rows"]
        assert (row["name"], row["open"], told["board"]) == ("blue", 1, "transpose")
        assert row["money"] == told["money"] > 0
        assert host.usage() == {**host.usage(by="board"), "by": "board"}
        assert host.usage(month="2020-01")["rows"] == []
        for wrong, kind in (({"month": "soon"}, Invalid), ({"board": "nope"}, NotFound), ({"by": "colour"}, Invalid)):
            with pytest.raises(kind):
                host.usage(**wrong)
        with pytest.raises(Unauthenticated):
            mine.usage()
        (why,) = mine.why(attempt.run_id)
        assert why["attempts"][0]["cost"] is None
    with Client(api.url, token=tokens["grace"]) as staff:
        (why,) = staff.why(attempt.run_id)
        assert why["attempts"][0]["cost"] > 0


def person_for(api: ServedApi, account: str, name: str) -> dict[str, Any]:
    """The person with this Discord account, as a program of the host's asks for them."""
    wanted = {"name": name, "provider": "discord", "account": account}
    headers = {"Authorization": f"Bearer {ADMIN}"}
    found: dict[str, Any] = httpx.post(f"{api.url}/admin/people", json=wanted, headers=headers, timeout=60).json()
    return found


def test_the_hosts_client_acts_for_a_person_by_their_account(api: ServedApi) -> None:
    with Client(api.url, admin=ADMIN) as host:
        person = person_for(api, "8138", "ada")
        assert person_for(api, "8138", "other") == person
        assert person_for(api, "9", "ADA")["name"] != "ada"
        ada = host.acting_for("discord:8138")
        number = ada.submit("transpose", "H100", "test", "k.py", GOOD).submission_id
        assert ada.submission(number).person_id == int(person["id"])
        with pytest.raises(Refused):
            host.acting_for("discord:9").submission(number)
        with pytest.raises(NotFound):
            host.acting_for("github:8138").submission(number)
        with pytest.raises(NotFound):
            host.acting_for("carrier:1").me()
        assert host.overview()["queue"][0]["gpu"] == "H100"
    # The header alone makes nobody anybody.
    token = api.store.tokens.issue(api.store.people.ensure("eve").id, now=api.now)
    headers = {"X-Kbslurm-Acting-For": "discord:8138", "X-Popcorn-Cli-Id": token}
    with httpx.Client(base_url=api.url, headers=headers, timeout=60) as eve:
        assert eve.get("/user/me").json()["name"] == "eve"
        assert eve.get("/user/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401


# ------------------------------------------------------------------------------------------------------------- the feed


def test_the_feed_goes_on_from_every_token_and_brings_what_happens(api: ServedApi) -> None:
    judged(api)
    with Client(api.url, admin=ADMIN) as host:
        every = list(host.events(stream=False))
        kinds = [event.kind for event in every]
        assert kinds.index("submission.accepted") < kinds.index("run.launching") < kinds.index("run.scored")
        for n, event in enumerate(every):
            assert [one.token for one in host.events(event.token, stream=False)] == [e.token for e in every[n + 1 :]]
        for bad in ("e999999999", "5", "x", "e-1"):
            with pytest.raises(Invalid):
                list(host.events(bad, stream=False))
        live = host.events("now")
        got: list[str] = []
        reader = threading.Thread(target=lambda: got.append(next(live).kind))
        reader.start()
        while reader.is_alive():
            # Whenever the reader began, one of these comes after it.
            api.store.events.audit("host", "waved", "nobody", now=api.now)
            reader.join(0.5)
        assert got == ["staff.waved"]
        live.close()  # type: ignore[attr-defined]
    for client in (api.client("ada"), api.client(None)):
        assert client.call("GET", "/events").status == 401


# -------------------------------------------------------------------------------------------------------------- secrets


def test_no_answer_holds_a_secret(api: ServedApi, database_url: str) -> None:
    """Every GET as anybody, as the owner, as another, and as a host: what was planted is only where it may be."""
    number = judged(api)
    spec = api.client(None).call("GET", "/openapi.json").json()
    with psycopg.connect(database_url) as connection:
        seeds = connection.execute("SELECT secret_seed FROM run UNION SELECT secret_seed FROM leaderboard").fetchall()
        keys = connection.execute("SELECT encode(key, 'hex'), nonce FROM attempt").fetchall()
        hashes = connection.execute("SELECT encode(hash, 'hex') FROM token").fetchall()
    reference = (shared_folders.path("examples") / "transpose/reference.py").read_text()
    hidden = [text for row in (*seeds, *keys, *hashes) for text in row] + [ADMIN, reference[:200], "Traceback"]
    hidden += [str(api.context.config.database_url)]
    ada = api.client("ada")
    hosts = api.client("hana", role="staff")
    hosts.admin = ADMIN
    told = {"leaderboard": "transpose", "gpu": "H100", "submission_id": str(number), "user_id": "1"}
    told |= {"provider": "github", "name": "trace.json", "run_id": str(number), "problem": "transpose"}
    told |= {"job_id": str(number), "index": "0", "course": "gpu", "object_id": f"{number}-H100"}
    told |= {"other_id": str(number), "question_id": "1", "whose": "ada", "script": str(number)}
    told |= {"place": "local", "order": "none"}
    roster = "name,email,student id\nEmmy Noether,emmy@example.edu,771882\nada,ada@example.edu,771815\n"
    imported = httpx.post(
        f"{api.url}/admin/courses/gpu/import", files={"file": ("roster.csv", roster.encode())},
        headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60,
    )  # fmt: skip
    assert imported.status_code == 200, imported.text
    seen = 0
    for path, row in spec["paths"].items():
        if "get" not in row:
            continue
        real = re.sub(r"{(\w+)}", lambda found: told[found[1]], path)
        real += "?stream=false" if path.endswith(("/events", "/event-feed")) else ""
        real += "?provider=discord" if path == "/auth/init" else ""
        for client, as_host in (
            (api.client(None), False),
            (ada, False),
            (api.client("eve"), False),
            (hosts, True),
        ):
            answer = client.call("GET", real, admin=as_host)
            seen += answer.status == 200
            assert answer.status < 500, (real, answer.body)
            text = answer.body.decode()
            for secret in hidden:
                assert secret not in text, f"{real} tells {secret[:20]}…"
            if not as_host:
                assert PLANTED_LOG not in text and PLANTED_SPEC not in text, real
                assert "emmy@" not in text and "771882" not in text, f"{real} tells what a roster says of somebody"
    assert seen > 30
    shown = hosts.call("GET", f"/admin/submissions/{number}", admin=True).good()["submission"]
    assert shown["secret_log"] == PLANTED_LOG


def test_whatever_can_be_got_has_a_head(api: ServedApi) -> None:
    with httpx.Client(base_url=api.url, timeout=30) as anybody:
        for path in ("/", "/health", "/leaderboards", "/nowhere", "/user/me", "/events?since_token=now"):
            plain = {"Accept-Encoding": "identity"}
            whole, head = anybody.get(path, headers=plain), anybody.head(path, headers=plain)
            assert (head.status_code, head.content) == (whole.status_code, b""), path
            assert head.headers["content-type"] == whole.headers["content-type"]
            assert head.headers["content-length"] == str(len(whole.content))
        assert anybody.post("/health").status_code == 405
        # And a stream's head ends, so that its connection serves again
        headers = {"Authorization": f"Bearer {ADMIN}"}
        for path in ("/events?since_token=now", "/events?since_token=now&stream=false"):
            head = anybody.head(path, headers=headers)
            assert (head.status_code, head.content) == (200, b"")
            assert anybody.get("/health").json() == {"status": "ok"}


def test_every_answer_carries_safe_headers_and_says_no_software(api: ServedApi) -> None:
    with httpx.Client(base_url=api.url, timeout=60) as anybody:
        for path in ("/health", "/nowhere", "/admin/stats"):
            answer = anybody.get(path)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
        assert anybody.post("/user/join", content=b"x" * 2_000_000).status_code == 400, "who are you?"
        assert anybody.get("/health", headers={"X-Long": "y" * 100_000}).status_code in (400, 431)
        known = {"X-Popcorn-Cli-Id": api.client().cli_id or "", "Content-Type": "application/json"}
        assert anybody.post("/user/join", content=b"x" * 2_000_000, headers=known).status_code == 413
        assert anybody.post("/user/join", content=b"{", headers=known).status_code == 422


def test_registering_without_end_is_refused_by_address_and_told_in_the_shape_that_was_asked_for(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Limits(register=Limit(burst=9, per_minute=1))
    monkeypatch.setattr(Limits, "of", lambda _: few)
    forwarded = {"X-Forwarded-For": "6.6.6.6, 203.0.113.9"}
    with (
        Serving(api.context, host="127.0.0.1", port=0) as server,
        httpx.Client(base_url=server.url, headers=forwarded, timeout=60) as greedy,
    ):
        answers = [greedy.get("/auth/init") for _ in range(10)]
        assert [one.status_code for one in answers] == [200] * 9 + [429]
        assert "registered from your address" in answers[-1].json()["detail"] and answers[-1].headers["retry-after"]
        page = greedy.get("/auth/init", headers={"Accept": "text/html"})
        assert page.status_code == 429 and "<!doctype html>" in page.text
        assert greedy.get("/leaderboards").status_code == 200
        assert greedy.get("/auth/init", headers={"X-Forwarded-For": "203.0.113.10"}).status_code == 200


def test_a_slow_client_holds_nobody_up(api: ServedApi) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(60)]
    try:
        for one in slow:
            one.sendall(b"POST /submission/transpose/H100/test HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\nab")
        assert api.client("ada").gpus("transpose") == ["H100", "A100"]
    finally:
        for one in slow:
            one.close()


def test_many_follow_at_once_and_all_are_let_go_when_the_server_stops(database_url: str, tmp_path: Path) -> None:
    followers: list[socket.socket] = []
    try:
        with served(database_url, tmp_path, clock=HandClock()) as api:
            host, port = api.url.removeprefix("http://").split(":")
            asked = f"GET /events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
            for _ in range(200):
                followers.append(socket.create_connection((host, int(port)), timeout=60))
                followers[-1].sendall(asked.encode())
            for one in followers:
                assert one.recv(12) == b"HTTP/1.1 200"
            assert api.client("ada").gpus("transpose") == ["H100", "A100"]
            api.store.events.audit("host", "waved", "nobody", now=api.now)
            for one in followers:
                text = b""
                while b"staff.waved" not in text:
                    piece = one.recv(65_536)
                    assert piece, text
                    text += piece
        for one in followers:
            while one.recv(65_536):
                pass
    finally:
        for one in followers:
            one.close()


# -------------------------------------------------------------------------------------------------------------- OpenAPI


def test_the_document_is_complete_and_its_examples_fit_their_shapes(api: ServedApi) -> None:
    spec = api.client(None).call("GET", "/openapi.json").json()

    checked = 0
    for name, schema in spec["components"]["schemas"].items():
        shape = MODELS.get(name)
        if shape is not None and "example" in schema:
            shape.model_validate(schema["example"])
            checked += 1
    assert checked > 25
    for path, row in spec["paths"].items():
        for method, call in row.items():
            assert call.get("description"), f"{method} {path} says nothing of itself"
            assert {"422", "500", "503"} <= set(call["responses"]), (method, path)


@pytest.mark.parametrize("named", ["/srv/\x00", "/" + "x" * 300, "\ud800"])
def test_a_name_that_no_file_can_have_is_no_directory(api: ServedApi, named: str) -> None:
    host = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    with httpx.Client(base_url=api.url, headers=host, timeout=60) as http:
        for path, key in (("/admin/leaderboards", "directory"), ("/admin/update-problems", "repository")):
            answer = http.post(path, content=json.dumps({key: named}))
            assert answer.status_code in (400, 404, 422) and set(answer.json()) == {"detail"}, answer.text


NASTY = ("", "\x00", "\ud800", "x" * 70, "ä", "%00", "../..", "-1", str(2**63), "NaN", "{}", "' OR 1=1 --", "a\r\nb")


def test_whatever_is_sent_no_call_breaks_or_answers_what_it_does_not_say(api: ServedApi) -> None:
    """Every call of the document with values that nobody means: no 5xx, no status that isn't in the document."""
    judged(api)
    spec = api.client(None).call("GET", "/openapi.json").json()
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    bodies: list[bytes] = [b"", b"[]", b"{}", b"{", b"null", b'"x"', b"\xff"]
    odd: list[Any] = [*NASTY, None, 0, -1, 1e300, True, [], {}, ["\x00"], ["transpose", "\ud800"]]
    words = [json.dumps(one) for one in odd]
    headers = {"X-Popcorn-Cli-Id": token, "Authorization": f"Bearer {ADMIN}"}
    asked = 0
    with httpx.Client(base_url=api.url, headers=headers, timeout=60) as http:
        for path, row in spec["paths"].items():
            for method, call in row.items():
                if path in ("/events", "/admin/update-problems"):
                    continue
                told = {str(code) for code in call["responses"]} | {"404", "405", "413"}
                fields = _fields(spec, call)
                for n, nasty in enumerate(NASTY):
                    quoted = httpx.QueryParams({"x": nasty.encode("utf-8", "replace").decode()})
                    real = re.sub(r"{\w+}", str(quoted)[2:] or "%20", path)
                    query = {
                        p["name"]: nasty.encode("utf-8", "replace").decode()
                        for p in call.get("parameters", ())
                        if p["in"] == "query"
                    }
                    sent: dict[str, Any] = {}
                    if fields and n < len(bodies):
                        sent["content"] = bodies[n]
                    elif fields:
                        sent["content"] = (
                            "{" + ",".join(f'"{f}":{words[(n + k) % len(words)]}' for k, f in enumerate(fields)) + "}"
                        )
                    if fields:
                        sent["headers"] = {"Content-Type": "application/json"}
                    answer = http.request(method.upper(), real, params=query, **sent)
                    asked += 1
                    assert answer.status_code < 500, (method, real, query, sent, answer.text)
                    assert str(answer.status_code) in told, (method, real, query, sent, answer.status_code, answer.text)
                    if answer.status_code >= 400:
                        assert set(answer.json()) == {"detail"}, (method, real, answer.text)
        for field in ("code",):
            for word in words:
                assert (
                    http.post(
                        "/user/join", content=f'{{"{field}":{word}}}', headers={"Content-Type": "application/json"}
                    ).status_code
                    < 500
                )
    assert asked > 400


def _fields(spec: dict[str, Any], call: dict[str, Any]) -> list[str]:
    """The names of the JSON body's fields, where the call takes one."""
    content = call.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return list(spec["components"]["schemas"][name]["properties"]) if name else []


# ------------------------------------------------------------------------------------------------- limits in the rows


def submit(api: ServedApi, by: PersonId, mode: Any = "test") -> SubmissionId:
    return accept(api.store.intake, by, "transpose", "k.py", GOOD, mode, ["H100"], api.now).submission_id


def test_an_extension_is_one_persons(api: ServedApi) -> None:
    ada, bob = (api.store.people.add(name, now=START).id for name in ("ada", "bob"))
    api.store.boards.set_deadline("transpose", START + timedelta(hours=1), now=START)
    with Client(api.url, admin=ADMIN) as host:
        host.extend("transpose", "person:ada", (START + timedelta(hours=3)).isoformat())
        clock = api.context.clock
        assert isinstance(clock, HandClock)
        clock.go(2 * 3600)
        submit(api, ada)
        with pytest.raises(DeadlinePassed):
            submit(api, bob)
        host.extend("transpose", "person:ada", None)
        with pytest.raises(DeadlinePassed):
            submit(api, ada)


def test_two_submissions_at_once_do_not_slip_under_the_rate(api: ServedApi) -> None:
    ada = api.store.people.add("ada", now=START).id
    api.store.limits.set_rate("transpose", "test", 2, by="host", now=START)
    came: list[str] = []

    def one() -> None:
        try:
            submit(api, ada)
            came.append("in")
        except QuotaSpent:
            came.append("out")

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == ["in"] * 2 + ["out"] * 6
    submit(api, ada, "leaderboard")
    staff = api.store.people.add("hana", role="staff", now=START).id
    for _ in range(3):
        submit(api, staff)


def test_a_quota_counts_what_the_runs_held(api: ServedApi, database_url: str) -> None:
    judged(api, "ada")
    ada, bob = api.store.people.ensure("ada").id, api.store.people.ensure("bob").id
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE attempt SET started_at = %s, ended_at = %s", (START, START + timedelta(seconds=50)))
    clock = api.context.clock
    assert isinstance(clock, HandClock)
    clock.go(60)
    api.store.limits.set_quota("transpose", 50.0, by="host", now=START)
    with pytest.raises(QuotaSpent) as refused:
        submit(api, ada)
    assert (refused.value.used, refused.value.limit) == (50.0, 50.0)
    submit(api, bob)
    clock.go(86_400)
    submit(api, ada)


# --------------------------------------------------------------------------------------------------- problems from git


def git(place: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.edu"]
    need(GIT)
    subprocess.run(["git", "-C", str(place), *who, *words], check=True, capture_output=True)


def test_problems_come_from_git_and_change_by_versions(api: ServedApi, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    sets = repository / "problems"
    (sets / "sort").mkdir(parents=True)
    for file in (shared_folders.path("examples") / "transpose").glob("*.*"):
        (sets / "sort" / file.name).write_bytes(file.read_bytes())
    (sets / "broken").mkdir()
    (sets / "broken" / "task.yml").write_text("lang: py\n")
    (tmp_path / "outside.yml").write_text("lang: py\n")
    (sets / "away").symlink_to(tmp_path)
    rows = [
        {"directory": "sort", "name": "sort", "deadline": "2099-01-01 18:00", "gpus": ["H100"]},
        {"directory": "broken", "name": "broken", "deadline": "2099-01-01", "gpus": ["H100"]},
    ]

    def commit() -> None:
        told = {"name": "spring", "deadline": "2099-01-01", "description": "", "problems": rows}
        (sets / "spring.yaml").write_text(json.dumps(told))
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", "more")

    git(tmp_path, "init", "-q", "-b", "main", str(repository))
    commit()
    with Client(api.url, admin=ADMIN) as host:
        first = host.update_problems(str(repository), "spring")
        assert first["created"] == ["sort"] and first["updated"] == [], first
        assert [row["name"] for row in first["errors"]] == ["broken"]
        assert str(tmp_path) not in json.dumps(first["errors"])
        again = host.update_problems(f"file://{repository}", branch="main")
        assert again["created"] == [] and again["skipped"] == [{"name": "sort", "reason": "unchanged"}]
        # GPUs and deadlines are taken over; a changed problem only by force once somebody has submitted
        ada = api.store.people.add("ada", now=START).id
        accept(api.store.intake, ada, "sort", "k.py", GOOD, "test", ["H100"], api.now)
        rows[0] |= {"gpus": ["H100", "A100"], "deadline": "2099-02-01"}
        task = sets / "sort" / "task.yml"
        task.write_text(re.sub(r"(?m)^test_timeout:.*$\n?", "", task.read_text()) + "\ntest_timeout: 77\n")
        commit()
        before = api.store.boards.find("sort")
        assert before is not None
        kept = host.update_problems(str(repository), "spring.yaml")
        after = api.store.boards.find("sort")
        assert after is not None and after.gpus == ("H100", "A100") and after.deadline_at != before.deadline_at
        assert kept["updated"] == ["sort"] and "force" in kept["skipped"][0]["reason"]
        assert after.problem_version_id == before.problem_version_id
        forced = host.update_problems(str(repository), "spring", force=True)
        live = api.store.boards.find("sort")
        assert forced["updated"] == ["sort"] and live is not None
        assert live.problem_version_id != before.problem_version_id and live.problem.limits.test_s == 77
        assert api.store.problems.of_version(before.problem_version_id).limits.test_s != 77
        rows.append({"directory": "away", "name": "away", "deadline": "2099-01-01", "gpus": ["H100"]})
        commit()
        (outside,) = host.update_problems(str(repository), "spring")["errors"]
        assert outside["name"] == "spring" and str(tmp_path) not in outside["error"]
        for wrong in ("ext::sh -c id", "--upload-pack=id", "../up", "http://127.0.0.1:9/x", str(tmp_path / "none")):
            with pytest.raises(Invalid):
                host.update_problems(wrong)
        for ref in ("--exec=id", "a..b", "none-of-that-name"):
            with pytest.raises(Invalid):
                host.update_problems(str(repository), "spring", branch=ref)
        for name in ("../../etc/passwd", "/etc/passwd", "winter"):
            with pytest.raises((Invalid, NotFound)):
                host.update_problems(str(repository), name)
