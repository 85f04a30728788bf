"""`kbslurm demo` as a stranger runs it: a process of its own, ended by ^C, run again, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

PATIENCE_S = 400.0


def started(place: Path, *words: str) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))}
    command = [sys.executable, "-m", "kbslurm", "demo", "--once", "--dir", str(place), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, env=env)


def of_the_demo(place: Path) -> list[str]:
    """The processes that have to do with this demo's folder, by their command lines."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(place) in line and process.pid != os.getpid():
            found.append(line)
    return found


def test_it_survives_an_interruption_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "demo"

    # Given a demo that is interrupted while it measures
    first = started(place)
    attempts = place / "attempts"
    until = time.monotonic() + PATIENCE_S
    while not (attempts.is_dir() and any(attempts.iterdir())):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130, err
    assert "Traceback" not in err

    # When it is run again
    second = started(place, "--json")
    out, err = second.communicate(timeout=PATIENCE_S)

    # Then it goes on where it was, and every submission gets the verdict of the script
    assert second.returncode == 0, err
    told = json.loads(out)
    assert told["ok"]
    verdicts = [run["verdict"] for row in told["submissions"] for run in row["runs"]]
    assert len(told["submissions"]) == 8
    assert {"passed", "wrong", "error", "timeout", "violation"} == set(verdicts)
    assert min(row["submission"] for row in told["submissions"]) == 1

    # And no process is left
    until = time.monotonic() + 30
    while (left := of_the_demo(place)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []
