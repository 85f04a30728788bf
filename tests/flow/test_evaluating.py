"""Programs that evaluate many sources: verdicts as they come, nothing twice, and behind everyone's own runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.backends.local.backend import LocalBackend
from kbslurm.client import Client, Evaluation, Progress
from kbslurm.client.errors import LimitReached
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import OpenAttempt, Slot
from kbslurm.errors import Invalid, NotFound, Refused, Unauthenticated
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.problems import loading
from tests.chaos.zygote import INSTANT
from tests.flow.puppet import Puppet
from tests.flow.stage import QUICK, HandClock, running
from tests.popcorn.served_api import GOOD, TRANSPOSE, ServedApi, served

GPU = "H100"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service") as built:
        yield built


@pytest.fixture
def still(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    """A service whose clock stands still and that has no daemon."""
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


@contextmanager
def at_work(api: ServedApi, folder: Path) -> Iterator[None]:
    """The daemon with two slots and a harness that is over at once."""
    backend = LocalBackend(folder / "attempts", {GPU: 2}, INSTANT, Path(sys.executable))
    here = Place(backend=backend, poll_s=0.5, grace_s=0.0, sweep_gap_s=0.2, patience_s=300.0)
    with running(Daemon(api.store, [here], timing=QUICK)):
        yield


def token(api: ServedApi, name: str = "ada", **more: Any) -> str:
    return api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now, **more)


def sent(api: ServedApi) -> int:
    with api.store._pool.statement() as connection:
        found = connection.execute("SELECT count(*) AS n FROM submission").fetchone()
    assert found is not None
    return int(found["n"])


def claimed(api: ServedApi) -> OpenAttempt | None:
    capacity = {"puppet": Puppet(slots={GPU: 99}).capacity()}
    return claim(api.store.queue, free_slots(capacity, api.store.attempts.open()), api.now)


def test_every_source_gets_its_verdict_once_and_as_it_comes(api: ServedApi, tmp_path: Path) -> None:
    told: list[Progress] = []
    sources = [("bad", "# wrong\n"), ("large", b"x" * 3_000_000), *(f"# passed {n}\n" for n in range(20))]
    drawn = count()

    def drawing() -> Iterator[Any]:
        for source in sources:
            next(drawn)
            yield source

    with at_work(api, tmp_path), Client(api.url, token=token(api)) as ada:
        coming = ada.evaluate("Transpose", drawing(), gpus=[GPU], at_once=4, on_progress=told.append)
        first = next(coming)
        assert next(drawn) < len(sources), "it began to yield before it had drawn everything"
        found = [first, *coming]
    by_name = {one.name: one for one in found}
    assert len(found) == len(by_name) == len(sources)
    assert by_name["bad"].runs[0].name == "wrong" and not by_name["bad"].passed and by_name["bad"].score_s is None
    large = by_name["large"]
    assert (
        large.submission_id is None
        and large.refused
        and "larger than 1,000,000 bytes" in large.refused
        and not large.passed
    )
    good = [one for one in found if one.name not in ("bad", "large")]
    assert all(one.passed and one.score_s and one.score_s > 0 for one in good)
    assert max(one.waiting for one in told) <= 4 and told[-1].done == len(sources)
    assert sent(api) == len(sources) - 1


def test_what_is_wrong_with_all_of_them_is_raised_at_once(still: ServedApi) -> None:
    with Client(still.url, token=token(still)) as ada, Client(still.url, token="nobody's") as nobody:
        with pytest.raises(NotFound, match="nowhere"):
            ada.evaluate("nowhere", [GOOD])
        with pytest.raises(Invalid, match="no GPU type 'B200'"):
            ada.evaluate("transpose", [GOOD], gpus=["B200"])
        with pytest.raises(Invalid, match="no mode 'fast'"):
            ada.evaluate("transpose", [GOOD], mode="fast")  # type: ignore[arg-type]
        with pytest.raises(Unauthenticated):
            next(nobody.evaluate("transpose", [GOOD]))
    assert sent(still) == 0


PROGRAM = """
import sys
from kbslurm.client import Client
url, token, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Client(url, token=token) as ada:
    sources = [f"# passed {n}\\n" for n in range(count)]
    for found in ada.evaluate("transpose", sources, key="night 1", gpus=["H100"], at_once=6):
        print(found.name, found.submission_id, found.passed, flush=True)
