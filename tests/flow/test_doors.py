"""Who doesn't belong stays out: memory before sign-in, idle connections, foreign Hosts, broken uploads."""

from __future__ import annotations

import inspect
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

from kbslurm.api import calls
from kbslurm.api.app import create_app
from kbslurm.api.context import HOSTS_TURNS, THREADS
from kbslurm.api.door import Door
from kbslurm.api.server import Serving
from kbslurm.api.sessions import SESSION
from kbslurm.api.turns import Turns, Whose
from kbslurm.backends.ray import calls as nodes
from kbslurm.config import settings
from kbslurm.errors import Misconfigured
from kbslurm.store.submissions import Submissions
from kbslurm.store.tokens import Tokens
from tests.flow.stage import overheard
from tests.popcorn.client import ClientDied
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served

MIB = 1 << 20
BOT = "the-bots-own-token"
UPLOAD = "/submission/transpose/H100/test"
WAIT_S = 60


RUN_KEY = "ab" * 32
RAY = '[ray.pool]\nurl = "http://127.0.0.1:9"\nservice_url = "http://127.0.0.1:9"\n'


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, bot=BOT, toml=RAY, env={"RAY_POOL_KEY": RUN_KEY}) as found:
        yield found


@contextmanager
def tight(database_url: str, tmp_path: Path, *lines: str) -> Iterator[ServedApi]:
    """A service with these lines under [server]."""
    with served(database_url, tmp_path, toml="\n".join(("[server]", *lines, ""))) as found:
        yield found


# -------------------------------------------------------------------------------------- memory before authentication

MULTIPART = "Content-Type: multipart/form-data; boundary=b"
LARGE = [
    *((path, MULTIPART) for path in (
        "/user/join", "/admin/invites", "/admin/link", "/admin/update-problems", "/bot/people", "/me/link", UPLOAD,
        "/problem/transpose/submit", "/nowhere",
    )),
    ("/user/join", "Content-Type: application/json"),
]  # fmt: skip


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_strangers_body_is_not_kept(api: ServedApi, is_chunked: bool) -> None:
    for path, kind in LARGE:
        with no_more_memory(16 * MIB, path):
            Wire(api.url, f"POST {path}", kind).body(64 * MIB, is_chunked=is_chunked)
    assert metric(api, "kbslurm_api_body_bytes_total", came="read") == 0
    assert metric(api, "kbslurm_api_body_bytes_total", came="dropped") >= len(LARGE) * MIB


@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_nor_is_more_than_the_cap_of_someone_known(api: ServedApi, is_chunked: bool) -> None:
    token = api.client().cli_id
    for path in ("/user/join", UPLOAD):
        with no_more_memory(16 * MIB, path):
            Wire(api.url, f"POST {path}", MULTIPART, f"X-Popcorn-Cli-Id: {token}").body(64 * MIB, is_chunked=is_chunked)


def test_who_is_refused_is_heard_out_first(api: ServedApi) -> None:
    stranger = api.client(None)
    stranger.cli_id = "guess"
    for _ in range(2):  # on one connection: it stays usable
        with pytest.raises(ClientDied, match="this token is unknown") as died:
            stranger.upload(UPLOAD, "a.py", b"x" * 8 * MIB).good()
        assert died.value.status == 401
    with pytest.raises(ClientDied, match="larger than 1,000,000 bytes") as died:
        api.client().upload(UPLOAD, "a.py", b"x" * 8 * MIB).good()
    assert died.value.status == 413
    assert metric(api, "kbslurm_api_body_bytes_total", came="dropped") > 24 * MIB


def test_who_waits_for_leave_to_send_a_body_is_refused_without_one(api: ServedApi) -> None:
    wire = Wire(api.url, f"POST {UPLOAD}", "X-Popcorn-Cli-Id: guess", "Expect: 100-continue", f"Content-Length: {MIB}")
    answer = wire.rest()
    assert answer.startswith(b"HTTP/1.1 401 ") and b"connection: close" in answer.lower()


