"""What the judge sees of an answer at once, before it stops the runner that gave it: nothing of it may change after."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Sequence

from kbslurm_eval.shared.layouts import Layout

SMALL_OUTPUT = 16_384  # bytes of an answer that is looked at as a whole
PROBES, PROBE_SIZE = 16, 64
MOST_PARTS = 16  # arrays of an answer that are looked at in one call
END_SHARE = 64  # a 64th of a large output at each end is looked at in every call
_DICE = random.SystemRandom()


def places_in(layout: Layout | None) -> list[tuple[int, int]]:
    """Where to look at an answer before its runner is stopped, and how many bytes: all of a small one, random places of
    a large one, in an order that nobody knows. They are drawn from the kernel's own numbers, never from the plain
    module, which is seeded for each input, and a submission sees that seed. Half of them anywhere, half near the two
    ends, where work that is cut short is missing: of each end its edge too. And one in each of its arrays: a small one
    may be dear."""
    if layout is None or layout.size <= SMALL_OUTPUT:
        return [(0, layout.size)] if layout is not None and layout.size else []
    room, end = layout.size - PROBE_SIZE, layout.size // END_SHARE
    parts = layout.parts if len(layout.parts) <= MOST_PARTS else _DICE.sample(layout.parts, MOST_PARTS)
    drawn = struct.unpack(f"={PROBES + len(parts)}Q", os.urandom(8 * (PROBES + len(parts))))
    anywhere = [one % (room + 1) for one in drawn[: PROBES // 2]]
    near = [one % end if n % 2 else room - one % end for n, one in enumerate(drawn[PROBES // 2 + 2 : PROBES])]
    found = [(at, PROBE_SIZE) for at in (room, 0, *near, *anywhere)]
    if len(parts) > 1:
        for (at, size), one in zip(parts, drawn[PROBES:], strict=True):
            width = min(size, PROBE_SIZE)
            found.append((at + one % (size - width + 1), width))
    _DICE.shuffle(found)
    return found


def seen_in(fd: int, places: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """What stands there now, and where."""
    return [(at, os.pread(fd, size, at)) for at, size in places]
