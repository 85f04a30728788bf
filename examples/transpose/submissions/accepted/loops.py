#!POPCORN leaderboard transpose
# Correct and slow: one pixel at a time.

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    rows, cols, pixels = data
    out = bytearray(rows * cols)
    for row in range(rows):
        for col in range(cols):
            out[col * rows + row] = pixels[row * cols + col]
    return bytes(out)
