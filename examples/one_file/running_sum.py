"""The running sum of a list of whole numbers. A whole problem in one file; standard library only.

`custom_kernel(data)` gets a list of n whole numbers and returns the list of their n partial sums.
"""

import itertools
import random

TESTS = [{"n": 1, "seed": 1}, {"n": 100, "seed": 2}, {"n": 1000, "seed": 3}]
BENCHMARKS = [{"n": 5000, "seed": 4}]
BASELINE = "ref_kernel"  # every submission is measured beside it
HIDDEN = [{"n": 77, "seed": 5}, {"n": 1023, "seed": 6}]


def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.randrange(-1000, 1000) for _ in range(n)]


def ref_kernel(data):
    return list(itertools.accumulate(data))


def check_implementation(output, reference):
    return output == reference
