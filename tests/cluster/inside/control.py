"""How a test on the login node makes the cluster fail: it asks outside, by a file in the shared folder."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from pathlib import Path

DESK = Path("/shared/.control")
WAIT_S = 180.0
_numbers = itertools.count(1)


def daemon(action: str, name: str) -> None:
    """start, stop, restart, kill, freeze or thaw one of slurmctld, slurmdbd, slurmd:NODE, node:NODE."""
    _asked({"ctl": [action, name]})


def settle() -> None:
    """Every node is idle when this returns."""
    _asked({"ctl": ["wait"]})


def as_root(*argv: str) -> str:
    """What a command prints that only the cluster's administrator may run."""
    return _asked({"root": list(argv)})


def bring_back_accounting() -> None:
    """slurmdbd runs and answers. On a loaded machine its port can still be taken when it starts: then once more."""
    for _ in range(3):
        try:
            daemon("start", "slurmdbd")
            break
        except AssertionError:
            continue
    give_up = time.monotonic() + WAIT_S
    while subprocess.run(["sacct", "-n", "-X"], capture_output=True, check=False).returncode:
        assert time.monotonic() < give_up, "accounting doesn't answer any more"
        time.sleep(0.2)


def resume(nodes: str) -> None:
    """These nodes take jobs again; fine when they do already."""
    as_root("sh", "-c", f"scontrol update nodename={nodes} state=resume || true")


def _asked(order: dict[str, list[str]]) -> str:
    number = f"{os.getpid()}-{next(_numbers)}"
    fresh = DESK / f"{number}.new"
    fresh.write_text(json.dumps(order))
    fresh.rename(DESK / f"{number}.ask")
    answer = DESK / f"{number}.answer"
    give_up = time.monotonic() + WAIT_S
    while not answer.exists():
        assert time.monotonic() < give_up, f"nobody outside did {order}"
        time.sleep(0.02)
    told = json.loads(answer.read_text())
    assert told["status"] == 0, f"{order} failed: {told['text']}"
    return str(told["text"])
