"""The keeper leaves nothing behind, whatever the command did to get away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbslurm.trial import keeper as trial_keeper

# Two processes that shed parent, session and terminal and ignore what can be ignored; then the command itself goes on.
ESCAPES = """
import os, signal, sys, time
for name in ("a", "b"):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            with open(sys.argv[1] + "/." + name, "w") as file:
                file.write(str(os.getpid()))
            os.rename(sys.argv[1] + "/." + name, sys.argv[1] + "/" + name)
            time.sleep(600)
        os._exit(0)
while not all(os.path.exists(sys.argv[1] + "/" + name) for name in ("a", "b")):
    time.sleep(0.01)
open(sys.argv[1] + "/ready", "w").close()
exec(sys.argv[2])
"""


def started(tmp_path: Path, then: str, limit_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", ESCAPES, str(tmp_path), then]
    return subprocess.Popen(
        [sys.executable, "-I", trial_keeper.__file__, str(limit_s), *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def ended(keeper: subprocess.Popen[bytes]) -> int:
    try:
        return keeper.wait(120)
    finally:
        keeper.kill()
        assert keeper.stdin
        keeper.stdin.close()


def is_ready(tmp_path: Path) -> None:
    until = time.monotonic() + 120
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < until, "the command didn't get so far"
        time.sleep(0.01)


def assert_all_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pid = int((tmp_path / name).read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            pytest.fail(f"the process {name} was still there")


@pytest.mark.parametrize(
    ("then", "code"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11)]
)
def test_when_the_command_ends_so_does_all_that_it_left(tmp_path: Path, then: str, code: int) -> None:
    assert ended(started(tmp_path, then, 300)) == code
    assert_all_gone(tmp_path)


def test_over_the_limit_all_is_ended(tmp_path: Path) -> None:
    keeper = started(tmp_path, "time.sleep(600)", 6)
    assert ended(keeper) == trial_keeper.OVER_LIMIT
    is_ready(tmp_path)
    assert_all_gone(tmp_path)


def test_when_its_caller_is_gone_all_is_ended(tmp_path: Path) -> None:
    keeper = started(tmp_path, "time.sleep(600)", 300)
    is_ready(tmp_path)
    assert keeper.stdin
    keeper.stdin.close()
    assert ended(keeper) == trial_keeper.CALLED_OFF
    assert_all_gone(tmp_path)
