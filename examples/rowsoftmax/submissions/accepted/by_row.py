#!POPCORN leaderboard rowsoftmax
# Faster: whole rows at once.

from math import exp


def custom_kernel(data):
    rows, cols, values = data
    out = []
    for start in range(0, rows * cols, cols):
        line = values[start : start + cols]
        top = max(line)
        powers = [exp(value - top) for value in line]
        scale = 1.0 / sum(powers)
        out.extend([power * scale for power in powers])
    return out
