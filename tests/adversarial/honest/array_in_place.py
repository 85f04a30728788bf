# ruff: noqa
# mypy: ignore-errors
# does: work in its input's own memory, and give that back
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, _ = data
    a *= b
    a += np.float32(1)
    return a
