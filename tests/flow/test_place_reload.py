"""A changed configuration is taken by a running service without losing anything; a broken one changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.reload_step import Configured
from kbslurm.daemon.timing import Timing
from kbslurm.domain.drains import PlaceLine
from kbslurm.domain.placement import Rules
from kbslurm.errors import Misconfigured
from kbslurm.flow.place import Place
from kbslurm.store.postgres import PostgresStore
from tests.chaos.history import check
from tests.command_line import CommandLine
from tests.flow.stage import Stage, running
from tests.flow.test_bot import free_port
from tests.flow.test_overflow import Worker
from tests.flow.test_tick import EXAMPLES, GOOD

PATIENCE_S = 90.0
TOML = """\
[daemon]
state_dir = "state"
[daemon.local]
name = "here"
slots = {{ {slots} }}
"""


@dataclass
class Up:
    """`kbslurm up --no-api` as a process, with what it logs."""

    folder: Path
    url: str
    env: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ("--no-api",)
    process: subprocess.Popen[str] = field(init=False)
    reader: threading.Thread = field(init=False)
    lines: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    all: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        argv = [sys.executable, "-m", "kbslurm", "up", *self.words, "--log-json"]
        env = {**os.environ, "HOME": str(self.folder), "DATABASE_URL": self.url, **self.env}
        self.process = subprocess.Popen(argv, cwd=self.folder, env=env, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                told = json.loads(line)
                self.all.append(told)
                self.lines.put(told)

    def says(self, what: str) -> dict[str, Any]:
        """The next line of the log that says so."""
        until = time.monotonic() + PATIENCE_S
        while True:
            left_s = until - time.monotonic()
            assert left_s > 0, f"it never said {what!r}: {self.all}"
            with contextlib.suppress(queue.Empty):
                told = self.lines.get(timeout=left_s)
                if told["what"] == what:
                    return told

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    (tmp_path / "kbslurm.toml").write_text(TOML.format(slots="A100 = 1"))
    made = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    with contextlib.closing(PostgresStore(database_url)) as store:
        store.people.add("ada", role="staff")
    board = made(
        "board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "A100,H100",
        "--min-isolation", "0", "--deadline", "2099-01-01",
    )  # fmt: skip
    assert board.code == 0, board.err
    return made


@pytest.fixture
def up(tmp_path: Path, database_url: str, kbslurm: CommandLine) -> Iterator[Up]:
    made = Up(folder=tmp_path, url=database_url)
    made.start()
    made.says("leading")
    yield made
    made.process.send_signal(signal.SIGTERM)
    try:
        assert made.process.wait(60) == 0
    finally:
        made.process.kill()
        made.process.wait()
        made.reader.join()


def submitted(kbslurm: CommandLine, gpu: str) -> int:
    said = kbslurm("submit", str(GOOD), "--board", "transpose", "--gpu", gpu, "--mode", "test", "--json")
    assert said.code == 0, said.err
    number: int = said.json()["submission"]
    return number


def run_of(kbslurm: CommandLine, number: int) -> dict[str, Any]:
    found: dict[str, Any] = kbslurm("watch", str(number), "--once", "--json").json()["runs"][0]
    return found


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        threading.Event().wait(0.1)


def test_sighup_in_mid_run_takes_a_new_gpu_type_and_loses_nothing(up: Up, kbslurm: CommandLine) -> None:
    """At the default pace: a run is open on the first type, one waits for a type that no place has."""
    first, second, waits = submitted(kbslurm, "A100"), submitted(kbslurm, "A100"), submitted(kbslurm, "H100")
    up.says("claimed")
    (up.folder / "kbslurm.toml").write_text(TOML.format(slots="A100 = 2, H100 = 1"))
    up.hang_up()
    assert "here changed: A100 1 → 2, H100 0 → 1" in up.says("reloaded")["changes"]
    until(lambda: all(run_of(kbslurm, one)["verdict"] for one in (first, second, waits)), "all have their verdict")
    assert [run_of(kbslurm, one)["verdict"] for one in (first, second, waits)] == ["passed"] * 3
    assert [len(run_of(kbslurm, one)["attempts"]) for one in (first, second, waits)] == [1, 1, 1]
    with contextlib.closing(Stage(url=up.url, store=PostgresStore(up.url), clock=WallClock())) as stage:
        check(stage)


def test_a_broken_file_changes_nothing_and_says_why_everywhere(up: Up, kbslurm: CommandLine) -> None:
    (up.folder / "kbslurm.toml").write_text(TOML.format(slots="A100 = -1"))
    said = kbslurm("place", "reload", DATABASE_URL=up.url, KBSLURM_CONFIG=str(good(up.folder)))
    assert said.code == 2 and "nothing was changed" in said.err and "kbslurm.toml:5" in said.err, said
    assert "kbslurm.toml:5" in up.says("the configuration wasn't reloaded")["why"]
    status = kbslurm("status", "--json", KBSLURM_CONFIG=str(good(up.folder)))
    (trouble,) = [one for one in status.json()["troubles"] if "the earlier one holds" in one]
    assert status.code == 1 and "kbslurm.toml:5" in trouble
    (up.folder / "kbslurm.toml").write_text(TOML.format(slots="A100 = 3"))
    said = kbslurm("place", "reload")
    assert (said.code, said.out) == (0, "here changed: A100 1 → 3\n"), said.err
    assert kbslurm("status", "--json").json()["reload"]["ok"] is True
    assert run_of(kbslurm, submitted(kbslurm, "A100")) is not None
    said = kbslurm("place", "reload", "--json")
    assert said.json()["answer"]["changes"] == [] and said.json()["leader"] == said.json()["answer"]["holder"]


def good(folder: Path) -> Path:
    """A configuration for the command itself: the service's own is broken."""
    file = folder / "good.toml"
    file.write_text(TOML.format(slots="A100 = 1"))
    return file


