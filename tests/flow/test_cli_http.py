"""A competitor's commands against a service over HTTP: the same words as by the database, and every way to fail."""

from __future__ import annotations

import http.server
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from kbslurm.cli import Interrupted
from kbslurm.domain.run import JobName, Seen, Sighting, SubmissionId
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests.command_line import CommandLine, Said
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.popcorn.served_api import GOOD, ServedApi, served

SECRET_LOG = "planted-secret-log-44d0"
HIDDEN_SPEC = "planted-hidden-spec-0c1d"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


class Laptop:
    """Somebody's machine: a home folder, and the address of a service. No database is named there."""

    def __init__(self, api: ServedApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home.mkdir()
        self.api, self.home, self._patch = api, home, monkeypatch
        (home / "k.py").write_bytes(GOOD)
        self.run = CommandLine(cwd=home, env={"KBSLURM_URL": api.url, "XDG_CONFIG_HOME": str(home / "conf")})

    def __call__(self, *words: str, **env: str) -> Said:
        return self.run(*words, **env)

    def login(self, name: str | None = "ada", **env: str) -> Said:
        token = "nobody's"
        if name is not None:
            token = self.api.store.tokens.issue(self.api.store.people.ensure(name).id, now=self.api.now)
        self._patch.setattr(sys, "stdin", io.StringIO(f"{token}\n"))
        return self("login", **env)

    def secrets(self) -> list[str]:
        return [one["token"] for one in json.loads(self.tokens.read_text())["contexts"].values()]

    @property
    def tokens(self) -> Path:
        return self.home / "conf/kbslurm/tokens.json"


@pytest.fixture
def laptop(api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    return Laptop(api, tmp_path / "laptop", monkeypatch)


def judged(api: ServedApi, by: str, score_s: float, source: bytes = GOOD, doubt_s: float = 0.001, log: str = "") -> int:
    """A ranked submission with secrets in its report; nothing really runs."""
    store, now = api.store, api.now
    receipt = accept(
        store.intake, store.people.ensure(by).id, "transpose", "k.py", source, "leaderboard", ["H100"], now
    )
    attempt = claim(
        store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open()), now
    )
    assert attempt is not None
    hidden = wire.BenchmarkResult(phase="hidden", index=0, spec=HIDDEN_SPEC, status="pass", calls=3, mean_ns=5.0)
    report = sealed_report(
        store.attempts.work(attempt.id),
        score_s=score_s,
        interval_s=[score_s - doubt_s, score_s + doubt_s],
        log=log,
        secret_log=SECRET_LOG,
        tests=[
            wire.TestResult(phase="test", index=0, spec="rows: 1", status="pass"),
            wire.TestResult(phase="hidden", index=0, spec=HIDDEN_SPEC, status="pass"),
        ],
        benchmarks=[hidden],
    )
    score(store, attempt, report, now)
    return receipt.submission_id


# --------------------------------------------------------------------------------------------------------- signing on


def test_a_pasted_token_is_kept_for_nobody_else_and_ended_by_logout(laptop: Laptop) -> None:
    assert (laptop("whoami").code, laptop("history").code) == (4, 4), "nobody is signed on"
    refused = laptop.login(None)
    assert refused.code == 4 and "Nothing was saved" in refused.err and not laptop.tokens.exists()
    told = laptop.login()
    assert told.code == 0 and "as ada (participant)" in told.out
    assert (laptop.tokens.stat().st_mode & 0o777, laptop.tokens.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    (secret,) = laptop.secrets()
    assert secret not in told.out + told.err
    assert laptop("whoami", "--json").json()["person"] == "ada"
    laptop.tokens.chmod(0o644)
    open_to_all = laptop("whoami")
    assert open_to_all.code == 2 and "other users can read" in open_to_all.err and "chmod 600" in open_to_all.err
    assert laptop("whoami", KBSLURM_TOKEN=secret).code == 0, "the environment goes before the file"
    laptop.tokens.chmod(0o600)
    assert laptop("logout", "--json").json() == {"url": laptop.api.url, "ended": True, "forgotten": True}
    assert laptop.api.store.tokens.person_of(secret) is None
    assert laptop("whoami").code == 4 and "kbslurm login" in laptop("whoami").err
    assert "there was no saved token" in laptop("logout").out


def test_a_device_registers_and_waits_to_be_linked(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.cli.competitor.login.LOOK_S", 0.05)
    store = laptop.api.store
    told = laptop("login", "--register", "github", "--no-wait")
    assert told.code == 0 and "/link " in told.err
    pending = laptop("whoami")
    assert pending.code == 4 and "isn't linked yet" in pending.err
    linked = threading.Event()

    def link() -> None:
        before = json.loads(laptop.tokens.read_text())
        while not linked.is_set():
            now = json.loads(laptop.tokens.read_text())
            if now != before:
                (token,) = laptop.secrets()
                assert store.tokens.claim(token, store.people.ensure("bob").id, now=laptop.api.now)
                return
            linked.wait(0.02)

    host = threading.Thread(target=link)
    host.start()
    try:
        told = laptop("login", "--register", "discord", "--json")
    finally:
        linked.set()
        host.join()
    assert told.code == 0 and told.json()["person"] == "bob"
    assert laptop("login", "--register", "carrier").code == 2


# ------------------------------------------------------------------------------------------- what a competitor types


def test_the_same_commands_say_the_same_over_http_and_by_the_database(
    laptop: Laptop, database_url: str, tmp_path: Path
) -> None:
    api = laptop.api
    first = judged(api, "ada", 0.5)
    second = judged(api, "ada", 0.4, GOOD.replace(b"def custom_kernel", b"# faster\ndef custom_kernel"))
    judged(api, "bob", 0.4002)
    laptop.login()
    (tmp_path / "host").mkdir()
    host_cli = CommandLine(cwd=tmp_path / "host", env={"DATABASE_URL": database_url})
    sent = laptop("submit", "k.py", "-l", "TRANSPOSE", "-g", "h100", "-g", "A100", "--json")
    assert sent.code == 0, sent.err
    number = sent.json()["submission"]
    assert sent.json()["runs"] == 2
    for words in (
        ("watch", str(first), "--json"),
        ("watch", str(second)),
        ("watch", str(number), "--once", "--json"),
        ("history", "--json"),
        ("history", "transpose", "--limit", "2", "--skip", "1"),
        ("diff", str(first), str(second), "--json"),
        ("diff", str(second)),
        ("board", "show", "transpose"),
        ("board", "show", "transpose", "--gpu", "h100", "--limit", "1"),
    ):
        here, there = laptop(*words), host_cli(*words)
        assert (here.code, here.out) == (there.code, there.out), words
        assert here.code == 0 and here.out, (words, here.err)
        assert SECRET_LOG not in here.out and HIDDEN_SPEC not in here.out
    changes = laptop("diff", str(first), str(second), "--json").json()
    assert "+# faster" in changes["diff"] and changes["changes"][0]["separated"] is True
    assert changes["changes"][0]["ratio"] == pytest.approx(1.25)
    assert "1 (1–2)" in laptop("board", "transpose").out, "the measurements can't tell the two apart"
    (row,) = laptop("board", "list", "--json").json()
    assert (row["board"], row["gpus"], row["is_open"]) == ("transpose", ["H100", "A100"], True)
    assert "is cancelled" in laptop("cancel", str(number)).out
    assert laptop("watch", str(number)).code == 130, "it was taken back"
    hidden = laptop("watch", str(first), "--json").json()["runs"][0]["report"]["phases"][-1]
    assert hidden == {"name": "hidden", "passed": True}, "no moment of the hidden cases"
    polled = api.client("ada").show(first)
    secret = [one for one in polled["runs"] if one["secret"]]
    assert [(one["start_time"], one["end_time"], one["passed"]) for one in secret] == [(None, None, True)]


def test_progress_and_the_planned_start_come_from_the_daemon_and_hide_the_hidden_cases(laptop: Laptop) -> None:
    api, store = laptop.api, laptop.api.store
    assert isinstance(api.context.clock, HandClock)
    laptop.login()
    number = laptop("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    assert "place 1" in laptop("watch", str(number), "--once").out
    beats: dict[str, object] = {}

    class Telling(Puppet):
        """A place whose jobs say how far they are."""

        def progress(self, attempt: object) -> dict[str, object]:
            return beats

    backend = Telling(slots={"H100": 1})
    attempt = claim(store.queue, free_slots({"puppet": backend.capacity()}, ()), api.now)
    assert attempt is not None
    place, notes = Place(backend=backend), AttemptNotes()
    from datetime import timedelta

    from kbslurm.flow.launch import launch

    launch(store.attempts, place, attempt, api.now)
    started = store.attempts.open()
    expected = api.now + timedelta(minutes=20)
    waiting = Sighting(seen=Seen.WAITING, expected_at=expected, reason="waiting for a GPU to become free")
    backend.poll = lambda attempts: {attempt.name: waiting}  # type: ignore[method-assign]
    collect(store, place, started, notes, api.now)
    told = laptop("watch", str(number), "--once").out
    assert "waiting for a GPU to become free, starts within 20 min" in told
    rq = api.client("ada").show(number)["runner_queue"]
    assert rq["starts_in_s"] == [0.0, 1230.0]
    assert rq["waits_for"] == "waiting for a GPU to become free"
    running = Sighting(seen=Seen.RUNNING, node="n7", started_at=api.now)
    backend.poll = lambda attempts: {JobName(attempt.name): running}  # type: ignore[method-assign]
    collect(store, place, started, notes, api.now)
    assert "waits_for" not in api.client("ada").show(number)["runner_queue"], "it has begun"
    for beat, says in (
        ({"phase": "test", "done": 3, "of": 17}, "running on H100, node n7, test 3/17"),
        ({"phase": "hidden", "done": 4, "of": 6}, "running on H100, node n7, hidden cases\n"),
        ({"phase": "<b>", "done": 4, "of": 6}, "running on H100, node n7\n"),
    ):
        beats.clear()
        beats.update(beat)
        collect(store, place, store.attempts.open(), notes, api.now)
        shown = laptop("watch", str(number), "--once").out
        assert says in shown, shown
        assert "4/6" not in shown
        (run,) = api.client("ada").call("GET", f"/user/submissions/{number}/whole").good()["submission"]["runs"]
        assert run["progress"] == {"test": beat, "hidden": {"phase": "hidden"}}.get(str(beat["phase"]))
    assert store.submissions.get(SubmissionId(number)).runs[0].attempts[0].telemetry["progress"] is None


def test_an_interrupted_watch_says_how_to_come_back(laptop: Laptop) -> None:
    laptop.login()
    number = laptop("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    env = {**os.environ, "KBSLURM_URL": laptop.api.url, "XDG_CONFIG_HOME": str(laptop.home / "conf")}
    watching = subprocess.Popen(
        [str(Path(sys.executable).with_name("kbslurm")), "watch", str(number)],
        env=env, cwd=laptop.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    assert "queued" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert watching.returncode == 130, said
    assert f"submission #{number} goes on" in said and "To resume: " in said and f"watch {number}" in said
    assert not laptop.api.store.submissions.get(SubmissionId(number)).is_done


def test_an_interrupted_command_says_so_in_json_too(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop.login()
    number = laptop("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    looked = 0

    def pressed(*_: object, **__: object) -> NoReturn:
        nonlocal looked
        looked += 1
        raise Interrupted

    monkeypatch.setattr("kbslurm.cli.competitor.service_http.HttpService.rest", pressed)
    told = laptop("watch", str(number), "--json")
    assert (told.code, looked) == (130, 1)
    error = told.json()["error"]
    assert error["kind"] == "Interrupted" and f"#{number} goes on" in error["message"]
    assert error["hint"].startswith("To resume: ")
    monkeypatch.setattr("kbslurm.client.connection.Connection._answered", pressed)
    told = laptop("whoami", "--json")
    assert (told.code, told.json()["error"]["kind"]) == (130, "Interrupted")
    told = laptop("whoami")
    assert (told.code, told.out, told.err.strip()) == (130, "", "interrupted")


def test_a_watch_outlives_a_service_that_is_away_for_a_while(
    laptop: Laptop, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbslurm.cli.competitor.watch.LOOK_S", 0.05)
    laptop.login()
    number = laptop("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    front = _Front(laptop.api.url)
    with front:
        answers: list[Said] = []
        env = {"KBSLURM_URL": front.url, "KBSLURM_TOKEN": laptop.secrets()[0]}
        watching = threading.Thread(target=lambda: answers.append(laptop("watch", str(number), "--json", **env)))
        watching.start()
        front.wait_for(2)
        front.away = True
        front.wait_for(front.seen + 2)
        front.away = False
        laptop.api.store.submissions.cancel(SubmissionId(number), None, laptop.api.now)
        watching.join(60)
    assert [one.code for one in answers] == [130]
    assert answers[0].json()["runs"][0]["state"] == "cancelled"


class _Front:
    """A proxy before the service that may say that nobody is behind it."""

    def __init__(self, url: str) -> None:
        import httpx

        self.away, self.seen, self._asked = False, 0, threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with outer._asked:
                    outer.seen += 1
                    outer._asked.notify_all()
                if outer.away:
                    status, body = 502, b"<h1>Bad gateway</h1>"
                else:
                    token = {"X-Popcorn-Cli-Id": self.headers["X-Popcorn-Cli-Id"]}
                    found = httpx.get(url + self.path, headers=token, trust_env=False, timeout=60)
                    status, body = found.status_code, found.content
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def wait_for(self, calls: int) -> None:
        with self._asked:
            assert self._asked.wait_for(lambda: self.seen >= calls, 60)

    def __enter__(self) -> _Front:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


# -------------------------------------------------------------------------------------------------------- every trouble


class _Stranger(http.server.BaseHTTPRequestHandler):
    """Some other web server."""

    def do_GET(self) -> None:
        found = {"moved": 301, "page": 200}.get(self.path.split("/")[1], 404)
        self.send_response(found)
        if found == 301:
            self.send_header("Location", "https://elsewhere.example")
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"<h1>\n")

    def log_message(self, *_: object) -> None:
        pass


def test_wrong_addresses_and_strangers_are_one_sentence(laptop: Laptop) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stranger)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    stranger = f"http://127.0.0.1:{server.server_port}"
    try:
        for url, code, says in (
            ("kernels.example.edu", 2, "isn't a valid service address"),
            ("ftp://kernels.example.edu", 2, "isn't a valid service address"),
            ("http://[bad", 2, "isn't a valid service address"),
            ("http://h:99999999", 2, "isn't a valid service address"),
            ("https://ada:secret@kernels.example.edu", 2, "isn't a valid service address"),
            ("http://127.0.0.1:9", 6, "can't be reached"),
            (stranger, 6, "this doesn't seem to be kbslurm"),
            (f"{stranger}/page", 6, "this doesn't seem to be kbslurm"),
            (f"{stranger}/moved", 6, "it redirects to https://elsewhere.example"),
        ):
            for words in (("login", url), ("board", "list")):
                told = laptop(*words, KBSLURM_URL=url)
                assert told.code == code and says in told.err, (url, words, told.err)
                assert "Traceback" not in told.err and "hint" in told.err
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_the_service_refuses_has_its_sentence_and_its_code(laptop: Laptop) -> None:
    laptop.login()
    api = laptop.api
    (laptop.home / "k.txt").write_text("no")
    other = judged(api, "bob", 0.5)
    for words, code, says in (
        (("submit", "k.py", "-l", "nowhere"), 2, "no board 'nowhere'"),
        (("submit", "k.txt", "-l", "transpose"), 2, "must end in"),
        (("submit", "k.py", "-l", "transpose", "--as", "bob"), 2, "--as works only with the database"),
        (("whoami", "--as", "bob"), 2, "--as works only with the database"),
        (("watch", str(other)), 5, "isn't yours"),
        (("diff", str(other)), 5, "isn't yours"),
        (("cancel", "999999"), 2, "no submission"),
        (("board", "show", "nowhere"), 2, "Choose one of: transpose"),
        (("profile", str(other)), 5, "isn't yours"),
    ):
        told = laptop(*words)
        assert told.code == code and says in told.err, (words, told.code, told.err)
        as_json = laptop(*words, "--json")
        assert as_json.code == code and set(as_json.json()["error"]) == {"kind", "message", "hint"}
    api.store.settings.set_accepts_jobs(False, by="host", now=api.now)
    assert laptop("submit", "k.py", "-l", "transpose").code == 5
    mine = judged_alone(laptop)
    assert "It is your first" in laptop("diff", str(mine)).err


def judged_alone(laptop: Laptop) -> int:
    laptop.api.store.settings.set_accepts_jobs(True, by="host", now=laptop.api.now)
    return judged(laptop.api, "ada", 0.5)


def test_a_token_that_the_environment_gives_is_named_when_it_is_rejected(laptop: Laptop) -> None:
    laptop.login()
    told = laptop("history", KBSLURM_TOKEN="mistyped")
    assert told.code == 4 and "rejected the token in KBSLURM_TOKEN" in told.err
    assert "unset it and run: kbslurm login" in told.err, "to sign in alone wouldn't help"
    assert "Set KBSLURM_TOKEN to a host's token" in laptop("stats", KBSLURM_TOKEN="mistyped").err
    assert laptop("history").code == 0


def test_whoever_may_not_ask_how_a_service_is_isnt_told_that_it_is_unhealthy(laptop: Laptop) -> None:
    laptop.login()
    for env, kind in (({}, "NoHost"), ({"KBSLURM_TOKEN": "mistyped"}, "Unauthenticated")):
        told = laptop("status", "--json", **env)
        assert (told.code, told.json().get("error", {}).get("kind")) == (4, kind), told.out
    away = laptop("status", "--json", KBSLURM_URL="http://127.0.0.1:9", KBSLURM_TOKEN="any")
    assert (away.code, away.json()["healthy"]) == (1, False)
    assert away.json()["database"] == "unknown: the service doesn't answer"


def test_a_source_that_would_steer_the_terminal_is_only_shown(laptop: Laptop) -> None:
    """Window titles, the clipboard, hidden lines: whoever compares two submissions sees them instead."""
    laptop.login()
    planted = b"# \x1b]52;c;cHduZWQ=\x07 \x1b[2J \xc2\x9b31m \xe2\x80\xaeesrever \xe6\x97\xa5\r\n"
    judged(laptop.api, "ada", 0.5)
    judged(laptop.api, "ada", 0.4, source=planted + GOOD)
    told = laptop("diff", "1", "2")
    assert told.code == 0 and "52;c;cHduZWQ=" in told.out and "日" in told.out
    assert not {*told.out} & {*"\x1b\x07\r\x9b\u202e"}
