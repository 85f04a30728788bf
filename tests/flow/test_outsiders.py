"""What somebody tries who has no right to it: other sites' forms, other people's tokens, words meant for operators."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from kbslurm.api.sessions import SESSION
from kbslurm.errors import Invalid
from kbslurm.store import migrate
from kbslurm.store.embedded import Embedded
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

PATIENCE_S = 90.0
BOT = "the-bots-own-token"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot=BOT) as built:
        yield built


@pytest.fixture
def http(api: ServedApi) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, timeout=PATIENCE_S) as client:
        yield client


# -------------------------------------------------------------------------------------------------- other sites' forms

FOREIGN = ["https://evil.example", "http://127.0.0.1.evil.example", "null", "http://127.0.0.1:1", "evil"]


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_sites_form_signs_nobody_in(api: ServedApi, http: httpx.Client, origin: str) -> None:
    """Over plain HTTP browsers send no Sec-Fetch-Site, only Origin: somebody signed in as the attacker would paste
    their tokens there."""
    token = api.store.tokens.issue(api.store.people.ensure("eve").id, now=api.now)
    form = {"token": token, "next": "/me"}
    answer = http.post("/login", data=form, headers={"Origin": origin})
    assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)
    own = http.post("/login", data=form, headers={"Origin": api.url})
    assert own.status_code == 303 and SESSION in own.headers["set-cookie"]


def test_another_sites_form_ends_no_session(api: ServedApi, http: httpx.Client) -> None:
    session = api.store.tokens.issue(api.store.people.ensure("ada").id, kind="web", now=api.now)
    headers = {"Cookie": f"{SESSION}={session}"}
    assert http.post("/auth/logout", headers={**headers, "Origin": "https://evil.example"}).status_code == 403
    assert http.get("/me", headers=headers).status_code == 200
    assert http.post("/auth/logout", headers={**headers, "Origin": api.url}).status_code == 200
    assert http.get("/me", headers=headers).status_code == 303


def test_behind_a_proxy_the_public_address_is_our_own(database_url: str, tmp_path: Path) -> None:
    toml = "[server]\npublic_url = 'https://kernels.example.edu'\n"
    with (
        served(database_url, tmp_path, clock=HandClock(), toml=toml) as api,
        httpx.Client(base_url=api.url, timeout=60) as http,
    ):
        token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
        for origin, status in (("https://kernels.example.edu", 303), ("https://kernels.example.edu.evil.example", 403)):
            answer = http.post("/login", data={"token": token}, headers={"Origin": origin})
            assert answer.status_code == status, origin


# ------------------------------------------------------------------------------------------------ other people's tokens


def test_nobody_links_a_token_of_their_own_to_somebody_of_staff_as_the_bot_does(
    api: ServedApi, http: httpx.Client
) -> None:
    """A member of staff would become an owner, and a ban of theirs would end nothing."""
    olga = api.store.people.ensure("olga", "owner")
    grace = api.store.tokens.issue(api.store.people.ensure("grace", "staff").id, now=api.now)
    ada = api.store.people.ensure("ada")
    for bearer, whom, status in ((grace, "olga", 403), (ADMIN, "olga", 403), (grace, "ada", 200)):
        pending = http.get("/auth/init").json()["state"]
        headers = {"Authorization": f"Bearer {bearer}", "X-Kbslurm-Acting-For": f"person:{whom}"}
        answer = http.post("/bot/link", json={"token": pending}, headers=headers)
        assert answer.status_code == status, answer.text
    assert [len(api.store.tokens.of_person(one.id)) for one in (olga, ada)] == [0, 1]


def test_nobody_is_told_which_runs_others_have(api: ServedApi, http: httpx.Client) -> None:
    ada, eve, hana = (
        {"X-Popcorn-Cli-Id": api.store.tokens.issue(api.store.people.ensure(name, role).id, now=api.now)}  # type: ignore[arg-type]
        for name, role in (("ada", "participant"), ("eve", "participant"), ("hana", "staff"))
    )
    path = "/submission/transpose/H100/test"
    run = http.post(path, files={"file": ("k.py", GOOD)}, headers=ada).json()["details"]["job_status_id"]
    foreign, unknown = (http.get(f"/user/runs/{number}/why", headers=eve) for number in (run, run + 1))
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.json()["detail"].replace(str(run), str(run + 1)) == unknown.json()["detail"]
    assert [http.get(f"/user/runs/{run}/why", headers=one).status_code for one in (ada, hana)] == [200, 200]
    assert http.delete("/user/submissions/1", headers=ada).status_code == 200
    assert [http.get(f"/user/runs/{run}/why", headers=one).status_code for one in (ada, hana)] == [404, 404]


# ------------------------------------------------------------------------------------------------------------ at once


def at_once(count: int, act: Callable[[int], int]) -> list[int]:
    """What each of so many answers, all begun together."""
    barrier = threading.Barrier(count)

    def begun(number: int) -> int:
        barrier.wait(PATIENCE_S)
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return sorted(pool.map(begun, range(count)))


def test_one_invitation_lets_one_person_in(api: ServedApi, http: httpx.Client) -> None:
    api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
    (code,) = api.store.invites.make(["transpose"], 1, by="root", now=api.now)[1]
    tokens = [api.store.tokens.issue(api.store.people.ensure(f"p{n}").id, now=api.now) for n in range(8)]

    def joined(number: int) -> int:
        headers = {"X-Popcorn-Cli-Id": tokens[number]}
        return httpx.post(f"{api.url}/user/join", json={"code": code}, headers=headers, timeout=PATIENCE_S).status_code

    came = at_once(8, joined)
    assert came.count(200) == 1 and set(came) <= {200, 400, 403, 404}
    boards = [http.get("/leaderboards", headers={"X-Popcorn-Cli-Id": token}).json() for token in tokens]
    assert sorted(len(one) for one in boards) == [0] * 7 + [1]


def test_submissions_at_once_share_one_limit_and_cancelling_twice_is_safe(api: ServedApi, http: httpx.Client) -> None:
    api.store.limits.set_rate("transpose", "test", 3, by="root", now=api.now)
    headers = {"X-Popcorn-Cli-Id": api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)}

    def sent(_: int) -> int:
        url, files = f"{api.url}/submission/transpose/H100/test", {"file": ("k.py", GOOD)}
        return httpx.post(url, files=files, headers=headers, timeout=PATIENCE_S).status_code

    assert at_once(8, sent) == [202] * 3 + [429] * 5
    first = http.get("/user/submissions", headers=headers).json()[-1]["id"]

    def cancelled(_: int) -> int:
        url = f"{api.url}/user/submissions/{first}/cancel"
        return httpx.post(url, headers=headers, timeout=PATIENCE_S).status_code

    assert at_once(6, cancelled) == [200] * 6


# --------------------------------------------------------------------------------------------- problems that are bombs

YAML_BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{b}: &{b} [{', '.join(f'*{a}' for _ in range(9))}]\n" for a, b in pairwise("abcdefghijk")
)


def zipped(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("p.zip", zipped(**{"task.yml": YAML_BOMB})),
        ("p.zip", zipped(**{"task.yml": "tests: " + "[" * 20_000})),
        ("p.zip", zipped(**{"../../task.yml": "a: 1"})),
        ("p.zip", zipped(**{"/etc/task.yml": "a: 1"})),
        ("p.zip", zipped(**{"a": "x", "a/task.yml": "a: 1"})),
        ("p.zip", zipped(**{"task.yml": "files: [{name: a, source: /etc/passwd}]"})),
        ("p.zip", zipped(**{"task.yml": "files: [{name: ../../a, source: ../../../../etc/passwd}]"})),
        ("p.zip", zipped(**{"task.yml": " " * 15_000_000})),
        ("p.py", b"x = " + b"(" * 50_000),
        ("p.py", b"x = " + b"-" * 200_000 + b"1"),
        ("p.py", b"def ref_kernel(data):\n    return data\n" + b"\0" * 9),
        ("../p.py", b"x = 1"),
    ],
)
def test_a_problem_that_is_a_bomb_is_refused_in_a_sentence(
    api: ServedApi, http: httpx.Client, name: str, data: bytes
) -> None:
    answer = http.post(
        "/admin/leaderboards/upload?name=new&gpu=H100",
        files={"file": (name, data)},
        headers={"Authorization": f"Bearer {ADMIN}"},
    )
    assert answer.status_code in (400, 413), answer.text
    assert "root:" not in answer.text and len(answer.text) < 2_000
    assert api.store.boards.find("new") is None


# ----------------------------------------------------------------------------------------------- words for operators


def test_a_stream_tells_its_reader_nothing_of_where_the_database_is(own_postgres: Embedded, tmp_path: Path) -> None:
    migrate.upgrade(own_postgres.url)
    lines: list[str] = []
    begun, troubled = threading.Event(), threading.Event()

    def follow(url: str, headers: dict[str, str]) -> None:
        with (
            httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
            client.stream("POST", "/transpose/H100/test", files={"file": ("k.py", GOOD)}, headers=headers) as answer,
        ):
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()
                if "problem" in line:
                    troubled.set()
                    return

    with served(own_postgres.url, tmp_path) as api:
        token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
        reading = threading.Thread(target=follow, args=(api.url, {"X-Popcorn-Cli-Id": token}))
        reading.start()
        assert begun.wait(PATIENCE_S)
        own_postgres.stop(immediate=True)
        try:
            assert troubled.wait(PATIENCE_S)
        finally:
            reading.join(PATIENCE_S)
            Embedded.start(own_postgres.data_dir, fast=True)
    told = "\n".join(lines)
    assert "database has a problem; try again soon" in told
    for secret in ("127.0.0.1", "localhost", "/tmp", "port", "connection", str(own_postgres.data_dir)):
        assert secret not in told, told


# --------------------------------------------------------------------------------------------------------- what is left


def test_a_repository_that_isnt_one_is_told_by_gits_reason(api: ServedApi, http: httpx.Client, tmp_path: Path) -> None:
    """Not by the last line of its advice, which was "and the repository exists"."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    told = http.post("/admin/update-problems", json={"repository": tmp_path.as_uri()}, headers=headers)
    assert told.status_code == 400 and "does not appear to be a git repository" in told.json()["detail"], told.text


