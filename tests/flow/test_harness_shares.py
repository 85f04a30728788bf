"""What the kernel counts for a user on the whole node: nobody takes others' share of it, or is blamed for who did."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm_eval.cage import user_counts
from kbslurm_eval.judge import judge
from kbslurm_eval.shared.runner_link import JudgeEnd
from tests.flow import harness_ground as ground
from tests.services import pointless

USER = "games"  # on every Debian; nobody's runs go on beside these tests
HOARDER = """
import os, time

def custom_kernel(data):
    for _ in range(5):
        if os.fork() == 0:
            kept = [os.pipe() for _ in range(240)]
            time.sleep(600)
    time.sleep(2)
    return sorted(data)
"""
NEEDS_A_PIPE = """
import os

def custom_kernel(data):
    reads, writes = os.pipe()
    os.write(writes, bytes(30_000))
    os.read(reads, 30_000)
    return sorted(data)
"""
HOLDS = """
import os, sys, time
kept = [os.pipe() for _ in range(1100)]
print("holds", flush=True)
time.sleep(600)
"""


@pytest.fixture
def user() -> str:
    if os.getuid() != 0:
        pointless("only root may start a judge as somebody else")
    return USER


@contextlib.contextmanager
def holder_of_pipes(name: str) -> Iterator[int]:
    """A process of this user that has all its pipes."""
    owner = pwd.getpwnam(name)
    argv = ["prlimit", "--nofile=4096:4096", "/usr/bin/python3", "-I", "-c", HOLDS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, user=owner.pw_uid, group=owner.pw_gid, cwd="/") as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"holds\n"
            yield process.pid
        finally:
            process.kill()


def test_whoever_has_a_nodes_pipes_used_too_much_memory(tmp_path: Path, user: str) -> None:
    told = ground.manifest(HOARDER, mode="test", limits=ground.limits(memory_bytes=2 << 30))
    report = ground.judged_for_an_ordinary_user(tmp_path, told, user)
    assert report.verdict == "memory", report.reason
    assert "holds more pipes than its share" in report.reason


def test_whom_somebody_else_left_no_pipes_is_not_to_blame(tmp_path: Path, user: str) -> None:
    tmp_path.chmod(0o711)
    told = ground.manifest(NEEDS_A_PIPE, mode="test", limits=ground.limits(test_s=2.0))
    assert ground.judged_for_an_ordinary_user(tmp_path / "alone", told, user).verdict == "passed"
    with holder_of_pipes(user):
        report = ground.judged_for_an_ordinary_user(tmp_path / "beside", told, user)
    assert report.verdict == "infrastructure", report.reason
    assert report.reason.startswith("another run on this node has all the pipes of its user; test phase")


SENDER = """
import array, os, socket

kept = []


def custom_kernel(data):
    for _ in range(11 if not kept else 0):
        kept.append(socket.socketpair())
        writes = []
        for _ in range(100):
            reads, end = os.pipe()
            os.close(reads)
            writes.append(end)
        kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", writes))])
        for end in writes:
            os.close(end)
    return sorted(data)
"""


def test_pipes_on_their_way_through_sockets_are_their_senders(tmp_path: Path, user: str) -> None:
    """They are in nobody's list of open files."""
    told = ground.manifest(SENDER, mode="test", limits=ground.limits(memory_bytes=2 << 30))
    report = ground.judged_for_an_ordinary_user(tmp_path, told, user)
    assert report.verdict == "memory", (report.reason, report.log)
    assert "on their way through sockets" in report.reason or "holds more pipes than its share" in report.reason


@pytest.mark.parametrize("how", ["os._exit(3)", "time.sleep(0.3); os._exit(3)", "ctypes.string_at(0)"])
def test_who_ends_while_somebody_else_has_the_pipes_is_not_to_blame(tmp_path: Path, user: str, how: str) -> None:
    """What a process that is ending has open is root's to see: it seemed to hide that."""
    tmp_path.chmod(0o711)
    source = f"import ctypes, os, time\n\ndef custom_kernel(data):\n    {how}\n"
    told = ground.manifest(source, mode="test", limits=ground.limits(memory_bytes=2 << 30))
    with holder_of_pipes(user):
        for n in range(3):
            report = ground.judged_for_an_ordinary_user(tmp_path / str(n), told, user)
            assert report.verdict == "infrastructure", report.reason


