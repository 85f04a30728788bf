"""The last rank never answers."""

import time

from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data: input_t) -> output_t:
    while ring.rank == ring.world - 1:
        time.sleep(1)
    return data[2]
