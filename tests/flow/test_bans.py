"""A ban ends everything at once: rights, sessions, tokens, and the streams that are open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api import identity
from kbslurm.api.sessions import SESSION
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid
from kbslurm.flow.queue import claim, free_slots
from kbslurm.store.views import Person
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet
from tests.flow.stage import HandClock
from tests.flow.test_pages import csrf
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

HTML = {"Accept": "text/html"}
PATIENCE_S = 60.0


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), bot="the-bots-own-token") as built:
        yield built


class Account:
    """Somebody with a token and a browser's session."""

    def __init__(self, api: ServedApi, name: str, role: str = "participant") -> None:
        self.person: Person = api.store.people.add(name, role, now=api.now)  # type: ignore[arg-type]
        token = api.store.tokens.issue(self.person.id, device="laptop", now=api.now)
        session = api.store.tokens.issue(self.person.id, kind="web", device="browser", now=api.now)
        self.as_host = {"Authorization": f"Bearer {token}"}
        self.as_author = {"X-Popcorn-Cli-Id": token}
        self.browser = {"Cookie": f"{SESSION}={session}", **HTML}


@pytest.fixture
def hana(api: ServedApi) -> Account:
    return Account(api, "hana", "staff")


@pytest.fixture
def ada(api: ServedApi) -> Account:
    return Account(api, "ada")


@pytest.fixture
def http(api: ServedApi) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, timeout=PATIENCE_S) as client:
        yield client


HOSTS_CALLS = [
    ("GET", "/admin/stats"),
    ("GET", "/admin/audit"),
    ("GET", "/admin/people"),
    ("GET", "/events?stream=false"),
    ("GET", "/metrics"),
    ("POST", "/admin/stop"),
    ("DELETE", "/admin/ban/hana"),
    ("POST", "/admin/ban/ada"),
]


@pytest.mark.parametrize(("method", "path"), HOSTS_CALLS)
def test_a_banned_host_has_no_hosts_rights(
    api: ServedApi, http: httpx.Client, hana: Account, ada: Account, method: str, path: str
) -> None:
    if "/ban/" not in path and method == "GET":
        assert http.request(method, path, headers=hana.as_host).status_code == 200
    api.store.people.ban(hana.person.id, "sold her token", by="root", now=api.now)
    assert http.request(method, path, headers=hana.as_host).status_code == 401
    known = {one.name: one.banned_at is not None for one in api.store.people.all()}
    assert (known["hana"], known["ada"], api.store.settings.accepts_jobs()) == (True, False, True)
    assert http.get("/staff", headers=hana.browser).headers["location"].startswith("/login")


def test_a_ban_ends_tokens_until_it_is_lifted_and_sessions_for_good(
    api: ServedApi, http: httpx.Client, ada: Account
) -> None:
    submitted = http.post(
        "/submission/transpose/H100/test", files={"file": ("k.py", GOOD)}, headers=ada.as_author
    ).json()
    number = submitted["details"]["id"]
    own = [
        ("GET", "/user/me"),
        ("GET", "/user/submissions"),
        ("GET", f"/user/submissions/{number}"),
        ("POST", f"/user/submissions/{number}/cancel"),
        ("POST", "/submission/transpose/H100/test"),
    ]
    api.store.people.ban(ada.person.id, "shared an account", by="root", now=api.now)
    for method, path in own:
        files = {"file": ("k.py", GOOD)} if path.startswith("/submission/") else None
        answer = http.request(method, path, headers=ada.as_author, files=files)
        assert (answer.status_code, answer.json()["detail"]) == (
            403,
            "ada is banned: shared an account. Ask a host.",
        ), path
    assert http.get("/leaderboards", headers=ada.as_author).status_code == 200, "as for everybody"
    assert http.get("/me", headers=ada.browser).status_code == 303
    api.store.people.unban(ada.person.id, by="root", now=api.now)
    assert http.get("/user/me", headers=ada.as_author).json()["name"] == "ada"
    assert http.get("/me", headers=ada.browser).status_code == 303, "she signs in again"


def test_a_ban_cancels_what_its_person_has_open_and_nobody_elses(
    api: ServedApi, http: httpx.Client, hana: Account, ada: Account
) -> None:
    """Otherwise somebody who is banned for abuse would keep the GPUs until their queue is empty."""
    eve = Account(api, "eve")

    def sent(by: Account) -> int:
        files = {"file": ("k.py", GOOD)}
        answer = http.post("/submission/transpose/H100/test", files=files, headers=by.as_author)
        return int(answer.json()["details"]["id"])

    first = sent(ada)
    slots = free_slots({"local": Puppet(slots={"H100": 9}).capacity()}, ())
    attempt = claim(api.store.queue, slots, api.now)
    assert attempt is not None
    second, other = sent(ada), sent(eve)
    assert http.post("/admin/ban/ada", headers=hana.as_host).status_code == 200

    def state(number: int) -> tuple[str, bool]:
        (run,) = api.store.submissions.get(SubmissionId(number)).runs
        return run.state.value, run.cancel_at is not None

    assert [state(one) for one in (first, second, other)] == [
        ("launching", True), ("cancelled", True), ("queued", False),
    ]  # fmt: skip
    assert http.delete("/admin/ban/ada", headers=hana.as_host).status_code == 200
    assert state(second) == ("cancelled", True), "lifting it brings no run back"


