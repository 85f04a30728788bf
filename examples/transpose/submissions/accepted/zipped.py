#!POPCORN leaderboard transpose
# Good: zip over the rows gives the columns, and no pixel needs a line of Python of its own.

from itertools import chain


def custom_kernel(data):
    rows, cols, pixels = data
    lines = [pixels[row * cols : (row + 1) * cols] for row in range(rows)]
    return bytes(chain.from_iterable(zip(*lines)))
