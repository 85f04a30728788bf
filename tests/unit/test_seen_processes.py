"""What the job script is asked to look at for a judge that may not, and what is made of its answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kbslurm_eval.cage import held_files, held_locks, kernel_memory, processes, seen_processes, user_counts
from kbslurm_eval.cage.seen_processes import Lookout
from tests.flow.harness_ground import EVAL
from tests.services import USER_NAMESPACES, needs

HIDDEN = [11, 12]


class Script:
    """Answers at once."""

    def __init__(self, folder: Path, answer: bytes) -> None:
        self.folder, self.answer, self.asked = folder, answer, list[str]()

    def __call__(self, line: str) -> None:
        what = self.folder / line.replace(" ", ".")
        self.asked.append(what.read_text())
        to, word, *_ = what.read_text().split()
        lines = self.answer.splitlines(keepends=True)  # of another kind are none of them
        told = [line for line in lines if line.count(b":") < 2 or f":{word}".encode() in line]
        (self.folder / to).write_bytes(b"".join(told))


def _lookout(folder: Path, answer: bytes, *, answers: bool = True) -> tuple[Lookout, Script]:
    script = Script(folder, answer)
    return Lookout(folder, 1, script, answers=answers), script


@pytest.fixture
def hiding(monkeypatch: pytest.MonkeyPatch) -> Sequence[int]:
    """Processes that the kernel doesn't show to this one."""

    def refused(pid: int, word: str) -> Iterator[bytes]:
        raise PermissionError

    monkeypatch.setattr(seen_processes, "_lines_of", refused)
    monkeypatch.setattr(seen_processes, "is_ending", lambda pid: False)
    monkeypatch.setattr(seen_processes, "is_inside", lambda pid: True)
    monkeypatch.setattr(seen_processes, "proc_folder", lambda pid: f"/proc/{pid}")
    return HIDDEN