def test_what_only_a_start_reads_is_named(up: Up, kbslurm: CommandLine) -> None:
    text = TOML.format(slots="A100 = 1").replace('"state"', '"elsewhere"')
    (up.folder / "kbslurm.toml").write_text(f"{text}[server]\nrequests_per_minute = 600\n")
    up.hang_up()
    told = up.says("reloaded")
    assert told["restart"] == "server.requests_per_minute, daemon.state_dir"
    assert not (up.folder / "elsewhere").exists()


def test_without_a_daemon_there_is_nothing_to_reload(kbslurm: CommandLine) -> None:
    said = kbslurm("place", "reload")
    assert said.code == 5 and "no daemon is running" in said.err


def test_a_rotated_token_and_a_new_type_reach_the_api_too(tmp_path: Path, database_url: str) -> None:
    """`kbslurm up` with its API: SIGHUP goes on to it. The host's token is in a file."""
    port, token = free_port(), tmp_path / "token"
    token.write_text("the-old-token\n")
    (tmp_path / "kbslurm.toml").write_text(TOML.format(slots="A100 = 1") + f"[server]\nlisten = '127.0.0.1:{port}'\n")
    made = Up(folder=tmp_path, url=database_url, env={"POPCORN_ADMIN_TOKEN_FILE": str(token)}, words=())
    made.start()
    try:
        made.says("leading")
        made.says("serving")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:

            def status(with_token: str) -> int:
                return http.get("/admin/places", headers={"Authorization": f"Bearer {with_token}"}).status_code

            assert (status("the-old-token"), status("the-new-token")) == (200, 401)
            token.write_text("the-new-token\n")
            (tmp_path / "kbslurm.toml").write_text(
                TOML.format(slots="A100 = 1, B200 = 2") + f"[server]\nlisten = '127.0.0.1:{port}'\n"
            )
            made.hang_up()
            until(lambda: status("the-new-token") == 200, "the new token")
            assert status("the-old-token") == 401
            told = http.get("/admin/places", headers={"Authorization": "Bearer the-new-token"}).json()
            assert [(one["gpu"], one["slots"]) for one in told["places"][0]["gpus"]] == [("A100", 1), ("B200", 2)]
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(60) == 0
    finally:
        made.process.kill()
        made.process.wait()
        made.reader.join()


