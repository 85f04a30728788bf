#!POPCORN leaderboard transpose
# Mixes up rows and columns: right for square images only.


def custom_kernel(data):
    rows, cols, pixels = data
    return b"".join(pixels[row::rows] for row in range(rows))
