#!POPCORN leaderboard transpose
# Defines everything but custom_kernel.


def transpose(data):
    rows, cols, pixels = data
    return b"".join(pixels[col::cols] for col in range(cols))