def test_a_database_that_rejects_our_user_is_asked_with_the_one_that_holds_now(database_url: str) -> None:
    nobody = re.sub(r"//[^@/]*@", "//nobody_by_that_name@", database_url)
    with contextlib.closing(PostgresStore(nobody)) as store:
        with pytest.raises(Misconfigured, match="rejects our user or password"):
            store.leases.all()
        store.renew_by(lambda: nobody)
        with pytest.raises(Misconfigured, match="rejects our user or password"):
            store.leases.all()
        store.renew_by(lambda: database_url.rpartition("/")[0] + "/another")
        with pytest.raises(Misconfigured, match="rejects our user or password"):
            store.leases.all()
        store.renew_by(lambda: database_url)
        assert store.leases.all() == []
        assert store.use_url(nobody) and not store.use_url(database_url.rpartition("/")[0] + "/another")


def test_the_log_of_a_place_is_followed_until_it_is_interrupted(kbslurm: CommandLine, database_url: str) -> None:
    argv = [sys.executable, "-m", "kbslurm", "place", "logs", "here", "--follow", "--json"]
    env = {**os.environ, "HOME": str(kbslurm.cwd), "DATABASE_URL": database_url}
    with (
        contextlib.closing(PostgresStore(database_url)) as store,
        subprocess.Popen(argv, cwd=kbslurm.cwd, env=env, stdout=subprocess.PIPE, text=True) as follows,
    ):
        try:
            assert follows.stdout is not None
            for text in ("first", "second", "third"):
                line = PlaceLine(place="here", at=datetime.now(UTC), level="warning", text=text)
                store.places.write_down([line])
                assert json.loads(follows.stdout.readline())["text"] == text
        finally:
            follows.send_signal(signal.SIGINT)
    assert follows.returncode == 130


@pytest.mark.parametrize("form", ["--json", ""])
def test_a_follower_whose_reader_left_ends_as_interrupted(kbslurm: CommandLine, database_url: str, form: str) -> None:
    """As `kbslurm place logs --follow 2>&1 | head -1` and ^C; what it still had to say is nobody's business."""
    argv = [sys.executable, "-m", "kbslurm", "place", "logs", "here", "--follow", *form.split()]
    env = {**os.environ, "HOME": str(kbslurm.cwd), "DATABASE_URL": database_url, "PYTHONUNBUFFERED": ""}
    with (
        contextlib.closing(PostgresStore(database_url)) as store,
        subprocess.Popen(
            argv, cwd=kbslurm.cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as follows,
    ):
        assert follows.stdout is not None
        store.places.write_down([PlaceLine(place="here", at=datetime.now(UTC), level="warning", text="the first")])
        try:
            assert "the first" in follows.stdout.readline()
            follows.stdout.close()
        finally:
            follows.send_signal(signal.SIGINT)
    assert follows.returncode == 130


# -------------------------------------------------------------------------------- places that come, go and move


@dataclass
class Reread:
    """A configuration that the test writes."""

    places: list[Place]
    broken: bool = False

    def __call__(self) -> Configured:
        if self.broken:
            raise Misconfigured("the file is broken", fix="Mend it.")
        return Configured(places=self.places, rules=Rules(), timing=Timing())


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, gpus=("A100",), clock=WallClock())
    yield built
    built.close()


def place(backend: Worker, settings: str = "1", home: str = "here") -> Place:
    return Place(backend=backend, poll_s=0.2, grace_s=0.0, sweep_gap_s=0.2, settings=settings, home=home)


def test_a_place_that_is_gone_drains_until_its_runs_have_ended(stage: Stage) -> None:
    old, new = Worker(stage.store, "old"), Worker(stage.store, "new")
    old.queues = True
    said = Reread([place(old), place(new)])
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        stage.submit()
        stage.wait_until(lambda: len(old.submitted) == 1)
        said.places = [place(new)]
        daemon.reload()
        stage.wait_until(lambda: "old is gone" in daemon.reloading.told().get("changes", ()))
        stage.submit()
        stage.wait_until(lambda: len(new.submitted) == 1)
        assert list(daemon.lanes) == ["new", "old"]
        assert daemon.told()["places"]["old"]["draining"]["A100"]["by"] == "the configuration"
        old.begin()
        stage.wait_until(lambda: stage.open_runs() == 0)
        stage.wait_until(lambda: list(daemon.lanes) == ["new"])
    assert len(old.submitted) == 1
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 2
    check(stage)


