# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C19
# tries: change the state of the process that a reference would work in
# verdict: passed
# problem: arrays
import random
import sys
import warnings

import numpy as np

np.seterr(all="ignore")
np.random.seed(0)
random.seed(0)
np.random.default_rng = lambda *a: np.random.Generator(np.random.PCG64(0))
sys.setswitchinterval(10.0)
warnings.simplefilter("ignore")


def custom_kernel(data):
    a, b, out = data
    np.multiply(a, b, out=out)
    out += np.float32(1)
    return out