"""


def test_a_program_that_was_killed_goes_on_where_it_was(api: ServedApi, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    argv = [sys.executable, str(program), api.url, token(api), "24"]
    with at_work(api, tmp_path):
        first = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        before = [first.stdout.readline().split() for _ in range(5)]
        first.kill()
        first.wait()
        first.stdout.close()
        again = subprocess.run(argv, capture_output=True, text=True, check=True)
    after = {name: (number, passed) for name, number, passed in map(str.split, again.stdout.splitlines())}
    assert len(after) == 24 and {passed for _, passed in after.values()} == {"True"}
    assert all(after[name][0] == number for name, number, _ in before), "what had a verdict keeps its submission"
    assert sent(api) == 24


class Forgetful(ThreadingHTTPServer):
    """A way to the service on which an answer to a submission is lost, and another is a 503."""

    daemon_threads = True

    def __init__(self, to: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forgetful)
        self.to, self.posts = to, count()


class _Forgetful(BaseHTTPRequestHandler):
    server: Forgetful

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        turn = next(self.server.posts) if self.command == "POST" else -1
        if turn == 1:
            self._answer(503, b'{"detail": "submissions are paused"}', "application/json")
            return
        answer = httpx.request(self.command, self.server.to + self.path, content=body, headers=headers, timeout=60)
        if turn == 0:
            self.close_connection = True
            return
        self._answer(answer.status_code, answer.content, answer.headers["content-type"])

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def test_a_lost_answer_and_a_pause_submit_nothing_twice(api: ServedApi, tmp_path: Path) -> None:
    told: list[Progress] = []
    way = Forgetful(api.url)
    thread = threading.Thread(target=way.serve_forever)
    thread.start()
    try:
        with at_work(api, tmp_path), Client(f"http://127.0.0.1:{way.server_port}", token=token(api)) as ada:
            sources = [f"# passed {n}\n" for n in range(3)]
            found = list(ada.evaluate("transpose", sources, gpus=[GPU], on_progress=told.append))
    finally:
        way.shutdown()
        thread.join()
        way.server_close()
    assert [one.passed for one in found] == [True] * 3 and sent(api) == 3
    whys = " ".join(one.why for one in told)
    assert "can't be reached" in whys and "submissions are paused" in whys


def test_whoever_won_t_wait_that_long_is_told_why(still: ServedApi) -> None:
    still.store.limits.set_rate("transpose", "test", 1, by="test", now=still.now)
    with Client(still.url, token=token(still)) as ada:
        coming = ada.evaluate("transpose", ["# one\n", "# two\n"], gpus=[GPU], patience_s=0.5)
        with pytest.raises(LimitReached, match="test submissions to transpose per hour"):
            next(coming)
    assert sent(still) == 1


def test_a_key_submits_once_whatever_became_of_the_board(still: ServedApi) -> None:
    with Client(still.url, token=token(still)) as ada, Client(still.url, token=token(still, "bob")) as bob:
        at_once: list[int] = []

        def submit() -> None:
            told = ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, key="k1")
            at_once.append(told.submission_id)

        threads = [threading.Thread(target=submit) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(at_once) == 8 and len(set(at_once)) == 1 == sent(still)
        with pytest.raises(Invalid, match=f"'k1' was used for submission {at_once[0]}, with another file"):
            ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD + b"\n", key="k1")
        with pytest.raises(Invalid, match="in mode test"):
            ada.submit_to_many("transpose", [GPU], "benchmark", "k.py", GOOD, key="k1")
        with pytest.raises(Invalid, match="printable"):
            ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, key="\x7f")
        assert bob.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, key="k1").submission_id != at_once[0]
        still.store.boards.close("transpose", by="test", now=still.now)
        assert ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, key="k1").submission_id == at_once[0]
        with pytest.raises(Refused, match="closed"):
            ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, key="k2")
        still.store.boards.add("other", loading.load(TRANSPOSE), gpus=[GPU], confirm=False, now=still.now)
        with pytest.raises(Invalid, match=r"was used for submission \d+, to board transpose"):
            ada.submit_to_many("other", [GPU], "test", "k.py", GOOD, key="k1")


def test_what_was_deleted_is_told_and_not_submitted_again(still: ServedApi) -> None:
    with Client(still.url, token=token(still)) as ada:

        def delete(_: Progress) -> None:
            for one in ada.submissions():
                ada.delete(one.id)

        for _ in range(2):
            (found,) = ada.evaluate("transpose", [("a", GOOD)], key="k", gpus=[GPU], on_progress=delete)
            assert found.submission_id and found.refused == f"submission {found.submission_id} was deleted"
            assert not found.passed
    assert sent(still) == 1


class TestServiceTokens:
    def test_its_runs_wait_behind_everyone_s(self, still: ServedApi) -> None:
        """Also behind its owner's, who isn't pushed back by a thousand of them."""
        program, own = token(still, kind="service"), token(still)
        with Client(still.url, token=program) as tool, Client(still.url, token=own) as ada:
            of_tool = [
                tool.submit_to_many("transpose", [GPU], "test", "k.py", f"# {n}\n".encode()).submission_id
                for n in range(3)
            ]
            other = token(still, "bob", kind="service")
            with Client(still.url, token=other) as bobs:
                of_bob = bobs.submit_to_many("transpose", [GPU], "test", "k.py", GOOD).submission_id
            of_ada = [ada.submit("transpose", GPU, "test", "k.py", GOOD).submission_id for _ in range(2)]
            assert ada.full_submission(of_ada[0])["runner_queue"]["place"] == 1
        order = []
        while (attempt := claimed(still)) is not None:
            order.append(still.store.attempts.work(attempt.id).submission_id)
        assert order[:2] == of_ada
        assert order[2:] == [of_tool[0], of_bob, *of_tool[1:]], "fair between the owners of tools"

    def test_it_has_a_quota_of_its_own_and_not_the_boards(self, still: ServedApi) -> None:
        still.store.limits.set_rate("transpose", "test", 1, by="test", now=still.now)
        program = token(still, kind="service", gpu_s_per_day=10_000.0)
        with Client(still.url, token=program) as tool, Client(still.url, token=token(still)) as ada:
            for n in range(3):
                tool.submit_to_many("transpose", [GPU], "test", "k.py", f"# {n}\n".encode())
            ada.submit("transpose", GPU, "test", "k.py", GOOD)  # what the tool sent isn't counted for its owner
            with pytest.raises(LimitReached):
                ada.submit("transpose", GPU, "test", "k.py", GOOD)
            with still.store._pool.statement() as connection:
                connection.execute(
                    "INSERT INTO attempt (run_id, number, name, backend, gpu, key, nonce, opened_at, started_at,"
                    " ended_at, state, ending) SELECT id, 1, 'kb-x', 'local', gpu, '', '', %(now)s, %(now)s,"
                    " %(now)s + interval '10001 seconds', 'dead', 'no_report' FROM run ORDER BY id LIMIT 1",
                    {"now": still.now},
                )
            assert isinstance(still.context.clock, HandClock)
            still.context.clock.go(10_100)
            with pytest.raises(
                LimitReached, match="GPU-seconds by this service token within a day: 10001 of 10000 used"
            ):
                tool.submit_to_many("transpose", [GPU], "test", "k.py", GOOD)

    def test_its_open_runs_are_within_its_quota(self, still: ServedApi) -> None:
        """At their longest until some have ended, then as long as those took."""
        program = token(still, kind="service", gpu_s_per_day=50.0)
        with Client(still.url, token=program) as tool:
            first = tool.submit_to_many("transpose", [GPU], "test", "k.py", GOOD)
            with pytest.raises(LimitReached, match="with its open runs"):
                tool.submit_to_many("transpose", [GPU], "test", "k.py", b"# another\n")
            with still.store._pool.statement() as connection:
                connection.execute(
                    "INSERT INTO attempt (run_id, number, name, backend, gpu, key, nonce, opened_at, started_at,"
                    " ended_at, state, ending) SELECT id, 1, 'kb-y', 'local', gpu, '', '', %(now)s, %(now)s,"
                    " %(now)s + interval '10 seconds', 'dead', 'no_report' FROM run WHERE submission_id = %(id)s",
                    {"now": still.now, "id": first.submission_id},
                )
            assert isinstance(still.context.clock, HandClock)
            still.context.clock.go(20)
            for n in range(3):  # 10 s were used; with the first, which is still open, 10 each may come
                tool.submit_to_many("transpose", [GPU], "test", "k.py", f"# {n}\n".encode())
            with pytest.raises(LimitReached, match="with its open runs: 50 of 50 used"):
                tool.submit_to_many("transpose", [GPU], "test", "k.py", b"# one too many\n")

    def test_it_opens_no_session_and_deletes_nothing(self, still: ServedApi) -> None:
        """In a browser's cookie it was its owner, who may do all that a program may not."""
        secret = token(still, kind="service")
        with httpx.Client(base_url=still.url, cookies={"kbslurm_session": secret}) as browser:
            page = browser.get("/problem/transpose")
            assert page.status_code == 200 and 'name="csrf"' not in page.text
            assert browser.get("/me").status_code in (303, 401)
        with Client(still.url, token=token(still)) as ada, Client(still.url, token=secret) as tool:
            number = ada.submit("transpose", GPU, "test", "k.py", GOOD).submission_id
            with pytest.raises(Refused, match="deletes no submissions"):
                tool.delete(number)
            assert [one.id for one in ada.submissions()] == [number]

    def test_its_runs_go_nowhere_but_home(self, still: ServedApi) -> None:
        """However long they wait: what costs money is for people."""
        away = Slot(backend="github", gpu=GPU, free=9, overflow=True)
        home = Slot(backend="local", gpu=GPU, free=9)
        with Client(still.url, token=token(still, kind="service")) as tool:
            tool.submit_to_many("transpose", [GPU], "test", "k.py", b"# of a tool\n")
        assert isinstance(still.context.clock, HandClock)
        still.context.clock.go(86_400)
        assert not still.store.queue.demand(still.now).demand
        assert still.store.queue.claim([away], still.now, rules=Rules()) is None
        with Client(still.url, token=token(still)) as ada:
            own = ada.submit("transpose", GPU, "test", "k.py", GOOD).submission_id
        attempt = still.store.queue.claim([away], still.now, rules=Rules())
        assert attempt is not None and still.store.attempts.work(attempt.id).submission_id == own
        at_home = still.store.queue.claim([home], still.now, rules=Rules())
        assert at_home is not None and at_home.backend == "local"

    def test_it_ranks_nothing_and_hosts_nothing(self, still: ServedApi) -> None:
        still.store.people.ensure("grace", "staff")
        secret = token(still, "grace", kind="service")
        with Client(still.url, token=secret, admin=secret) as tool:
            with pytest.raises(Refused, match="can't submit to a leaderboard"):
                tool.submit("transpose", GPU, "leaderboard", "k.py", GOOD)
            assert tool.me().role == "participant"
            still.store.boards.close("transpose", by="test", now=still.now)
            with pytest.raises(Refused, match="transpose is closed"):
                tool.submit("transpose", GPU, "test", "k.py", GOOD)
            with pytest.raises(Unauthenticated, match="doesn't belong to a host"):
                tool.users()
        signed = httpx.post(f"{still.url}/login", data={"token": secret}, headers={"Origin": still.url})
        assert signed.status_code == 403 and "This token is for programs" in signed.text

    def test_hosts_issue_it_with_its_quota(self, still: ServedApi) -> None:
        host = still.store.tokens.issue(still.store.people.ensure("grace", "owner").id, now=still.now)
        still.store.people.ensure("ada")
        with Client(still.url, admin=host) as grace:
            told = grace.issue_token("ada", device="trainer", service=True, gpu_s_per_day=3600)
            assert [(one["kind"], one["gpu_s_per_day"]) for one in grace.tokens("ada")] == [("service", 3600.0)]
            with pytest.raises(Invalid, match="only a service token has a quota"):
                grace.issue_token("ada", gpu_s_per_day=3600)
        with Client(still.url, token=told["token"]) as tool:
            assert tool.me().name == "ada"


