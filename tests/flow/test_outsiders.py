"""What somebody tries who has no right to it: other sites' forms, other people's tokens, words meant for operators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kbslurm.api.sessions import SESSION
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
    with served(database_url, tmp_path, clock=HandClock(), toml=toml) as api, httpx.Client(base_url=api.url) as http:
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


@pytest.mark.filterwarnings("error")
def test_an_upload_without_an_end_leaves_no_file_open(api: ServedApi, http: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "multipart/form-data; boundary=b"}
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="p.zip"\r\n\r\n' + b"z" * 2_000_000
    answer = http.post("/admin/leaderboards/upload?name=new", content=body, headers=headers)
    assert answer.status_code == 400
