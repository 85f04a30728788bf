"""Whether the device's clocks held while a batch of calls was timed. Batches in which they didn't are timed again.

A batch is judged by two readings, before its first call and after its last, with every runner stopped; its times aren't
looked at. So a batch isn't taken again because it was slow, only because something else than the kernel made it so.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbslurm_eval.device import nvml

UNSTEADY_CLOCKS = "UNSTEADY_CLOCKS"
BATCH = 8  # calls between two readings
MOST_CHANGE = 0.03  # of a clock within a batch
AGAIN_SHARE = 0.5  # of a launch's batches may be taken again


class Readable(Protocol):
    """A device's clocks."""

    def read(self) -> nvml.Reading:
        """The clocks now; `nvml.Unreadable` if they can't be read."""


@dataclass(kw_only=True)
class ClockWatch:
    """The device's clocks over one run; `why` says why nothing is known of them."""

    clocks: Readable | None = None
    why: str = ""
    locked_mhz: tuple[int, int] | None = None
    most_mhz: int | None = None
    discarded_batches: int = 0
    discarded_calls: int = 0
    kept_batches: int = 0
    batches: int = 0
    seen: list[nvml.Reading] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    def read(self) -> nvml.Reading | None:
        """The clocks now; None if they can't be read."""
        if self.clocks is None:
            return None
        try:
            found = self.clocks.read()
        except nvml.Unreadable as error:
            self.clocks, self.why = None, f"from some point on: {error}"
            return None
        self.seen.append(found)
        for name in found.named():
            self.reasons[name] = self.reasons.get(name, 0) + 1
        return found

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """One batch. After it, `disturbed` says whether the clocks didn't hold."""
        one = Batch()
        first = self.read()
        yield one
        last = self.read()
        self.batches += 1
        one.disturbed = first is not None and last is not None and disturbed(first, last)

    def discard(self, calls: int) -> None:
        """A batch of so many calls is taken again."""
        self.discarded_batches += 1
        self.discarded_calls += calls

    def flags(self) -> list[str]:
        """What staff and the author should know."""
        return [UNSTEADY_CLOCKS] if self.kept_batches else []

    def evidence(self) -> dict[str, str]:
        """What the flags rest on, in words."""
        if not self.kept_batches:
            return {}
        slowed = sorted(name for bit, name in nvml.REASONS.items() if bit & nvml.THROTTLED and name in self.reasons)
        said = f"the device's clocks didn't hold in {self.kept_batches} batches of calls that count"
        return {UNSTEADY_CLOCKS: f"{said} ({', '.join(slowed)})" if slowed else said}

    def told(self) -> dict[str, Any]:
        """For the report."""
        if not self.seen:
            return {"source": "", "why": self.why or "nothing was timed"}
        sm, memory = [one.sm_mhz for one in self.seen], [one.memory_mhz for one in self.seen]
        return {
            "source": "nvml",
            "why": self.why,
            "sm_mhz": [min(sm), int(statistics.median(sm)), max(sm)],
            "memory_mhz": [min(memory), int(statistics.median(memory)), max(memory)],
            "most_mhz": self.most_mhz,
            "locked_mhz": None if self.locked_mhz is None else list(self.locked_mhz),
            "reasons": dict(sorted(self.reasons.items())),
            "readings": len(self.seen),
            "discarded_batches": self.discarded_batches,
            "discarded_calls": self.discarded_calls,
            "kept_batches": self.kept_batches,
        }


@dataclass(kw_only=True)
class Batch:
    """One batch of calls."""

    disturbed: bool = False


@dataclass(frozen=True, kw_only=True)
class AllClocks:
    """The clocks of several devices, as one."""

    each: Sequence[Readable]

    def read(self) -> nvml.Reading:
        """All of them now."""
        return nvml.of_all([one.read() for one in self.each])


def disturbed(first: nvml.Reading, last: nvml.Reading) -> bool:
    """Whether the clocks didn't hold between these two: throttled at either, or changed; of several devices, any
    one's."""
    if first.each:
        return any(disturbed(one, other) for one, other in zip(first.each, last.each, strict=True))
    if (first.reasons | last.reasons) & nvml.THROTTLED:
        return True
    if (first.reasons | last.reasons) & nvml.IDLE:  # clocks that fall at rest say nothing of the calls
        return False
    return _changed(first.sm_mhz, last.sm_mhz) or _changed(first.memory_mhz, last.memory_mhz)


def _changed(one: int, other: int) -> bool:
    return abs(one - other) > MOST_CHANGE * max(one, other)


def watch(kind: str, pci: Sequence[str]) -> ClockWatch:
    """The clocks of these devices."""
    if kind != "cuda":
        return ClockWatch(why="clocks are read on NVIDIA's devices only")
    try:
        each = [nvml.Clocks(one) for one in pci]
    except nvml.Unreadable as error:
        return ClockWatch(why=str(error))
    clocks: Readable = each[0] if len(each) == 1 else AllClocks(each=each)
    return ClockWatch(clocks=clocks, locked_mhz=each[0].locked(), most_mhz=each[0].most())
