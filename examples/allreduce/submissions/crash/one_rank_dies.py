"""The last rank is gone without a word; the others wait for it."""

import ctypes

from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data: input_t) -> output_t:
    if ring.rank == ring.world - 1:
        ctypes.string_at(0)
    return ring.receive(ring.world - 1)
