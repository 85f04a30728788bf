"""Who starts a program by vfork waits for its exec where no signal reaches it, and is stopped all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

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
    opened = threading.Timer(waits_ns / 1e9, lambda: os.close(os.open(held, os.O_RDWR)))
    opened.start()
    tree.freeze(None)
    opened.join()
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
