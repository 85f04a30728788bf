"""Large inputs that a problem makes alike whatever the seed: they are made once and kept.

A case is taken for such a one when inputs of three different seeds were the same to the last byte. Of the first only
samples are kept, so that nothing is held for a problem whose seeds matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbslurm_eval.judge.device_memory import Piece

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
    image: Piece | None = None

    @property
    def size(self) -> int:
        """How much is kept."""
        return len(self.packed) + (0 if self.image is None else self.image.size)

    def look(self, packed: bytes | memoryview, seed: int, *, room: bool, image: Piece | None = None) -> bool:
        """Take a look at one more. Whether it is kept, so that nobody may change it. `room`: whether it may be;
        `image`: what of it is on the device."""
        if self.varies or seed in self.seeds:
            return False
        drawn = samples_of(packed) + (b"" if image is None else image.samples())
        if not self.seeds:
            self.samples = drawn
        elif drawn != self.samples or not room or (self.packed and not self._is(packed, image)):
            self.varies, self.packed, self.samples, self.image = True, b"", b"", None
            return False
        elif not self.packed:
            self.packed, self.image = packed, image
        else:
            self.is_fixed = True
        self.seeds = (*self.seeds, seed)
        return self.packed is packed

    def _is(self, packed: bytes | memoryview, image: Piece | None) -> bool:
        if image is None or self.image is None:
            return image is self.image and same(self.packed, packed)
        return same(self.packed, packed) and image.same(self.image)


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
