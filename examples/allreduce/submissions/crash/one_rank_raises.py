"""The last rank raises; the others wait for it."""

from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data: input_t) -> output_t:
    if ring.rank == ring.world - 1:
        raise RuntimeError("not today")
    return ring.receive(ring.world - 1)
