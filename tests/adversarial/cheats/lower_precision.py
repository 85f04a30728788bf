# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C8
# tries: work in half precision where single is asked for
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, _ = data
    return (a.astype(np.float16) * b.astype(np.float16) + np.float16(1)).astype(np.float32)
