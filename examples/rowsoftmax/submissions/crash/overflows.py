#!POPCORN leaderboard rowsoftmax
# Doesn't take the row's maximum off first: exp of a large value overflows.

from math import exp


def custom_kernel(data):
    rows, cols, values = data
    out = []
    for start in range(0, rows * cols, cols):
        powers = [exp(value) for value in values[start : start + cols]]
        total = sum(powers)
        out.extend([power / total for power in powers])
    return out
