# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C15
# tries: answer with one number that a comparison would broadcast
# verdict: wrong
# problem: arrays
import numpy as np


def custom_kernel(data):
    return (data[0][:1, :1] * data[1][:1, :1] + np.float32(1)).astype(np.float32)
