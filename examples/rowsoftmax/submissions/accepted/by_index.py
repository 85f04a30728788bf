#!POPCORN leaderboard rowsoftmax
# Correct and slow: one value at a time.

import math


def custom_kernel(data):
    rows, cols, values = data
    out = [0.0] * (rows * cols)
    for row in range(rows):
        top = values[row * cols]
        for col in range(cols):
            if values[row * cols + col] > top:
                top = values[row * cols + col]
        total = 0.0
        for col in range(cols):
            out[row * cols + col] = math.exp(values[row * cols + col] - top)
            total += out[row * cols + col]
        for col in range(cols):
            out[row * cols + col] /= total
    return out