def test_a_place_that_comes_back_takes_runs_again(stage: Stage) -> None:
    worker, other = Worker(stage.store, "here"), Worker(stage.store, "other")
    worker.queues = True
    said = Reread([place(worker)])
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        stage.submit()
        stage.wait_until(lambda: len(worker.submitted) == 1)
        said.places = [place(other)]
        daemon.reload()
        stage.wait_until(lambda: "here is gone" in daemon.reloading.told().get("changes", ()))
        said.places = [place(worker), place(other)]
        daemon.reload()
        stage.wait_until(lambda: "here is back" in daemon.reloading.told().get("changes", ()))
        worker.begin()
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (len(worker.submitted), len(other.submitted)) == (2, 0)


def test_a_place_that_moves_does_so_after_its_open_runs(stage: Stage) -> None:
    """Its attempts are found in the old folder; the new one would take them for lost."""
    before, after = Worker(stage.store, "here"), Worker(stage.store, "here")
    before.queues = True
    said = Reread([place(before, "1", "old folder")])
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        stage.submit()
        stage.wait_until(lambda: len(before.submitted) == 1)
        said.places = [place(after, "2", "new folder")]
        daemon.reload()
        stage.wait_until(lambda: bool(daemon.reloading.told()))
        stage.submit()
        stage.wait_until(lambda: bool(daemon.told()["places"]["here"]["draining"]))
        assert after.calls == []
        before.begin()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (len(before.submitted), len(after.submitted)) == (1, 1)
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 2


def test_a_limit_holds_from_the_next_tick_and_a_hung_place_takes_it_later(stage: Stage) -> None:
    """A call that hangs belongs to the old place; the new limit waits for it, and so do new runs."""
    old, new = Worker(stage.store, "here", slots=1), Worker(stage.store, "here", slots=3)
    old.queues = new.queues = True
    old.gate = threading.Event()
    said = Reread([place(old)])
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        for _ in range(3):
            stage.submit()
        stage.wait_until(lambda: "submit" in old.calls)
        said.places = [place(new, "2")]
        daemon.reload()
        stage.wait_until(lambda: bool(daemon.reloading.told()))
        assert new.submitted == []
        old.gate.set()
        stage.wait_until(lambda: len(new.submitted) == 2)
        new.reports |= old.reports
        for worker in (old, new):
            worker.begin()
        new.reports |= old.reports
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 3


def test_a_broken_configuration_leaves_the_places_alone(stage: Stage) -> None:
    worker = Worker(stage.store, "here")
    said = Reread([place(worker)], broken=True)
    daemon = Daemon(stage.store, said.places, reread=said)
    with running(daemon):
        daemon.reload()
        stage.wait_until(lambda: daemon.reloading.told().get("ok") is False)
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert daemon.reloading.told()["why"] == "the file is broken (Mend it.)"


def test_every_daemon_follows_an_order_and_the_leader_answers(stage: Stage) -> None:
    worker = Worker(stage.store, "here")
    leads, stands_by = (
        Daemon(stage.store, [place(worker)], holder=name, reread=Reread([place(worker, "2")])) for name in ("a", "b")
    )
    with running(leads):
        stage.wait_until(lambda: leads.leading is True)
        with running(stands_by):
            stage.wait_until(lambda: stands_by.leading is False)
            stage.store.places.order_reload("f00d", by="grace")
            stage.wait_until(lambda: stage.store.places.reload_answer().get("order") == "f00d")
            assert stage.store.places.reload_answer()["holder"] == "a"
            stage.wait_until(lambda: stands_by.reloading.told().get("order") == "f00d")
    later = Daemon(stage.store, [place(worker)], holder="c", reread=Reread([], broken=True))
    with running(later):  # its start has followed the order
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert later.reloading.told() == {} and stage.store.places.reload_answer()["holder"] == "a"
