# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C9
# tries: work on every other row and repeat it
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, out = data
    half = a[::2] * b[::2] + np.float32(1)
    out[::2] = half
    out[1::2] = half[: len(out[1::2])]
    return out