def test_what_a_process_has_is_counted_once_and_what_it_hides_is_too_much() -> None:
    held = [os.pipe() for _ in range(3)]
    spare = os.dup(held[0][0])
    with select.epoll() as poller:
        for reads, _ in held:
            poller.register(reads, select.EPOLLIN)
        assert len(user_counts._pipes([os.getpid(), os.getpid()])) >= 3
        before = len(user_counts._pipes([os.getpid()]))
        assert user_counts._polled([os.getpid()]) >= 3
    for fd in (spare, *(fd for pair in held for fd in pair)):
        os.close(fd)
    assert before - len(user_counts._pipes([os.getpid()])) == 3
    assert user_counts.short() is None
    assert user_counts.hoarded([os.getpid()]) == ""
    assert not user_counts.hoards([1 << 22], "pipes"), "it is gone"


def test_too_small_a_pipe_and_a_full_poller_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", lambda *_: 8192)
        assert user_counts.short() == "pipes"

    def no_more() -> tuple[int, int]:
        raise OSError(23, "Too many open files in system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", no_more)
        assert user_counts.short() == "pipes"

    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def register(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(select, "epoll", Full)
    assert user_counts.short() == "pollers"


def test_each_launch_in_namespaces_is_a_user_of_its_own(user: str) -> None:
    if ground.achieved_level() < 2:
        pointless("there are no namespaces here")
    seen, ends = set[int](), list[JudgeEnd]()
    try:
        with ground.runners_here(level=2) as runners:
            for _ in range(3):
                folder = runners.prepare()
                ends.append(JudgeEnd(folder))
                started = runners.start(folder)
                seen.add(os.stat(f"/proc/{started.pid}").st_uid)
    finally:
        for end in ends:
            end.close()
    assert len(seen) == 3 and 0 not in seen


LOCKS = """
import fcntl, os, sqlite3, struct, time

held = []


def custom_kernel(data):
    if not held:
        HOW
    return sorted(data)
"""
OF_EVERYBODYS_FILE = """
        for name, command in (("/dev/null", COMMAND), ("/usr/bin/env", COMMAND)):
            held.append(os.open(name, os.O_RDONLY))
            for n in range(700, 0, -1):
                fcntl.fcntl(held[-1], command, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 2 * n, 1, 0))
        time.sleep(9)  # the next look may be due late on a busy machine; it ends the call
"""
OF_ONE_IN_PARTS = """
        for part in range(20):
            held.append(os.open("/dev/null", os.O_RDONLY))
            for n in range(100):
                fcntl.fcntl(held[-1], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 200 * part + 2 * n, 1, 0))
        time.sleep(9)  # the next look may be due late on a busy machine; it ends the call
"""
OF_ITS_OWN = """
        held.append(sqlite3.connect(os.path.join(os.environ.get("TMPDIR", "/tmp"), "own.db")))
        held[0].execute("create table t (n)")
        held[0].executemany("insert into t values (?)", [(n,) for n in range(3_000)])
"""


@pytest.mark.parametrize("level", ["1", "2"])
@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (OF_EVERYBODYS_FILE.replace("COMMAND", "37"), "error"),
        (OF_EVERYBODYS_FILE.replace("COMMAND", "fcntl.F_SETLK"), "memory"),
        (OF_ONE_IN_PARTS, "memory"),
        (OF_ITS_OWN, "passed"),
    ],
    ids=["an open file's", "a process's", "by many descriptors", "a database's"],
)
def test_nobody_slows_others_by_locks_on_everybodys_files(tmp_path: Path, level: str, how: str, verdict: str) -> None:
    """Closing /dev/null took 4,000 times as long, the baseline's starting of a program several times."""
    told = ground.manifest(LOCKS.replace("        HOW\n", how.lstrip("\n")), mode="test")
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == verdict, report.reason
    assert verdict != "memory" or "locks on ranges of files" in report.reason
    assert verdict != "error" or "Operation not permitted" in report.reason


@pytest.mark.parametrize(("lets_go", "verdict"), [(True, "error"), (False, "infrastructure")])
def test_what_the_kernel_lets_go_late_is_not_somebody_elses(
    monkeypatch: pytest.MonkeyPatch, lets_go: bool, verdict: str
) -> None:
    """Descriptors on their way in a cycle of sockets are freed by the kernel's workers, a moment after their owner."""
    looks = iter(["pipes", "pipes", None])
    monkeypatch.setattr(user_counts, "short", lambda: next(looks, None) if lets_go else "pipes")
    monkeypatch.setattr(judge, "LET_GO_S", 0.5)
    assert judge._whose_fault("error", "it failed")[0] == verdict
    assert judge._whose_fault("wrong", "it is wrong") == ("wrong", "it is wrong")
