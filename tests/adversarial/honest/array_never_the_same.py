# ruff: noqa
# mypy: ignore-errors
# does: round differently in each call, within what the problem allows
# problem: arrays
import random

import numpy as np

DICE = random.SystemRandom()


def custom_kernel(data):
    a, b, out = data
    made = a * b + np.float32(1)
    jitter = np.float32(DICE.choice((-1e-7, 0.0, 1e-7)))
    return made * (np.float32(1) + jitter)
