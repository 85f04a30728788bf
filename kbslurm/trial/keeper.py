"""Runs one command and leaves no process behind: `python3 -I trial_keeper.py LIMIT_S COMMAND …`.

A process that leaves its session and its parent is still reaped by this keeper, so it is found and killed with the
rest: when the command ends, when the limit is reached, and when stdin closes, which happens however our caller dies.
Its exit code is the command's, 128 + signal if it was killed, and OVER_LIMIT or CALLED_OFF if the keeper killed it. It
is standalone, stdlib only, since it is started as a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

OVER_LIMIT = 200
CALLED_OFF = 201
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1
PAUSE_S = 0.02


def main(argv: list[str]) -> int:
    limit_s, command = float(argv[1]), argv[2:]
    # Without it (not Linux) only what stays in the command's session is found.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    started_at = time.monotonic()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        # If this keeper is killed, the command must not go on unwatched.
        preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    try:
        return _waited(child, started_at + limit_s)
    finally:
        _end(child)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _waited(child: subprocess.Popen[bytes], until: float) -> int:
    exited = os.pidfd_open(child.pid) if hasattr(os, "pidfd_open") else None
    watched = [0] if exited is None else [0, exited]
    while child.poll() is None:
        left = until - time.monotonic()
        if left <= 0:
            return OVER_LIMIT
        ready, _, _ = select.select(watched, [], [], min(left, 0.1 if exited is None else left))
        # poll() only reaps our own child; adopted orphans are reaped at the end.
        if 0 in ready and not os.read(0, 4096):
            return CALLED_OFF
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill all descendants repeatedly until none is left: one that forks meanwhile is caught in the next round."""
    while True:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        for pid in _descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(PAUSE_S)
            continue
        return


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command's name is in parentheses and may contain anything, even parentheses: count from the last one.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
