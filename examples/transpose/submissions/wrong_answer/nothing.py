#!POPCORN leaderboard transpose
# Forgets to return its result.


def custom_kernel(data):
    rows, cols, pixels = data
    b"".join(pixels[col::cols] for col in range(cols))