def test_a_quotas_bound_is_its_models(api: ServedApi, http: httpx.Client) -> None:
    headers, path = {"Authorization": f"Bearer {ADMIN}"}, "/admin/leaderboards/transpose/quota"
    assert http.put(path, json={"gpu_s_per_day": 1e9}, headers=headers).json()["gpu_s_per_day"] == 1e9
    assert http.put(path, json={"gpu_s_per_day": 1e9 + 1}, headers=headers).status_code == 422
    with pytest.raises(Invalid, match=r"between 0 and 1,000,000,000 GPU-seconds, not -1"):
        api.store.limits.set_quota("transpose", -1.0, by="root", now=api.now)


@pytest.mark.filterwarnings("error")
def test_an_upload_without_an_end_leaves_no_file_open(api: ServedApi, http: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "multipart/form-data; boundary=b"}
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="p.zip"\r\n\r\n' + b"z" * 2_000_000
    answer = http.post("/admin/leaderboards/upload?name=new", content=body, headers=headers)
    assert answer.status_code == 400


# --------------------------------------------------------------------------------------------------------- plain words

TWICE = "x" * 200
NOT_VALID: dict[str, tuple[str, str, dict[str, object], int, str]] = {
    "a number": ("GET", "/user/submissions/x", {}, 422, "the submission number must be a whole number, not 'x'"),
    "its least": ("GET", "/user/submissions?limit=0", {}, 422, "limit must be at least 1, not '0'"),
    "its most": ("GET", "/user/submissions?limit=101", {}, 422, "limit must be at most 100, not '101'"),
    "a word": ("GET", "/auth/init?provider=x", {}, 422, "provider must be 'discord' or 'github', not 'x'"),
    "a switch": ("GET", "/events?stream=perhaps", {}, 422, "stream must be true or false, not 'perhaps'"),
    "no body": ("POST", "/user/join", {}, 422, "the request has no body; send a JSON object"),
    "no field": ("POST", "/user/join", {"json": {}}, 422, "code is missing"),
    "no text": ("POST", "/user/join", {"json": {"code": 7}}, 422, "code must be text, not 7"),
    "null": ("POST", "/user/join", {"json": {"code": None}}, 422, "code must be text, not null"),
    "a list": ("POST", "/user/join", {"json": [1]}, 422, "the body must be a JSON object, not a list"),
    "broken": ("POST", "/user/join", {"content": b'{"a"'}, 422, "the body isn't valid JSON"),
    "empty": ("POST", "/admin/users", {"json": {"name": ""}}, 422, "name is empty"),
    "long": ("POST", "/admin/users", {"json": {"name": TWICE + "x"}}, 422, "name is too long: 201 characters"),
    "a role": ("POST", "/admin/users", {"json": {"name": "z", "role": "king"}}, 422, "role must be 'owner', 'staff'"),
    "an account": ("POST", "/admin/users/ada/accounts", {"json": {"account": "github:abc"}}, 400, "isn't a GitHub ID"),
    "a person": (
        "POST", "/admin/people", {"json": {"name": "z", "provider": "github", "account": "abc"}}, 400,
        "'abc' isn't a GitHub ID: that is a number, not a name",
    ),
}  # fmt: skip


def test_what_is_not_valid_is_told_in_plain_words(api: ServedApi, http: httpx.Client) -> None:
    token = api.client("ada").cli_id or ""
    for name, (method, path, sent, status, why) in NOT_VALID.items():
        headers = {"X-Popcorn-Cli-Id": token, "Content-Type": "application/json"}
        if path.startswith(("/admin", "/events")):
            headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        answer = http.request(method, path, headers=headers, **sent)  # type: ignore[arg-type]
        told = answer.json()
        assert answer.status_code == status and set(told) == {"detail"}, (name, answer.text)
        assert why in told["detail"] and "\n" not in told["detail"], (name, told)
        assert not any(words in told["detail"] for words in ("Input should", "Field required", "valid string")), told
    assert api.store.people.get(api.store.people.ensure("ada").id).github_id is None
