"""Runners in containers: what of the node's own they can still write to (Apptainer without root's rights binds its /sys
with all that is mounted there, and the link's folder as a whole), and how they are stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbslurm_eval.cage import process_tree, processes
from tests.flow import harness_ground as ground
from tests.services import USER_NAMESPACES, needs

# As in such a container: a user namespace in which this user is only itself, and a file system of its own below /sys.
CONTAINER = """
set -e
mount -t tmpfs kb /sys/kernel
echo 0 >/sys/kernel/abort
mount --bind "$1" "$1"
exec unshare --user --map-current-user "$2" -c "$3" "$1"
"""
RUNNER = f"""
import json, os, sys
sys.path.insert(0, {str(ground.EVAL)!r})
from kbslurm_eval.cage import in_container, seen_inside

folder = sys.argv[1]
before = seen_inside.node_left_open(folder)
in_container._leave_the_first_process(folder)


def writes(path):
    try:
        with open(path, "w") as file:
            file.write("1")
    except OSError as error:
        return error.strerror
    return "written"


paths = ["/sys/kernel/abort", folder + "/more", folder + "/rank0/more", folder + "/bell", folder + "/rank0/in"]
found = [writes(path) for path in paths]
print(json.dumps([before, seen_inside.node_left_open(folder), found]))
"""


@needs(USER_NAMESPACES)
def test_nothing_of_the_nodes_is_open_to_a_runner_in_a_container(tmp_path: Path) -> None:
    for name in ("bell", "in", "rank0/in"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", CONTAINER, "container", str(tmp_path)]
    done = subprocess.run([*argv, sys.executable, RUNNER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after, found = json.loads(done.stdout)
    assert str(tmp_path) in before and "/sys/kernel" in before
    assert after == []
    assert found[:3] == ["Read-only file system"] * 3
    assert found[3:] == ["written"] * 2


# A container's first process, which wakes for each signal to its child, and below it a runner that always works.
FIRST = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
print(1, flush=True)
while True:
    time.sleep(1e-4)
    child.poll()
"""


@needs(USER_NAMESPACES)
def test_the_runner_in_a_container_is_stopped_first_and_its_first_process_is_nobodys_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call ends with that signal. It came after a look at all processes, and what the container's own did meanwhile
    was added to the call."""
    argv = ["unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", sys.executable, "-S", "-c"]
    with subprocess.Popen([*argv, FIRST], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "1\n"
            first, runner = processes.descendants_of(process.pid)
            tree = process_tree.ProcessTree([process.pid], None, inner=True)
            tree.freeze(None)
            assert tree.core() in os.sched_getaffinity(0)  # which one is called is known from here on
            tree.thaw()
            seen: list[str | int] = []
            worked = set[int]()
            stop, look, works = tree._pages.stop_if_it_goes_on, tree._look, process_tree._Worked.look

            def told(pid: int) -> bool:
                seen.append(pid)
                return stop(pid)

            def looked() -> dict[int, processes.Threads]:
                seen.append("look")
                return look()

            def counted(own: process_tree._Worked, pid: int, *, waits: bool = False) -> None:
                worked.add(pid)
                works(own, pid, waits=waits)

            monkeypatch.setattr(tree._pages, "stop_if_it_goes_on", told)
            monkeypatch.setattr(tree, "_look", looked)
            monkeypatch.setattr(process_tree._Worked, "look", counted)
            for _ in range(20):
                seen.clear()
                tree.freeze(None)
                assert seen[0] == runner and seen.index("look") > seen.index(first), seen
                for pid in (first, runner):
                    assert processes.state_of(pid) == "T"
                tree.thaw()
                deadline = time.monotonic() + 20
                while processes.state_of(runner) == "T" and time.monotonic() < deadline:
                    time.sleep(1e-3)
                assert processes.state_of(runner) != "T"
            assert worked == {runner}
            tree.close()
        finally:
            for pid in (*processes.descendants_of(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