@pytest.mark.parametrize("path", ["/user/join", "/health", "/nowhere", UPLOAD])
def test_a_body_of_two_lengths_is_refused_and_nothing_after_it_is_a_request(api: ServedApi, path: str) -> None:
    wire = Wire(api.url, f"POST {path}", "Content-Length: 5", "Transfer-Encoding: chunked")
    told = wire.send(b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").rest()
    assert told.startswith(b"HTTP/1.1 400 ") and b"both Content-Length and Transfer-Encoding" in told
    assert told.count(b"HTTP/1.1") == 1


def test_every_route_has_a_cap_and_keeps_it(api: ServedApi) -> None:
    routes = [route for route in routes_of(api) if not route.path.startswith("/live/")]
    hana = api.client("hana", role="staff")
    session = api.store.tokens.issue(api.store.people.ensure("hana").id, kind="web", now=api.now)
    known = {
        "X-Popcorn-Cli-Id": hana.cli_id or "",
        "Authorization": f"Bearer {ADMIN}",
        "Cookie": f"{SESSION}={session}",
    }
    seen = set()
    with httpx.Client(base_url=api.url, timeout=WAIT_S) as http:
        for route in routes:
            assert isinstance(route, Door), route.path
            for method in route.methods or ():
                name, call = f"{method} {route.path}", calls.call_of(method, route.path)
                seen.add(name)
                assert uses_body(route) == (call.cap > calls.NOTHING), name
                path = re.sub(r"\{[^}]*\}", "x", route.path)
                body = b"x" * (call.cap + 1)
                shown = known
                if call.who == "node":
                    path, shown = a_nodes(route.path)
                answer = http.request(method, path, content=body, headers=shown)
                assert answer.status_code == 413, f"{name}: {answer.text}"
                if call.who != "anyone":
                    answer = http.request(method, path, content=body)
                    assert answer.status_code in (400, 401, 403), f"{name}: {answer.text}"
    assert set(calls.CALLS) <= seen, set(calls.CALLS) - seen
    assert metric(api, "kbslurm_api_body_bytes_total", came="read") == 0, "the length was declared"


def a_nodes(route: str) -> tuple[str, dict[str, str]]:
    """The path of a node's call, and how it shows who it is."""
    verb, place, name = route.rpartition("/")[2], "pool", "kb-x"
    me = "a" * 32
    told = {nodes.WHO: me, nodes.SUM: nodes.digest_of(b"{}")}
    mac = nodes.mac(bytes.fromhex(RUN_KEY), verb, place, name, me, told[nodes.SUM])
    return f"/nodes/{place}/{name}/{verb}", {**told, nodes.MAC: mac}


def uses_body(route: APIRoute) -> bool:
    reads = {"form_of", "read", "read_form", "taken"} & set(
        route.endpoint.__code__.co_names + route.endpoint.__code__.co_freevars
    )
    return route.body_field is not None or (bool(reads) and inspect.iscoroutinefunction(route.endpoint))


# -------------------------------------------------------------------------------------------------- idle connections


def test_a_body_that_does_not_come_is_not_waited_for(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "body_within_s = 1") as api:
        ada = api.client()
        for token, status in ((ada.cli_id, 408), ("guess", 401)):
            wire = Wire(api.url, f"POST {UPLOAD}", f"X-Popcorn-Cli-Id: {token}", "Content-Length: 1000")
            answer = wire.send(b"x").rest()
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()) and b"connection: close" in answer.lower()
        assert metric(api, "kbslurm_api_submissions_total", mode="test", came="invalid") == 1
        assert metric(api, "kbslurm_api_submissions_total", mode="test", came="unauthenticated") == 1


def test_headers_that_do_not_come_are_not_waited_for_but_the_next_request_is(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "head_within_s = 1") as api:
        silent, half, used = Wire(api.url), Wire(api.url).send(b"GET /health HTTP/1.1\r\nHo"), Wire(api.url)
        used.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert silent.rest() == b""
        assert half.rest().startswith(b"HTTP/1.1 408 ")
        assert used.until(b'"ok"}').startswith(b"HTTP/1.1 200 ")
        with pytest.raises(TimeoutError):
            used.receive(2.5)  # an idle connection is kept
        used.send(b"GET /health HTTP/1.1\r\n")
        assert used.rest().startswith(b"HTTP/1.1 408 "), "its next headers have a deadline again"
        assert metric(api, "kbslurm_api_turned_away_total", why="late") == 3