def test_an_answer_tells_who_could_be_seen_and_what_was_found(tmp_path: Path) -> None:
    lookout, script = _lookout(
        tmp_path, b"11:\n12:\n11/fdinfo/3:lock:\t1: POSIX  ADVISORY  READ 11 00:05:4 0 0\nend 0\n"
    )
    found = lookout.look([os.getpid()], "lock")
    assert found == {11: [b"lock:\t1: POSIX  ADVISORY  READ 11 00:05:4 0 0"], 12: []}
    assert script.asked == [f"seen.1.1 lock {os.getpid()}/fdinfo\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["look.1"], "an answer is read once"


def test_a_script_that_doesnt_answer_isnt_asked(tmp_path: Path, hiding: Sequence[int]) -> None:
    lookout, script = _lookout(tmp_path, b"", answers=False)
    assert list(seen_processes.lines(hiding, "lock", lookout)) == []
    assert not user_counts.hoards(hiding, "pipes", lookout), "what nobody sees is nobody's guilt"
    assert script.asked == []


@pytest.mark.parametrize(
    ("answer", "guilty"),
    [
        (b"11:\n12:\nend 1\n", False),
        (b"11:\nend 1\n", True),  # the other one hides
        (b"end 1\n", False),  # nobody can be seen from there either
        (b"11:\n12:\n12/fdinfo/4:scm_fds: 3\nend 0\n", True),
        (b"11:\n12:\n" + b"".join(b"12/fd/%d:pipe:[%d]\n" % (n, n) for n in range(5000)) + b"end 0\n", True),
        (b"11:\n12:\n12/fdinfo/4:scm_f", False),  # the end is missing
    ],
)
def test_who_has_a_nodes_pipes(tmp_path: Path, hiding: Sequence[int], answer: bytes, guilty: bool) -> None:
    lookout, _ = _lookout(tmp_path, answer)
    assert user_counts.hoards(hiding, "pipes", lookout) is guilty


def test_whoever_hides_from_a_judge_that_nobody_has_to_help_is_to_blame(hiding: Sequence[int]) -> None:
    assert user_counts.hoards(hiding, "pipes")


def test_more_locks_than_anybody_would_read_are_too_many(tmp_path: Path, hiding: Sequence[int]) -> None:
    line = b"11/fdinfo/3:lock:\t1: POSIX  ADVISORY  READ 11 00:05:4 0 0\n"
    lookout, _ = _lookout(tmp_path, b"11:\n12:\n" + line * 3 + b"end 0\n")
    assert held_locks._held_by(hiding, lookout) == 1
    lookout, _ = _lookout(tmp_path, b"11:\n12:\n" + line * (seen_processes.MOST_BYTES // len(line)) + b"end 2\n")
    assert held_locks._held_by(hiding, lookout) > held_locks.MOST


def test_shares_of_memory_that_could_be_read_in_part_only_are_none(tmp_path: Path) -> None:
    for status, found in ((2, {11: 7 << 10}), (124, {})):
        lookout, _ = _lookout(tmp_path, b"11:\n12:\n11/smaps_rollup:Pss:        7 kB\nend %d\n" % status)
        assert lookout.shares(HIDDEN) == found


def test_pages_of_hidden_processes_count_once_only_if_all_could_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "has_ended", lambda pid: False)
    monkeypatch.setattr(processes, "is_ending", lambda pid: False)
    monkeypatch.setattr(processes, "proc_folder", lambda pid: "/nowhere")

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refused)
    assert processes.resident_bytes(HIDDEN, 100, lambda pid: 80, lambda _: {11: 40, 12: 40}) == 80
    assert processes.resident_bytes(HIDDEN, 100, lambda pid: 80, lambda _: {11: 40}) == 160


@needs(USER_NAMESPACES)
def test_sockets_in_a_network_of_its_own_are_told_apart_without_asking_which_that_is() -> None:
    """The file of each namespace is another one; which namespace it is not everybody may ask."""
    argv = ["unshare", "--user", "--map-current-user", "--net", "sh", "-c", "echo; exec sleep 60"]
    look = "import sys; sys.path[:0] = sys.argv[1:2]; from kbslurm_eval.cage import kernel_memory, seen_processes; "
    look += "p = int(sys.argv[2]); print(seen_processes.is_hidden(p), kernel_memory._is_apart(p))"
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert kernel_memory._is_apart(process.pid) and not kernel_memory._is_apart(os.getpid())
        beside = ["unshare", "--user", "--map-current-user", sys.executable, "-c", look, str(EVAL), str(process.pid)]
        told = subprocess.run(beside, capture_output=True, text=True, check=True).stdout.split()
        process.kill()
    assert told == ["True", "True"]


LOCKING = """
import fcntl, os, sys

kept = [os.open(os.environ["MINE"], os.O_RDWR | os.O_CREAT) for _ in range(int(sys.argv[1]))]
for at in range(int(sys.argv[2])):
    fcntl.lockf(kept[-1], fcntl.LOCK_EX, 1, 2 * at)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("files", "locks", "asked", "too_many"),
    [(1, 3, False, False), (1, 1001, False, True), (90, 1001, True, True), (90, 3, True, False)],
)
def test_the_nodes_list_of_locks_is_read_only_where_many_files_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, locks: int, asked: bool, too_many: bool
) -> None:
    """To read it stops all that is done with locks on the node, and waits until it has: some milliseconds."""
    looks = list[bool]()
    there_are = held_locks._many_there_are

    def look() -> bool:
        looks.append(there_are())
        return looks[-1]

    monkeypatch.setattr(held_locks, "_many_there_are", look)
    argv = [sys.executable, "-c", LOCKING, str(files), str(locks)]
    env = {**os.environ, "MINE": str(tmp_path / "mine")}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"\n"
            assert held_locks.HeldLocks().look([process.pid]) == too_many
            assert bool(looks) == asked
        finally:
            process.kill()


def test_whose_open_files_nobody_shows_is_looked_for_in_the_nodes_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hiding: Sequence[int]
) -> None:
    def refused(pid: int) -> tuple[str, list[str]]:
        raise PermissionError

    many = [False, True]
    monkeypatch.setattr(held_locks, "open_files", refused)
    monkeypatch.setattr(held_locks, "_many_there_are", lambda: many.pop(0))
    lookout, script = _lookout(tmp_path, b"end 0\n")
    assert not held_locks.HeldLocks(lookout).look(hiding) and not script.asked
    assert not held_locks.HeldLocks(lookout).look(hiding) and script.asked and not many


LEADERLESS = """
import ctypes, fcntl, os, select, socket, threading, time

reads, writes = os.pipe()
kept = open(os.environ["MINE"], "w")
fcntl.lockf(kept, fcntl.LOCK_EX, 1, 5)
kept.write("x")
kept.flush()
poller = select.epoll()
poller.register(reads)
here, there = socket.socketpair()
socket.send_fds(here, [b"x"], [reads, writes])


def stays():
    time.sleep(0.2)
    print("alone", flush=True)
    time.sleep(60)


threading.Thread(target=stays).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # this thread ends, and no other
"""


def test_what_a_process_without_its_first_thread_has_open_is_seen(tmp_path: Path) -> None:
    """Its own folder in /proc shows nothing, those of its other threads all."""
    env = {**os.environ, "MINE": str(tmp_path / "mine")}
    with subprocess.Popen([sys.executable, "-c", LEADERLESS], stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"alone\n"
            pids = [process.pid]
            assert os.listdir(f"/proc/{process.pid}/fd") == []
            assert held_locks._held_by(pids, None) == 1
            assert sum(int(line.split()[1]) for line in seen_processes.lines(pids, "scm_fds")) == 2
            assert user_counts._polled(pids) == 1
            assert len(user_counts._pipes(pids)) >= 1
            assert kernel_memory.open_in(pids)[1] == 1
            files = held_files.HeldFiles(tmp_path)
            assert files._removed(pids) == 0
            (tmp_path / "mine").unlink()
            assert files._removed(pids) == 4096
            assert not processes.is_ending(process.pid)
        finally:
            process.kill()