def test_nobody_lifts_their_own_ban_and_only_owners_touch_staff(
    api: ServedApi, http: httpx.Client, hana: Account
) -> None:
    Account(api, "mia", "staff")
    admin = Account(api, "admin", "staff")  # a name that the configured token goes by in the audit log
    olga = Account(api, "olga", "owner")
    for host, whom, status in (
        (hana, "hana", 403),
        (hana, "mia", 403),
        (hana, "olga", 403),
        (admin, "admin", 403),
        (olga, "olga", 403),
        (olga, "mia", 200),
    ):
        for method in ("POST", "DELETE"):
            answer = http.request(method, f"/admin/ban/{whom}", headers=host.as_host)
            assert answer.status_code == status, (host.person.name, method, whom, answer.text)
    assert http.post("/admin/ban/olga", headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 200
    assert http.delete("/admin/ban/olga", headers=olga.as_host).status_code == 401


def test_no_host_gives_themselves_the_token_of_somebody_above_them(
    api: ServedApi, http: httpx.Client, hana: Account, ada: Account
) -> None:
    mia, olga = Account(api, "mia", "staff"), Account(api, "olga", "owner")
    root = {"Authorization": f"Bearer {ADMIN}"}
    for headers, whom, status in (
        (hana.as_host, olga, 403),
        (hana.as_host, mia, 403),
        (hana.as_host, hana, 200),
        (hana.as_host, ada, 200),
        (olga.as_host, mia, 200),
        (root, olga, 200),
    ):
        token = http.get("/auth/init?provider=discord").json()["state"]
        body = {"person": f"person:{whom.person.id}", "token": token}
        answer = http.post("/admin/link", json=body, headers=headers)
        assert answer.status_code == status, (whom.person.name, answer.text)
        held = api.store.tokens.person_of(token, now=api.now)
        assert (held.name if held else None) == (whom.person.name if status == 200 else None)


def test_nobody_takes_a_name_by_which_a_host_would_ban_somebody_else(
    api: ServedApi, http: httpx.Client, ada: Account, database_url: str
) -> None:
    root = {"Authorization": f"Bearer {ADMIN}"}
    number, account = str(ada.person.id), "1234567890123456789"
    for n, name in enumerate((number, "Discord:77", "person:ada", account)):
        body = {"account": f"90{n}", "name": name}
        told = http.post("/bot/people", json=body, headers={"Authorization": "Bearer the-bots-own-token"}).json()
        assert (told["name"] != name and f"90{n}" in told["name"]) or told["name"].startswith("somebody "), told
        with pytest.raises(Invalid, match="taken for somebody's number or account"):
            api.store.people.add(name, now=api.now)
    offender = api.store.people.for_account("discord", account, "offender", by="bot", now=api.now)
    old = api.store.people.add("old", now=api.now)
    for text, whom in ((number, ada.person.id), (account, offender.id)):
        with psycopg.connect(database_url, autocommit=True) as connection:  # a name from before this was refused
            connection.execute("UPDATE person SET name = %s WHERE id = %s", (text, old.id))
        answer = http.post(f"/admin/ban/{text}", headers=root)
        assert answer.status_code == 400
        assert f"person:{whom}" in answer.json()["detail"] and f"person:{old.id}" in answer.json()["detail"]
        assert http.post(f"/admin/ban/person:{whom}", headers=root).json()["user_id"] == str(whom)


def opened(api: ServedApi, path: str, headers: dict[str, str], **how: object) -> tuple[threading.Thread, list[str]]:
    """A stream that is read until it ends, and its lines so far."""
    lines: list[str] = []
    begun = threading.Event()

    def read() -> None:
        with (
            httpx.Client(base_url=api.url, timeout=PATIENCE_S) as client,
            client.stream(str(how.get("method", "GET")), path, headers=headers, files=how.get("files")) as answer,  # type: ignore[arg-type]
        ):
            assert answer.status_code == 200
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE_S)
    return thread, lines


def feed(api: ServedApi, who: Account) -> tuple[threading.Thread, list[str]]:
    return opened(api, "/events?since_token=now", who.as_host)


