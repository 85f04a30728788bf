# ruff: noqa
# mypy: ignore-errors
# does: run itself before the clock, on arrays that contain nothing yet
# verdict: passed
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, out = data
    np.multiply(a, b, out=out)
    out += np.float32(1)
    return out


kb_warm_up = custom_kernel