def test_an_agent_s_submission_is_marked(still: ServedApi) -> None:
    with Client(still.url, token=token(still)) as ada:
        of_agent = ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD, by_agent=True).submission_id
        own = ada.submit_to_many("transpose", [GPU], "test", "k.py", GOOD).submission_id
        with pytest.raises(Invalid, match="X-Kbslurm-By can't be 'me'"):
            ada._told(
                "POST",
                "/user/submissions",
                params={"leaderboard": "transpose"},
                files={"file": ("k.py", GOOD)},
                more_headers={"X-Kbslurm-By": "me"},
            )
    with still.store._pool.statement() as connection:
        told = {row["id"]: row["via"] for row in connection.execute("SELECT id, via FROM submission")}
    assert told == {of_agent: "agent", own: "api"}
    host = still.store.tokens.issue(still.store.people.ensure("grace", "staff").id, now=still.now)
    with Client(still.url, admin=host) as grace:
        assert grace.any_submission(of_agent)["via"] == "agent"
        assert {row["id"]: row["via"] for row in grace.find_submissions()} == told


def test_an_evaluation_says_what_it_is() -> None:
    nothing = Evaluation(name="a", submission_id=None, refused="too large")
    assert not nothing.passed and nothing.score_s is None and Counter([nothing])[nothing] == 1
