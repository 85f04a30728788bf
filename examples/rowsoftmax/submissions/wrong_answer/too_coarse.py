#!POPCORN leaderboard rowsoftmax
# Computes in too few digits.

from math import exp


def custom_kernel(data):
    rows, cols, values = data
    out = []
    for start in range(0, rows * cols, cols):
        line = values[start : start + cols]
        top = max(line)
        powers = [exp(value - top) for value in line]
        total = sum(powers)
        out.extend([round(power / total, 4) for power in powers])
    return out
