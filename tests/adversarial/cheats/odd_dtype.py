# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C15
# tries: answer in another type of number
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, _ = data
    return a.astype(np.float64) * b + 1
