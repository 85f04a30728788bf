# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C2
# tries: return fresh memory in which the reference's own answer may still lie
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    return np.empty_like(data[2])
