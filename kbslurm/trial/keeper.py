"""Runs one command and leaves nothing of it behind: `python3 -I trial_keeper.py LIMIT_S COMMAND …`.

A process that sheds its session and its parent still has this keeper for a reaper, so it is found and ended with the
rest: when the command ends, when the limit is over, and when stdin closes, which it does however our caller dies.
Its exit code is the command's, 128 + signal for one that was killed, and OVER_LIMIT or CALLED_OFF for its own doing.
It stands alone, stdlib only: it is started as a file.
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
        # Should this keeper be killed itself, the command must not go on unwatched.
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
        # poll() only ever takes our own child; orphans that came to us are reaped at the end.
        if 0 in ready and not os.read(0, 4096):
            return CALLED_OFF
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill all descendants, again and again, until there is none: one that forks meanwhile is met in the next round."""
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
            # The command's name stands in brackets and may hold anything, brackets too: count from the last one.
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