def test_unfinished_requests_of_one_address_leave_the_others_alone(database_url: str, tmp_path: Path) -> None:
    lines = ("connections = 64", "unfinished_per_client = 8", "head_within_s = 600")
    with tight(database_url, tmp_path, *lines) as api, ExitStack() as held:
        for number in range(80):
            wire = held.enter_context(Wire(api.url, source="127.0.0.2"))
            with suppress(OSError):
                wire.send(b"GET /leaderboards HT" if number % 2 else b"")
        assert httpx.get(api.url + "/health", timeout=WAIT_S).status_code == 200
        until_metric(api, "kbslurm_api_connections", 8)
        assert httpx.get(api.url + "/leaderboards", timeout=WAIT_S).status_code == 200
        late = Wire(api.url, source="127.0.0.2").rest()
        assert late.startswith(b"HTTP/1.1 429 ") and b"already has 8 unfinished requests" in late
        assert b" 200 " in Wire(api.url, "GET /health", "Connection: close", source="127.0.0.2").rest()


def test_uploads_in_progress_of_one_client_are_limited_behind_a_proxy_too(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "unfinished_per_client = 4") as api, ExitStack() as held:
        ada = api.client()
        lines = (f"X-Popcorn-Cli-Id: {ada.cli_id}", "Content-Length: 1000", "X-Forwarded-For: 203.0.113.9")
        wires = [held.enter_context(Wire(api.url, f"POST {UPLOAD}", *lines)) for _ in range(4)]
        for wire in wires:
            wire.send(b"x")
        api_waits_for(api, 4, "203.0.113.9")
        refused = Wire(api.url, f"POST {UPLOAD}", *lines).send(b"x").rest()
        assert b" 429 " in refused and b"4 unfinished requests" in refused
        other = api.client("bob")
        assert other.submit("transpose", "H100", "test", "a.py", GOOD) > 0
        for wire in wires:
            wire.close()
        api_waits_for(api, 0, "203.0.113.9")
        assert metric(api, "kbslurm_api_aborted_uploads_total") == 4


def test_a_full_service_still_answers_hosts_and_load_balancers(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "connections = 64", "connections_per_client = 16") as api, ExitStack() as held:
        request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        wires = [held.enter_context(Wire(api.url, source=f"127.0.0.{2 + n // 16}")) for n in range(62)]
        for wire in wires:
            wire.send(request)
            assert wire.until(b'"ok"}').startswith(b"HTTP/1.1 200 ")
        for _ in range(3):  # nobody stays in the reserve
            assert httpx.get(f"{api.url}/health", timeout=WAIT_S).headers["connection"] == "close"
        answer = httpx.get(f"{api.url}/leaderboards", timeout=WAIT_S)
        assert answer.status_code == 503 and "as many connections" in answer.json()["detail"]
        for bearer, status in ((ADMIN, 200), ("guess", 503)):
            headers = {"Authorization": f"Bearer {bearer}"}
            assert httpx.get(f"{api.url}/admin/stats", headers=headers, timeout=WAIT_S).status_code == status
        wires[0].send(b"GET /leaderboards HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert wires[0].until(b"]").startswith(b"HTTP/1.1 200 "), "who was there before is served"
        silent = [held.enter_context(Wire(api.url, source=f"127.0.1.{n}")) for n in range(1, 9)]
        assert silent[0].rest() == b"", "a newcomer takes the place of the oldest that sends nothing"
        assert httpx.get(f"{api.url}/health", timeout=WAIT_S).status_code == 200


def test_one_address_has_so_many_connections(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "connections_per_client = 8") as api, ExitStack() as held:
        for _ in range(8):
            wire = held.enter_context(Wire(api.url, "GET /health", source="127.0.0.2"))
            wire.until(b'"ok"}')
        for source, status in (("127.0.0.2", b" 429 "), ("127.0.0.3", b" 200 ")):
            wire = held.enter_context(Wire(api.url, "GET /health", source=source))
            assert status in wire.until(b"}")


def test_a_classroom_behind_one_address_follows_five_hundred_streams(api: ServedApi) -> None:
    assert api.context.connections.fit_open_files()
    ada = api.client()
    number = ada.submit("transpose", "H100", "test", "a.py", GOOD)
    with ExitStack() as held:
        wires = [held.enter_context(Wire(api.url, "GET /live/transpose")) for _ in range(500)]
        for wire in wires:
            assert b" 200 " in wire.until(b": here")
        assert ada.show(number)["id"] == number
        assert ada.submit("transpose", "H100", "test", "a.py", GOOD) > number


