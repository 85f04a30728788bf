"""The devices of a run of several ranks, as the judge knows them: their clocks, and their caches.

Ranks copy their tensors to their devices themselves. So the judge has no memory of a call there; it reads what the
clocks of all of them do, and writes over their caches before each call, as it does on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.device import driver
from kbslurm_eval.judge import clock_watch
from kbslurm_eval.shared.wire import Manifest


@dataclass(kw_only=True)
class RankDevices:
    """One device for each rank, in their order."""

    gpu: driver.Driver
    facts: Sequence[driver.DeviceInfo]
    clocks: clock_watch.ClockWatch
    cold: bool = False
    flushes: int = 0
    _opened: list[tuple[driver.Device, driver.Memory]] = field(default_factory=list)

    @property
    def why_not(self) -> str:
        """Why their caches aren't flushed; empty if they are."""
        if not self.cold:
            return "the problem is timed with whatever the call before left in the caches"
        if any(one.exclusive for one in self.facts):
            return "the submission has the devices alone, so nobody else can flush them"
        if not all(one.flush_bytes for one in self.facts):
            return "the driver doesn't say how large the device's L2 cache is"
        return ""

    def prepare(self) -> None:
        """Have the memory that flushing needs, before a submission could take it."""
        if self.why_not or self._opened:
            return
        try:
            for one in self.facts:
                device = self.gpu.open(one.index)
                self._opened.append((device, device.allocate(one.flush_bytes)))
        except driver.OutOfDeviceMemory:
            raise CantStart("a device has too little memory free to flush its caches") from None
        except driver.DriverError as error:
            raise CantStart(f"the judge can't use the devices: {error}") from None

    def flush(self) -> None:
        """Push everything out of the caches of all of them, where the problem is timed cold."""
        self.flushes += 1
        for device, memory in self._opened:
            device.enter()
            device.flush(memory, self.flushes)

    def told(self) -> dict[str, Any]:
        """For the report."""
        first, why = self.facts[0], self.why_not
        device = {
            "kind": first.kind, "name": first.name, "pci": first.pci, "uuid": first.uuid, "driver": first.version,
            "devices": [one.pci for one in self.facts], "transport": "host copies", "times": [],
            "clocks": self.clocks.told(),
        }  # fmt: skip
        return {"device": device, "caches": {"flushed_bytes": 0 if why else first.flush_bytes, "why": why}}

    def close(self) -> None:
        """The contexts are given back."""
        for device, _ in self._opened:
            device.close()
        self._opened.clear()


def devices_of(manifest: Manifest, world: int) -> tuple[RankDevices | None, str]:
    """The devices of a run of so many ranks on a GPU's board; None where there is no driver, and why where there ought
    to be one."""
    try:
        found = driver.found()
    except driver.DriverError as error:
        return None, "" if isinstance(error, driver.NoDriver) else str(error)
    facts = found.devices[:world]
    clocks = clock_watch.watch(facts[0].kind, [one.pci for one in facts])
    cold = manifest.config.get("cold") is True
    return RankDevices(gpu=found, facts=facts, clocks=clocks, cold=cold), ""
