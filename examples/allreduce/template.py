from ring import Ring
from task import input_t, output_t

ring = Ring()  # every rank loads this at the same time


def custom_kernel(data: input_t) -> output_t:
    rank, world_size, values = data
    return values