def staff_page(api: ServedApi, who: Account) -> tuple[threading.Thread, list[str]]:
    return opened(api, "/live/-/staff", who.browser)


def private_board(api: ServedApi, who: Account) -> tuple[threading.Thread, list[str]]:
    api.store.boards.set_visibility("transpose", "closed", by="root", now=api.now)
    return opened(api, "/live/transpose", who.browser)


def own_submission(api: ServedApi, who: Account) -> tuple[threading.Thread, list[str]]:
    with httpx.Client(base_url=api.url, timeout=PATIENCE_S) as client:
        told = client.post("/submission/transpose/H100/test", files={"file": ("k.py", GOOD)}, headers=who.as_author)
    return opened(api, f"/live/-/s/{told.json()['details']['id']}", who.browser)


def followed(api: ServedApi, who: Account) -> tuple[threading.Thread, list[str]]:
    return opened(api, "/transpose/H100/test", who.as_author, method="POST", files={"file": ("k.py", GOOD)})


@pytest.mark.parametrize("stream", [feed, staff_page, private_board, own_submission, followed])
def test_a_ban_ends_the_streams_that_are_open(
    api: ServedApi, hana: Account, stream: Callable[[ServedApi, Account], tuple[threading.Thread, list[str]]]
) -> None:
    reading, lines = stream(api, hana)
    api.store.people.ban(hana.person.id, "", by="root", now=api.now)
    reading.join(PATIENCE_S)
    assert not reading.is_alive()
    told = "\n".join(lines)
    assert "staff.ban" not in told
    assert ("hana is banned" in told) is (stream is followed)


def test_the_feed_tells_nobody_of_their_own_ban_however_late_it_comes(
    api: ServedApi, hana: Account, ada: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, lines = feed(api, hana)
    service = identity.service

    def banned_right_after(*told: Any) -> Any:
        found = service(*told)
        api.store.people.ban(hana.person.id, "", by="root", now=api.now)
        return found

    monkeypatch.setattr(identity, "service", banned_right_after)
    api.store.people.ban(ada.person.id, "", by="root", now=api.now)
    reading.join(PATIENCE_S)
    assert not reading.is_alive()
    assert f'"person:{hana.person.id}"' not in "\n".join(lines)


def test_the_last_owner_stays_one(api: ServedApi, http: httpx.Client, database_url: str, tmp_path: Path) -> None:
    olga = Account(api, "olga", "owner")
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    only = "olga is the site's only owner and can't give up that role"
    answer = http.put("/admin/users/olga/role", json={"role": "participant"}, headers=olga.as_host)
    assert (answer.status_code, only in answer.json()["detail"]) == (403, True), answer.text
    told = kbslurm("user", "role", "olga", "staff")
    assert (told.code, only in told.err, "kbslurm user role NAME owner" in told.err) == (5, True, True), told.err
    told = kbslurm("user", "ban", "olga", "--as", "olga")
    assert (told.code, "you can't ban yourself" in told.err) == (5, True), told.err
    form = {"csrf": csrf(http.get("/staff", headers=olga.browser).text), "person": "olga", "confirmed": "yes"}
    assert http.post("/staff/ban", data=form, headers=olga.browser).status_code == 403
    assert api.store.people.get(olga.person.id) == olga.person

    pia = Account(api, "pia", "owner")
    api.store.people.ban(pia.person.id, now=api.now)
    answer = http.put("/admin/users/olga/role", json={"role": "staff"}, headers=olga.as_host)
    assert answer.status_code == 403, "an owner who is banned is none"
    api.store.people.unban(pia.person.id, now=api.now)
    assert http.put("/admin/users/olga/role", json={"role": "staff"}, headers=olga.as_host).status_code == 200
    assert http.put("/admin/users/pia/role", json={"role": "owner"}, headers=pia.as_host).status_code == 200


@pytest.mark.parametrize("act", ["role", "ban"])
def test_two_owners_who_remove_each_other_at_once_leave_one(api: ServedApi, http: httpx.Client, act: str) -> None:
    for n in range(8):
        one, other = Account(api, f"one{n}", "owner"), Account(api, f"other{n}", "owner")

        def removed(by: Account, whom: Account) -> int:
            path, body = f"/admin/users/{whom.person.name}/role", {"role": "staff"}
            if act == "ban":
                return http.post(f"/admin/ban/{whom.person.name}", headers=by.as_host).status_code
            return http.put(path, json=body, headers=by.as_host).status_code

        with ThreadPoolExecutor(2) as both:
            codes = list(both.map(removed, (one, other), (other, one)))
        left = [who for who in api.store.people.all() if who.role == "owner" and who.banned_at is None]
        assert len(left) == 1, (codes, left)
        api.store.people.ban(left[0].id, now=api.now)
