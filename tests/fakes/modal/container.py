"""A container of the fake: `container.py INSIDE`, the payload on standard input, what the function returns on output.

It takes every orphan of its tree, and ends with all of it, as a container that is used once does.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main(inside: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    spec = importlib.util.spec_from_file_location("inside", inside)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        result = module.judge(sys.stdin.buffer.read())
    finally:
        end_children()
    sys.stdout.buffer.write(result)


def end_children() -> None:
    """Until there are none: all are stopped before any is killed, so that none can outrun us by forking."""
    while True:
        stopped: set[int] = set()
        while fresh := below(os.getpid()) - stopped:
            for pid in fresh:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= fresh
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0 if stopped else os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def below(root: int) -> set[int]:
    """Every process below this one that isn't a zombie."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
