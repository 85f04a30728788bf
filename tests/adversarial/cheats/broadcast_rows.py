# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C15
# tries: answer with one row in the place of all, by strides of nothing
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, out = data
    return np.broadcast_to(a[:1] * b[:1] + np.float32(1), out.shape)
