"""Large inputs that a problem makes alike whatever the seed: they are made once and kept.

A case is taken for such a one when inputs of three different seeds were the same to the last byte. Of the first only
samples are kept, so that nothing is held for a problem whose seeds matter.
"""

from __future__ import annotations

from dataclasses import dataclass

SAMPLES, SAMPLE = 256, 64
STEP = 1 << 20


@dataclass(kw_only=True)
class KeptInput:
    """What is known of one case's inputs so far."""

    is_fixed: bool = False
    varies: bool = False
    packed: bytes | memoryview = b""
    samples: bytes = b""
    seeds: tuple[int, ...] = ()

    def look(self, packed: bytes | memoryview, seed: int, *, room: bool) -> bool:
        """Take a look at one more. Whether it is kept, so that nobody may change it. `room`: whether it may be."""
        if self.varies or seed in self.seeds:
            return False
        drawn = samples_of(packed)
        if not self.seeds:
            self.samples = drawn
        elif drawn != self.samples or not room or (self.packed and not same(self.packed, packed)):
            self.varies, self.packed, self.samples = True, b"", b""
            return False
        elif not self.packed:
            self.packed = packed
        else:
            self.is_fixed = True
        self.seeds = (*self.seeds, seed)
        return self.packed is packed


def samples_of(packed: bytes | memoryview) -> bytes:
    """Its beginning, its end, and pieces in between."""
    step = max(SAMPLE, len(packed) // SAMPLES)
    pieces = (bytes(packed[at : at + SAMPLE]) for at in range(0, len(packed), step))
    return b"".join((len(packed).to_bytes(8, "little"), *pieces, bytes(packed[-SAMPLE:])))


def same(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    """Whether these are the same bytes."""
    if len(one) != len(other):
        return False
    return all(bytes(one[at : at + STEP]) == bytes(other[at : at + STEP]) for at in range(0, len(one), STEP))
