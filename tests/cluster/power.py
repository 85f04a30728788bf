"""A node of the test cluster loses power. Runs inside, as root; standard library only."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path


def _of_node(node: str) -> list[int]:
    """Every process of this node's jobs: the step daemons, what they started, and what is in the jobs' control groups.

    A container's processes have an environment of their own; they are found by whose children they are, or whose
    session they share.
    """
    parents, sessions, found = {}, {}, set[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            pid, fields = int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
            parents[pid], sessions[pid] = int(fields[1]), int(fields[3])
            steps = (entry / "comm").read_text().startswith("slurmstepd")
            mine = f"SLURMD_NODENAME={node}\0".encode() in (entry / "environ").read_bytes() + b"\0"
            grouped = re.search(rf"/(slurm_{node}|{node}_\w+)(/|$)", (entry / "cgroup").read_text(), re.MULTILINE)
            if mine or (grouped and not (entry / "comm").read_text().startswith("slurmd")):
                found.add(pid)
                if not steps and parents[pid] > 1:
                    above = Path("/proc") / str(parents[pid]) / "comm"
                    found |= {parents[pid]} if above.read_text().startswith("slurmstepd") else set()
    before: set[int] = set()
    while before != found:
        before = set(found)
        led = {sessions[pid] for pid in found if pid in sessions} - {sessions.get(1, 1), 0}
        found |= {pid for pid in parents if parents[pid] in found or sessions[pid] in led}
    return sorted(found - {1, os.getpid()})


def cut(node: str) -> None:
    """End every process of a node's jobs at once: all are stopped first, so that none starts another meanwhile."""
    held: set[int] = set()
    while more := set(_of_node(node)) - held:
        for one in more:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        held |= more
    for one in held:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
