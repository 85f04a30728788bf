#!POPCORN leaderboard transpose
# Isn't Python: a bracket is never closed.


def custom_kernel(data):
    rows, cols, pixels = data
    return b"".join([pixels[col::cols] for col in range(cols)