def test_fewer_files_are_fewer_connections() -> None:
    program = (
        "import resource as r; from kbslurm.api.connections import ConnectionLimits, Connections\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (512, 1024)); few = Connections(ConnectionLimits())\n"
        "print(few.fit_open_files(), few.limits.connections, r.getrlimit(r.RLIMIT_NOFILE))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "False 768 (1024, 1024)\n"


def test_who_reads_nothing_is_let_go(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, "read_within_s = 1") as api:
        with Wire(api.url, small=True) as wire:
            wire.send(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 64)
            until_metric(api, "kbslurm_api_turned_away_total", 1, why="unread")
        until_metric(api, "kbslurm_api_connections", 0)


def test_the_specification_is_written_once(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(api.context)
    document, written = app.openapi, count()

    def counted() -> dict[str, Any]:
        next(written)
        return document()

    monkeypatch.setattr(app, "openapi", counted)
    with Serving(api.context, host="127.0.0.1", port=0, app=app) as serving:
        texts = {httpx.get(f"{serving.url}/openapi.json", timeout=WAIT_S).text for _ in range(3)}
    assert len(texts) == 1 and next(written) == 1


# ------------------------------------------------------------------------------------------------------------- turns


def test_made_up_tokens_take_neither_the_hosts_places_nor_more_turns_than_one_person(api: ServedApi) -> None:
    router, gate, order = APIRouter(route_class=Door), threading.Event(), list[str]()

    @router.get("/gate")
    def wait() -> None:
        gate.wait(WAIT_S)

    @router.get("/next")
    def next_(request: Request) -> None:
        order.append(request.headers["x-popcorn-cli-id"])

    ada = api.client().cli_id or ""
    app = create_app(api.context, more=[router])
    with ExitStack() as last, Serving(api.context, host="127.0.0.1", port=0, app=app) as server:
        crowd = last.enter_context(ThreadPoolExecutor(80))
        last.callback(gate.set)

        def ask(path: str, headers: dict[str, str]) -> int:
            return httpx.get(f"{server.url}{path}", headers=headers, timeout=WAIT_S).status_code

        assert ask("/user/me", {"X-Popcorn-Cli-Id": ada}) == ask("/admin/stats", {"Authorization": f"Bearer {ADMIN}"})
        gates = [crowd.submit(ask, "/gate", {"Authorization": f"Bearer guess{n}"}) for n in range(THREADS)]
        waiting = api.context.turns._everyone._waiting

        def until_waiting(count: int) -> None:
            until = time.monotonic() + WAIT_S
            while sum(len(line) for lines in waiting.copy().values() for line in lines.copy().values()) < count:
                assert time.monotonic() < until
                time.sleep(0.01)

        until_waiting(HOSTS_TURNS)
        assert ask("/admin/stats", {"Authorization": f"Bearer {ADMIN}"}) == 200, "the hosts' places are theirs"
        asked = [crowd.submit(ask, "/next", {"X-Popcorn-Cli-Id": f"guess{n}"}) for n in range(40)]
        until_waiting(HOSTS_TURNS + 40)
        asked.append(crowd.submit(ask, "/next", {"X-Popcorn-Cli-Id": ada}))
        until_waiting(HOSTS_TURNS + 41)
        gate.set()
        assert {one.result() for one in gates + asked} == {200}
    assert order.index(ada) < THREADS, "one person's request isn't behind forty of one who makes up tokens"


# ------------------------------------------------------------------------------------------------------ foreign Host


def test_streams_look_at_the_database_in_their_readers_turn(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn: ContextVar[bool] = ContextVar("in_turn", default=False)
    turn, looks = Turns.turn, Counter[tuple[str, bool]]()

    @asynccontextmanager
    async def taken(turns: Turns, whose: Whose) -> AsyncIterator[None]:
        async with turn(turns, whose):
            before = in_turn.set(True)
            try:
                yield
            finally:
                in_turn.reset(before)

    def counted(of: type, name: str) -> None:
        call = getattr(of, name)

        def looked(*given: Any, **more: Any) -> Any:
            looks[name, in_turn.get()] += 1
            return call(*given, **more)

        monkeypatch.setattr(of, name, looked)

    def until(name: str, count: int) -> None:
        ends = time.monotonic() + WAIT_S
        while looks[name, True] + looks[name, False] < count:
            assert time.monotonic() < ends, (name, looks)
            time.sleep(0.05)

    ada, hana = api.client("ada"), api.store.people.add("hana", "staff", now=api.now)
    monkeypatch.setattr("kbslurm.api.pages.live.STAFF_S", 0.05)
    monkeypatch.setattr("kbslurm.api.pages.live.PROGRESS_S", 0.1)
    number = ada.submit("transpose", "H100", "test", "k.py", GOOD)
    person = api.store.people.find("ada")
    assert person is not None
    sessions = {who: api.store.tokens.issue(who.id, kind="web", now=api.now) for who in (person, hana)}
    token = api.store.tokens.issue(hana.id, device="laptop", now=api.now)
    monkeypatch.setattr(Turns, "turn", taken)
    counted(Submissions, "get")
    counted(Tokens, "person_of")
    for path, headers, name in (
        (f"/live/-/s/{number}", {"Cookie": f"{SESSION}={sessions[person]}"}, "get"),
        ("/live/-/staff", {"Cookie": f"{SESSION}={sessions[hana]}"}, "person_of"),
        ("/events?since_token=now", {"Authorization": f"Bearer {token}"}, "person_of"),
    ):
        looks.clear()
        with httpx.stream("GET", api.url + path, headers=headers, timeout=WAIT_S) as answer:
            assert answer.status_code == 200, path
            for _ in range(2):
                api.store.events.audit("host", "waved", "nobody", now=api.now)
                until(name, looks[name, True] + looks[name, False] + 1)
        assert looks[name, True] and not looks[name, False], (path, looks)


def test_a_foreign_host_is_refused_before_anything_is_built_from_it(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, 'allowed_hosts = ["kernels.example.edu"]') as api:
        with httpx.Client(base_url=api.url, timeout=WAIT_S) as http:
            for host in ("evil.example", "evil.example:80", "kernels.example.edu.evil.example", "10.0.0.1"):
                for path in ("/problem/transpose", "/auth/login/github", "/leaderboards", "/"):
                    answer = http.get(path, headers={"Host": host})
                    assert answer.status_code == 421, (host, path)
                    told = answer.json()["detail"]
                    assert "allowed_hosts" in told and "http" not in told
                assert http.get("/health", headers={"Host": host}).status_code == 200
            page = http.get("/", headers={"Host": "<b>evil", "Accept": "text/html"})
            assert page.status_code == 421 and "<b>evil" not in page.text
            for host in ("kernels.example.edu", "KERNELS.example.edu:8000", "localhost:1", "127.0.0.1", "[::1]:8000"):
                found = http.get("/problem/transpose", headers={"Host": host})
                assert f"http://{host.lower()}" in found.text.lower(), host
        assert metric(api, "kbslurm_api_turned_away_total", why="host") == 17


def test_with_a_public_url_that_is_the_name(database_url: str, tmp_path: Path) -> None:
    with tight(database_url, tmp_path, 'public_url = "https://kernels.example.edu"') as api:
        for host, status in (("kernels.example.edu", 200), ("evil.example", 421)):
            answer = httpx.get(f"{api.url}/problem/transpose", headers={"Host": host}, timeout=WAIT_S)
            assert answer.status_code == status
        assert "Use https://kernels.example.edu." in answer.text


@pytest.mark.parametrize("listen", ["0.0.0.0:8000", "[::]:8000", "10.1.2.3:8000", "login01:8000"])
def test_beyond_this_machine_a_name_is_required(tmp_path: Path, listen: str) -> None:
    file = tmp_path / "kbslurm.toml"
    file.write_text(f'[server]\nlisten = "{listen}"\n')
    with pytest.raises(Misconfigured, match=r"kbslurm.toml:2: server.listen: .* without saying under which address"):
        settings.load(file, {}, cwd=tmp_path)
    for line in ('public_url = "https://kernels.example.edu"', 'allowed_hosts = ["kernels.example.edu"]'):
        file.write_text(f'[server]\nlisten = "{listen}"\n{line}\n')
        settings.load(file, {}, cwd=tmp_path)
    for line in ("allowed_hosts = ['*']", "allowed_hosts = ['kernels.example.edu:80']"):
        file.write_text(f"[server]\n{line}\n")
        with pytest.raises(Misconfigured, match="isn't a valid host name"):
            settings.load(file, {}, cwd=tmp_path)


# ---------------------------------------------------------------------------------------------------- broken uploads


def test_an_upload_that_breaks_off_is_no_trouble(api: ServedApi) -> None:
    ada = api.client()
    with overheard(as_json=True) as told:
        for path in (UPLOAD, "/transpose/H100/test", "/user/join"):
            for _ in range(5):
                wire = Wire(api.url, f"POST {path}", f"X-Popcorn-Cli-Id: {ada.cli_id}", "Content-Length: 1000")
                wire.send(b"x").close()
        until_metric(api, "kbslurm_api_aborted_uploads_total", 15)
    assert metric(api, "kbslurm_api_trouble_total", kind="bug") == 0
    assert metric(api, "kbslurm_api_submissions_total", mode="test", came="gone") == 10
    assert metric(api, "kbslurm_api_requests_total", method="POST", route="/user/join", status="gone") == 5
    assert told.getvalue() == ""


def test_a_bugs_traceback_is_inside_one_json_line(api: ServedApi) -> None:
    router = APIRouter()

    @router.get("/planted")
    def planted() -> None:
        raise ZeroDivisionError("planted")

    app = create_app(api.context, more=[router])
    with overheard(as_json=True) as told, Serving(api.context, host="127.0.0.1", port=0, app=app) as serving:
        assert httpx.get(f"{serving.url}/planted", timeout=WAIT_S).status_code == 500
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    assert any("Traceback" in line.get("traceback", "") and "planted" in line["traceback"] for line in lines)


# --------------------------------------------------------------------------------------------------------- equipment


class Wire:
    """One connection, byte by byte."""

    def __init__(
        self, url: str, request: str = "", *lines: str, source: str = "127.0.0.1", small: bool = False
    ) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(WAIT_S)
        self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        if request:
            self.send("\r\n".join((f"{request} HTTP/1.1", f"Host: {host}", *lines)).encode() + b"\r\n")
            if not any(line.startswith("Content-Type: ") for line in lines):
                self.send(b"\r\n")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def body(self, size: int, *, is_chunked: bool) -> None:
        """Send so many bytes after the headers, for as long as they are taken."""
        piece, sent = b"x" * 65_536, 0
        self.send(b"Transfer-Encoding: chunked\r\n\r\n" if is_chunked else f"Content-Length: {size}\r\n\r\n".encode())
        with suppress(OSError):
            while sent < size:
                self.send(b"10000\r\n" + piece + b"\r\n" if is_chunked else piece)
                sent += len(piece)
            if is_chunked:
                self.send(b"0\r\n\r\n")
            self.until(b"}")
        self.close()

    def receive(self, patience_s: float = WAIT_S) -> bytes:
        self.socket.settimeout(patience_s)
        try:
            return self.socket.recv(65_536)
        except ConnectionResetError:
            return b""
        finally:
            self.socket.settimeout(WAIT_S)

    def until(self, end: bytes) -> bytes:
        found = b""
        while end not in found and (piece := self.receive()):
            found += piece
        return found

    def rest(self) -> bytes:
        found = b""
        while piece := self.receive():
            found += piece
        self.close()
        return found


def routes_of(api: ServedApi) -> list[APIRoute]:
    return [route for route in create_app(api.context).routes if isinstance(route, APIRoute)]


@contextmanager
def no_more_memory(than: int, what: str) -> Iterator[None]:
    """In this block this process, and with it the service, holds at no time so much more than before."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = held("VmRSS")
    yield
    grown = held("VmHWM") - before
    assert grown < than, f"{what}: {grown >> 20} MiB more were held"


def held(what: str) -> int:
    (found,) = re.findall(rf"{what}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


def metric(api: ServedApi, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(api.context.metrics.text().decode())
    found = [one.value for family in families for one in family.samples if one.name == name and one.labels == labels]
    return found[0] if found else 0.0


def until_metric(api: ServedApi, name: str, value: float, **labels: str) -> None:
    until = time.monotonic() + WAIT_S
    while metric(api, name, **labels) != value:
        assert time.monotonic() < until, f"{name} {labels} is {metric(api, name, **labels)}"
        time.sleep(0.02)


def api_waits_for(api: ServedApi, count: int, client: str) -> None:
    until = time.monotonic() + WAIT_S
    while api.context.connections._unfinished[client] != count:
        assert time.monotonic() < until
        time.sleep(0.02)
