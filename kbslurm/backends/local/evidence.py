"""The kernel's view of an attempt's processes: whether its owner is alive, and what it left behind."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KILLING_S = 10.0
DEAD = ("Z", "X", "x")


@functools.cache
def boot_id() -> str:
    """The machine's boot ID."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the program's name (state is [0]), or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  # asked for thousands
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_start(pid: int) -> int | None:
    """When this process was started, in kernel ticks since boot; None if it is dead or a zombie."""
    fields = stat_fields(pid)
    return None if not fields or fields[0] in DEAD else int(fields[19])


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that took a claim, distinguishable from a later one with its pid.

    `supervises` is false for one that took it only so that nobody else can: nothing was started under it, and it is
    never signalled.
    """

    pid: int
    start: int
    boot: str
    at: datetime
    supervises: bool

    @classmethod
    def read(cls, facts: Mapping[str, Any] | None) -> Owner | None:
        """The owner in a claim's record; None if the record is missing or invalid."""
        try:
            return (
                None
                if facts is None
                else cls(
                    pid=int(facts["pid"]),
                    start=int(facts["start"]),
                    boot=str(facts["boot"]),
                    at=datetime.fromtimestamp(float(facts["at"]), UTC),
                    supervises=bool(facts["supervises"]),
                )
            )
        except (KeyError, TypeError, ValueError):
            return None

    def lives(self) -> bool:
        return self.boot == boot_id() and process_start(self.pid) == self.start

    def send(self, number: signal.Signals) -> bool:
        """Signal this process, never another one that got its pid since. False: it is dead."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.lives():
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def kill_what_is_left(owner: Owner, mark: str) -> int:
    """Kill what a dead supervisor left: its session, processes with the attempt's mark, and all their descendants.

    Returns how many processes were killed. The kernel kills the harness itself along with its supervisor; this is for
    what escaped.
    """
    if owner.boot != boot_id():
        return 0
    killed: set[int] = set()
    give_up = time.monotonic() + KILLING_S
    while time.monotonic() < give_up:
        tree = left_of(owner, mark.encode())
        if not tree:
            break
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    pass
        killed |= tree
        time.sleep(0.01)
    return len(killed)


def left_of(owner: Owner, mark: bytes) -> set[int]:
    """The living processes of this attempt, found by session, mark, or descent from one of these.

    A session ID isn't reused while the session has members, so the ID alone is proof.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    for pid in pids():
        fields = stat_fields(pid)
        if not fields or fields[0] in DEAD or int(fields[19]) < owner.start:
            continue
        parents[pid] = int(fields[1])
        if int(fields[3]) == owner.pid or bears(pid, mark):
            found.add(pid)
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {os.getpid()}


def pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def bears(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
