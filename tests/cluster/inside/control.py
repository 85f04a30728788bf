"""How a test on the login node makes the cluster fail: it asks outside, by a file in the shared folder."""

from __future__ import annotations

import itertools
import json
import os
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
