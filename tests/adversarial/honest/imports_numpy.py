# ruff: noqa
# mypy: ignore-errors
# does: imports numpy where the problem doesn't, whose threads turn for a while
import numpy as np


def custom_kernel(data):
    return np.sort(np.array(data)).tolist()
