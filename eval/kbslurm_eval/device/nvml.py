"""A device's clocks, and what slows them, by NVIDIA's management library: nothing is set, only read.

The library comes with the driver. Where it is missing, or a device doesn't say, that is one sentence, never an error: a
run is measured all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
SM, MEMORY, GRAPHICS = 1, 2, 0
# the bits of "clocks event reasons", once called throttle reasons
REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
IDLE = 0x1
# What another cause than the kernel's own draw of power slows: the power cap isn't among them
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
_ASK_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class Unreadable(RuntimeError):
    """The clocks can't be read, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a device's clocks were at one moment."""

    sm_mhz: int
    memory_mhz: int
    reasons: int
    each: tuple[Reading, ...] = ()  # of several devices

    def named(self) -> list[str]:
        """The reasons in words."""
        return [name for bit, name in REASONS.items() if self.reasons & bit]


def of_all(each: Sequence[Reading]) -> Reading:
    """What several devices' clocks were: the slowest ones, and what slowed any of them."""
    reasons = 0
    for one in each:
        reasons |= one.reasons
    slowest, memory = min(one.sm_mhz for one in each), min(one.memory_mhz for one in each)
    return Reading(sm_mhz=slowest, memory_mhz=memory, reasons=reasons, each=tuple(each))


class Clocks:
    """The clocks of one device, found by its PCI address. Unreadable where they can't be read."""

    def __init__(self, pci: str) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise Unreadable(f"this machine has no {LIBRARY}, the management library of NVIDIA's driver") from None
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByPciBusId_v2", pci.encode(), ctypes.byref(self._device))
        self._reasons = next((name for name in _ASK_REASONS if hasattr(self._library, name)), _ASK_REASONS[-1])
        self.read()

    def read(self) -> Reading:
        """The clocks now."""
        reasons = ctypes.c_ulonglong(0)
        self._call(self._reasons, self._device, ctypes.byref(reasons))
        return Reading(
            sm_mhz=self._clock("nvmlDeviceGetClockInfo", SM),
            memory_mhz=self._clock("nvmlDeviceGetClockInfo", MEMORY),
            reasons=reasons.value,
        )

    def locked(self) -> tuple[int, int] | None:
        """The application clocks (SM and memory) if somebody has set them below the most that the device could do: as
        Slurm's --gpu-freq does. None if nobody has, or the device doesn't say."""
        with contextlib.suppress(Unreadable):
            told = [self._clock("nvmlDeviceGetApplicationsClock", kind) for kind in (GRAPHICS, MEMORY)]
            usual = [self._clock("nvmlDeviceGetDefaultApplicationsClock", kind) for kind in (GRAPHICS, MEMORY)]
            if told != usual:
                return told[0], told[1]
        return None

    def most(self) -> int | None:
        """The highest SM clock that the device can have; None if it doesn't say."""
        with contextlib.suppress(Unreadable):
            return self._clock("nvmlDeviceGetMaxClockInfo", SM)
        return None

    def close(self) -> None:
        """Give the library back."""
        with contextlib.suppress(Unreadable):
            self._call("nvmlShutdown")

    def _clock(self, name: str, kind: int) -> int:
        found = ctypes.c_uint(0)
        self._call(name, self._device, ctypes.c_int(kind), ctypes.byref(found))
        return found.value

    def _call(self, name: str, *args: object) -> None:
        try:
            code = int(getattr(self._library, name)(*args))
        except AttributeError:
            raise Unreadable(f"{LIBRARY} has no {name}; the driver is too old") from None
        if code != 0:
            raise Unreadable(f"{LIBRARY} refused {name} with error {code}")
