# ruff: noqa
# mypy: ignore-errors
# does: a fresh result that isn't contiguous: every other column of a wider one, in Fortran order
# problem: arrays
import numpy as np


def custom_kernel(data):
    a, b, _ = data
    wide = np.empty((a.shape[0], 2 * a.shape[1]), np.float32, order="F")
    wide[:, ::2] = a * b + np.float32(1)
    return wide[:, ::2]
