"""Who starts a program by vfork waits for its exec where no signal reaches it, and is stopped all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.cage import process_tree, processes
from kbslurm_eval.cage.runners import Unstoppable
from tests.flow.test_harness_warm import until

# its child can't become its program before somebody writes to that file
STARTING = """
import os, sys, threading, time
def start():
    os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ,
                   file_actions=[(os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)])
threading.Thread(target=start, daemon=True).start()
time.sleep(600)
"""


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A process with a thread that is starting a program, and the file that this waits for."""
    held = tmp_path / "held"
    os.mkfifo(held)
    with subprocess.Popen([sys.executable, "-c", STARTING, str(held)]) as process:
        try:
            until(lambda: len(processes.descendants_of(process.pid)) == 1, "it starts nothing")
            until(lambda: "D" in states(process.pid), "it doesn't wait for its child")
            yield process.pid, held
        finally:
            for pid in (*processes.descendants_of(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def states(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        return {
            (Path(f"/proc/{pid}/task") / task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in os.listdir(f"/proc/{pid}/task")
        }
    return set()


def test_one_that_starts_a_program_is_stopped_once_that_has_begun(starting: tuple[int, Path]) -> None:
    pid, held = starting
    (child,) = processes.descendants_of(pid)
    tree = process_tree.ProcessTree([pid], pid)
    waits_ns = 300_000_000
    writers: list[int] = []  # one stays: who is stopped at that moment tries again later
    opened = threading.Timer(waits_ns / 1e9, lambda: writers.append(os.open(held, os.O_RDWR)))
    opened.start()
    try:
        tree.freeze(None)
    finally:
        opened.join()
        os.close(*writers)
    assert states(pid) == states(child) == {"T"}
    assert tree.went_on_ns > waits_ns / 2, "what goes on meanwhile counts"
    assert Path(f"/proc/{child}/comm").read_text() == "sleep\n"
    tree.thaw()
    until(lambda: states(child) == {"S"}, "its child doesn't go on")
    went_on_ns = []
    for _ in range(5):  # in one of them it may wait for a page of its program's file, likewise
        tree.freeze(None)
        went_on_ns.append(tree.went_on_ns)
        tree.thaw()
    assert min(went_on_ns) == 0
    tree.close()


def test_one_whose_child_never_begins_is_not_waited_for_for_ever(
    starting: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "CALL_STOP_S", 0.5)
    pid, _ = starting
    tree = process_tree.ProcessTree([pid], pid)
    began = time.monotonic()
    with pytest.raises(Unstoppable):
        tree.freeze(None)
    assert time.monotonic() - began < 5
    tree.close()


# Each reads at the one place of an open file, which the kernel gives them in turns and no signal interrupts.
RELAY = """
import mmap, os, sys, time
many = int(sys.argv[1])
file = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
os.ftruncate(file, 1 << 31)
seen = mmap.mmap(-1, 4096)
begins, begin = os.pipe()
for number in range(many):
    if os.fork() == 0:
        into = memoryview(mmap.mmap(-1, 16 << 20))
        into[::4096] = bytes(len(into[::4096]))
        seen[number] = 1
        os.read(begins, 1)
        seen[number] = 2
        os.readv(file, 6 * [into])
        time.sleep(600)
def wait(for_what):
    while any(number != for_what for number in seen[:many]):
        time.sleep(1e-4)
    print("so", flush=True)
    sys.stdin.readline()
wait(1)
os.write(begin, bytes(many))
wait(2)
"""


@contextlib.contextmanager
def in_its_call(
    code: str, *given: str, says: Collection[str] = ("so",)
) -> Iterator[tuple[subprocess.Popen[str], process_tree.ProcessTree]]:
    """A process that was stopped once, so that those below it are known, and has gone on to where it says all this."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        tree = process_tree.ProcessTree([process.pid], process.pid)
        try:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "so\n"
            tree.freeze(None)
            tree.thaw()
            process.stdin.write("go\n")
            process.stdin.flush()
            assert {process.stdout.readline().rstrip("\n") for _ in says} == set(says)
            yield process, tree
        finally:
            for pid in (*processes.descendants_of(process.pid), process.pid):
                os.kill(pid, signal.SIGKILL)
            tree.close()


def test_what_processes_work_in_turns_until_they_stop_is_added_up() -> None:
    """Each could work in the kernel for nothing as long as the longest of them may."""
    many = 8
    with in_its_call(RELAY, str(many)) as (process, tree):
        children = processes.descendants_of(process.pid)
        before = [processes.ran_ns(pid) or 0 for pid in children]
        tree.freeze(None)
        worked = [(processes.ran_ns(pid) or 0) - ran for pid, ran in zip(children, before, strict=True)]
        assert len(worked) == many
        assert tree.stopping_ns > sum(worked) / 2 > max(worked), (tree.stopping_ns, worked)


def test_what_a_helper_works_while_all_others_are_looked_at_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that stopped themselves make each look as long as one likes."""
    with in_its_call(RELAY, "1") as (process, tree):
        look = tree._look
        (helper,) = processes.descendants_of(process.pid)

        def after_it_has_worked() -> dict[int, processes.Threads]:
            deadline = time.monotonic() + 30
            while processes.state_of(helper) not in "Tt" and time.monotonic() < deadline:
                time.sleep(1e-3)
            return look()

        monkeypatch.setattr(tree, "_look", after_it_has_worked)
        before = processes.ran_ns(helper) or 0
        tree.freeze(None)
        worked = (processes.ran_ns(helper) or 0) - before
        assert worked > 1_000_000
        assert tree.stopping_ns > worked / 2, (tree.stopping_ns, worked)


# Forks in this call somebody who goes on when the answer is there.
FORKS = """
import os, sys, time
print("so", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    while True:
        pass
print("so", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("told", [True, False])
def test_who_was_forked_in_this_call_is_told_at_once_or_pays(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """The look at all processes, which those who stopped themselves make long, found them only then."""
    with in_its_call(FORKS) as (process, tree):
        look, first = tree._look, [True]
        (helper,) = processes.descendants_of(process.pid)

        def long() -> dict[int, processes.Threads]:
            if first.pop() if first else False:
                began, ran = time.monotonic(), processes.ran_ns(helper) or 0
                while time.monotonic() < began + (0.2 if told else 20):
                    if (processes.ran_ns(helper) or 0) > ran + 20_000_000:
                        break
                    time.sleep(1e-3)
            return look()

        monkeypatch.setattr(tree, "_look", long)
        if not told:
            monkeypatch.setattr(tree._pages, "of_its_first_thread", lambda _: [])
            monkeypatch.setattr(tree, "_tell_new_ones", lambda *_: None)
        before = processes.ran_ns(helper) or 0
        tree.freeze(None)
        worked = (processes.ran_ns(helper) or 0) - before
        assert processes.state_of(helper) == "T"
        assert worked < 10_000_000 if told else tree.stopping_ns > 15_000_000, (worked, tree.stopping_ns)
        tree.thaw()
        assert processes.state_of(helper) != "T"


BURNS = """
import os, signal, time
while time.process_time() < 0.05:
    pass
print("so", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("whose", ["from before", "another launch's", "its own"])
def test_what_an_orphan_worked_is_the_bill_of_whoever_started_it_in_this_call(
    monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """A submission's came to the judge in the baseline's calls, since their parents were ended, and the baseline was
    billed for all that they had ever worked: it seemed five times as slow."""
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as process:
        orphans, others = list[int](), list[int]()
        tree = process_tree.ProcessTree([process.pid], process.pid, orphans=lambda: orphans, others=lambda: others)
        look, orphan = tree._look, None
        try:
            tree.freeze(None)
            if whose != "from before":
                tree.thaw()
            orphan = subprocess.Popen([sys.executable, "-S", "-c", BURNS], stdout=subprocess.PIPE, text=True)
            assert orphan.stdout is not None and orphan.stdout.readline() == "so\n"
            if whose == "from before":
                tree.thaw()
            orphans.append(orphan.pid)
            others += [orphan.pid] if whose == "another launch's" else []

            def long() -> dict[int, processes.Threads]:
                time.sleep(0.02)
                return look()

            monkeypatch.setattr(tree, "_look", long)
            tree.freeze(None)
            assert (tree.stopping_ns > 15_000_000) == (whose == "its own"), tree.stopping_ns
            assert orphan.pid in tree.known(), "whoever's it is, it stays stopped"
        finally:
            for one in (process, orphan):
                if one is not None:
                    one.kill()
            if orphan is not None:
                orphan.communicate()
            tree.close()


def test_who_was_forked_in_this_call_pays_from_the_stops_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it was told, after all others were and the first had stopped, it worked a millisecond for nothing."""
    with in_its_call(FORKS) as (process, tree):
        tell = tree._tell_new_ones
        (helper,) = processes.descendants_of(process.pid)

        def late(*given: Any) -> None:
            until, deadline = (processes.ran_ns(helper) or 0) + 20_000_000, time.monotonic() + 30
            while (processes.ran_ns(helper) or 0) < until and time.monotonic() < deadline:
                time.sleep(1e-3)
            tell(*given)

        monkeypatch.setattr(tree._pages, "of_its_first_thread", lambda _: [])
        monkeypatch.setattr(tree, "_tell_new_ones", late)
        tree.freeze(None)
        assert processes.state_of(helper) == "T"
        assert tree.stopping_ns > 15_000_000


SLEEPS = FORKS.replace(
    "    while True:\n        pass\n",
    """
    until = time.process_time() + 0.03
    while time.process_time() < until:
        pass
    print("asleep", flush=True)
    time.sleep(600)
""",
)


@pytest.mark.parametrize("first", [True, False])
def test_who_was_forked_in_this_call_and_sleeps_costs_nothing(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """However long it takes until it is told: with 64 idle threads that was half a millisecond of each call."""
    with in_its_call(SLEEPS, says={"so", "asleep"}) as (process, tree):
        tell = tree._tell
        (helper,) = processes.descendants_of(process.pid)
        deadline = time.monotonic() + 30
        while processes.state_of(helper) != "S" and time.monotonic() < deadline:
            time.sleep(1e-3)

        def late(*given: Any) -> list[int]:
            time.sleep(0.02)
            return tell(*given)

        monkeypatch.setattr(tree, "_tell", late)
        if not first:
            monkeypatch.setattr(tree._pages, "of_its_first_thread", lambda _: [])
        tree.freeze(None)
        assert processes.state_of(helper) == "T"
        assert tree.stopping_ns < 10_000_000


A_THREAD_WORKS = FORKS.replace(
    "    while True:\n        pass\n",
    """
    import threading

    def works():
        while time.thread_time() < 600:
            pass

    threading.Thread(target=works, daemon=True).start()
    time.sleep(600)
""",
)


def test_who_was_forked_in_this_call_pays_for_its_other_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its first thread sleeps."""
    with in_its_call(A_THREAD_WORKS) as (process, tree):
        tell, (helper,) = tree._tell, processes.descendants_of(process.pid)
        seen: list[tuple[str, int]] = []

        def late(*given: Any) -> list[int]:
            until, deadline = (processes.ran_ns(helper) or 0) + 20_000_000, time.monotonic() + 30
            while not seen and (processes.ran_ns(helper) or 0) < until and time.monotonic() < deadline:
                time.sleep(1e-3)
            seen.append(processes.state_and_threads(helper))
            return tell(*given)

        monkeypatch.setattr(tree, "_tell", late)
        tree.freeze(None)
        assert seen[0] == ("S", 2) and processes.state_of(helper) == "T"
        assert tree.stopping_ns > 15_000_000


LEADERLESS = """
import ctypes, os, sys, threading, time

GO_ON = os.pipe()


def works():
    while threading.main_thread().ident and not os.read(GO_ON[0], 1):
        pass
    while True:
        pass


if os.fork() == 0:
    threading.Thread(target=works, daemon=True).start()
    ctypes.CDLL(None).syscall(60, 0)
print("so", flush=True)
sys.stdin.readline()
os.write(GO_ON[1], b"x")
print("so", flush=True)
time.sleep(600)
"""


def test_a_helper_whose_first_thread_has_ended_is_told_at_once_or_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown as ended, and worked for nothing until all others had been looked at."""
    with in_its_call(LEADERLESS) as (process, tree):
        look, first = tree._look, [True]
        (helper,) = processes.descendants_of(process.pid)
        deadline = time.monotonic() + 30
        while processes.state_and_threads(helper) != ("Z", 2) and time.monotonic() < deadline:
            time.sleep(1e-3)
        assert processes.state_and_threads(helper) == ("Z", 2)

        def long() -> dict[int, processes.Threads]:
            if first.pop() if first else False:
                began, ran = time.monotonic(), processes.ran_ns(helper) or 0
                while time.monotonic() < began + 0.2 and (processes.ran_ns(helper) or 0) < ran + 20_000_000:
                    time.sleep(1e-3)
            return look()

        monkeypatch.setattr(tree, "_look", long)
        before = processes.ran_ns(helper) or 0
        tree.freeze(None)
        assert (processes.ran_ns(helper) or 0) - before < 10_000_000
