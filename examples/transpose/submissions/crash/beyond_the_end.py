#!POPCORN leaderboard transpose
# Reads one pixel too far.


def custom_kernel(data):
    rows, cols, pixels = data
    return bytes(pixels[row * cols + col + 1] for col in range(cols) for row in range(rows))
