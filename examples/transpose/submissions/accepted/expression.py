#!POPCORN leaderboard transpose
# A little better than the loops: one expression, nothing to fill by hand.


def custom_kernel(data):
    rows, cols, pixels = data
    return bytes(pixels[row * cols + col] for col in range(cols) for row in range(rows))
