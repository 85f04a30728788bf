"""The device of one run, as the judge knows it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.device import call_parts, driver
from kbslurm_eval.judge import clock_watch
from kbslurm_eval.judge.device_memory import DeviceMemory, Piece
from kbslurm_eval.judge.reference import Prepared
from kbslurm_eval.shared.wire import Manifest

HOST_COPIES, TIMING_DISPUTED, DEVICE_BUSY = "HOST_COPIES", "TIMING_DISPUTED", "DEVICE_BUSY"
IDLE_NS = 300_000  # the smallest piece of work takes some 20 µs on a device at rest, and a slice of ms on a busy one
BUSY_SHARE = 0.1  # of a run's calls, before it is told


@dataclass(kw_only=True)
class RunDevice:
    """The device of one run, as the judge knows it. Nothing is opened before a case has an array for it."""

    gpu: driver.Driver
    choice: call_parts.DeviceChoice
    shares: bool
    why: str = ""
    needed: bool = False
    sizes: tuple[int, int] = (0, 0)
    calls: int = 0
    busy: int = 0
    times: list[dict[str, Any]] = field(default_factory=list)
    idle_ns: int = IDLE_NS
    busy_before: bool = False
    cold: bool = False
    flushes: int = 0
    clocks: clock_watch.ClockWatch = field(default_factory=clock_watch.ClockWatch)
    kept: dict[int, tuple[object, Piece]] = field(default_factory=dict)  # by case: an input that is on the device
    _memory: DeviceMemory | None = None
    _device: driver.Device | None = None
    _flushed: driver.Memory | None = None

    @property
    def facts(self) -> driver.DeviceInfo:
        """The device that is used: the first one that this job sees."""
        return self.gpu.devices[0]

    @property
    def alone(self) -> bool:
        """Whether only one process at a time may use it, and it is used."""
        return self.needed and self.facts.exclusive

    def look(self, prepared: Prepared) -> None:
        """Whether a call like this needs the device, and how much of its memory."""
        place, found = (
            call_parts.split_layout(prepared.layout, self.choice),
            call_parts.split_input(prepared.packed, self.choice, away=prepared.away),
        )
        self.needed = self.needed or place is not None or found is not None
        mine = (0 if found is None else found.size, 0 if place is None else place.size)
        self.sizes = (max(mine[0], self.sizes[0]), max(mine[1], self.sizes[1]))

    def finish(self) -> None:
        """Wait until what this process gave the device is done: a kernel's launch returns long before its end. Not
        where the submission has the device alone: the reference doesn't use it, and a context here would keep the
        runner out."""
        if self.needed and not self.alone:
            self.device().synchronize()

    def device(self) -> driver.Device:
        """The judge's own context; CantStart when there is none to be had."""
        if self._device is None:
            try:
                self._device = self.gpu.open(self.facts.index)
                self._calibrate(self._device)
                if self.cold and self.facts.flush_bytes:  # before a submission could have taken the memory
                    self._flushed = self._device.allocate(self.facts.flush_bytes)
            except driver.OutOfDeviceMemory:
                raise CantStart(
                    f"the device has too little memory free to flush its caches ({self.facts.flush_bytes >> 20} MiB)"
                ) from None
            except driver.DriverError as error:
                raise CantStart(f"the judge can't use the device: {error}") from None
        self._device.enter()
        return self._device

    @property
    def memory(self) -> DeviceMemory:
        """The judge's memory there."""
        if self._memory is None:
            self._memory = DeviceMemory(self.device, lambda: self.shares)
        return self._memory

    def reserve(self) -> None:
        """Have the memory that the judge needs for a call: for an input, for reference and check, for answers."""
        into, out = self.sizes
        self.memory.reserve((into, into, into, out, out))

    def staged(self, prepared: Prepared, found: call_parts.SplitInput) -> Piece | None:
        """The part of an input that the host has, on the device but out of everybody's reach. One that is the same in
        every call is brought there once in a run."""
        if not found.blocks:
            return None
        index, first = prepared.case.index, found.blocks[0][0]
        held, piece = self.kept.get(index, (None, None))
        if piece is not None and held is prepared.packed:
            return piece
        piece = self.memory.room(found.size - first)
        for at, part in found.pieces():
            self.device().write(piece.at + at - first, part)
        if prepared.kept:
            self.kept[index] = prepared.packed, piece
        return piece

    def _calibrate(self, device: driver.Device) -> None:
        """What the smallest piece of work takes on this device at rest."""
        scratch = device.allocate(4)
        least = min(device.touch(scratch.at) for _ in range(24))
        device.free(scratch)
        self.busy_before = least > IDLE_NS
        self.idle_ns = max(IDLE_NS, 4 * least)

    @property
    def flushed(self) -> bool:
        """Whether the caches are flushed before each call."""
        return self._flushed is not None and not self.alone

    def flush(self) -> None:
        """Where the problem is timed cold, push everything out of the device's caches."""
        if not self.cold or self.alone:
            return
        device = self.device()
        if self._flushed is not None:
            self.flushes += 1
            device.flush(self._flushed, self.flushes)

    def _cold(self) -> dict[str, Any]:
        """What a report says of the caches: how much was written before each call, or why nothing was."""
        if not self.cold:
            return {"flushed_bytes": 0, "why": "the problem is timed with whatever the call before left in the caches"}
        if self.alone:
            return {"flushed_bytes": 0, "why": "the submission has the device alone, so nobody else can flush it"}
        if self._flushed is None:
            return {"flushed_bytes": 0, "why": "the driver doesn't say how large the device's L2 cache is"}
        return {"flushed_bytes": self.facts.flush_bytes, "why": ""}

    def copies(self, why: str) -> None:
        """From here on no memory is shared."""
        self.shares, self.why = False, why

    def flags(self) -> list[str]:
        """What staff and the author should know of the run."""
        if not self.needed:
            return []
        found = [] if self.shares else [HOST_COPIES]
        if self.busy_before or self.busy > max(1, BUSY_SHARE * self.calls):
            found.append(DEVICE_BUSY)
        if any(not one["agreed"] for one in self._summary()):
            found.append(TIMING_DISPUTED)
        return found + self.clocks.flags()

    def evidence(self) -> dict[str, str]:
        """What the flags rest on, in words."""
        found, flags = {}, self.flags()
        if HOST_COPIES in flags:
            found[HOST_COPIES] = self.why
        if DEVICE_BUSY in flags:
            late = f"after {self.busy} of {self.calls} calls the device was still busy when they were reported done"
            found[DEVICE_BUSY] = "other work was on the device before the run" if self.busy_before else late
        for one in self._summary():
            if not one["agreed"] and TIMING_DISPUTED not in found:
                found[TIMING_DISPUTED] = (
                    f"{one['phase']} {one['index']}: the runner claims {one['claimed_ns']:.0f} ns on the device, the "
                    f"judge's clock says {one['judge_ns']:.0f} ns"
                )
        return found | self.clocks.evidence()

    def told(self) -> dict[str, Any]:
        """For the report."""
        if not self.needed:
            return {}
        facts = self.facts
        told = {
            "kind": facts.kind, "name": facts.name, "pci": facts.pci, "uuid": facts.uuid, "driver": facts.version,
            "transport": "shared memory" if self.shares else "host copies", "calls": self.calls, "busy": self.busy,
            "times": self._summary(), "clocks": self.clocks.told(),
        }  # fmt: skip
        return {"device": told, "caches": self._cold()}

    def _summary(self) -> list[dict[str, Any]]:
        """Of each case over its launches: the device time that was claimed, what the judge saw, whether most agree."""
        rows = []
        for phase, index in dict.fromkeys((one["phase"], one["index"]) for one in self.times):
            mine = [one for one in self.times if (one["phase"], one["index"]) == (phase, index)]
            rows.append(
                {
                    "phase": phase,
                    "index": index,
                    "claimed_ns": statistics.median(one["claimed_ns"] for one in mine),
                    "judge_ns": statistics.median(one["judge_ns"] for one in mine),
                    "raw_ns": statistics.median(one["raw_ns"] for one in mine),
                    "trip_ns": statistics.median(one["trip_ns"] for one in mine),
                    "agreed": 2 * sum(one["agreed"] for one in mine) >= len(mine),
                }
            )
        return rows

    def close(self) -> None:
        """The context is given back."""
        self.kept.clear()
        if self._memory is not None and self._device is not None:
            self._memory.close()
        if self._device is not None:
            self._device.close()
            self._device = None


def device_of(manifest: Manifest) -> tuple[RunDevice | None, str]:
    """The device of a run on a GPU's board; None where there is no driver for one process, and then why.

    CantStart where the problem's arrays must lie on a device and there is none.
    """
    arrays = manifest.config.get("arrays") == "device"
    try:
        found = driver.found()
    except driver.DriverError as error:
        if arrays:
            raise CantStart(f"the problem's arrays are on a {manifest.gpu}, and {error}") from None
        return None, "" if isinstance(error, driver.NoDriver) else str(error)
    facts = found.devices[0]
    why = ""
    if facts.exclusive:
        why = "the device is in exclusive-process mode: the submission has it alone, and the reference runs on the CPU"
    elif not facts.exportable:
        why = "the device's driver can't export memory to another process"
    choice = call_parts.DeviceChoice(arrays=arrays, native=manifest.lang == "cu", tensors=facts.exclusive)
    cold = manifest.config.get("cold") is True
    clocks = clock_watch.watch(facts.kind, [facts.pci])
    return RunDevice(gpu=found, choice=choice, shares=not why, why=why, cold=cold, clocks=clocks), ""
