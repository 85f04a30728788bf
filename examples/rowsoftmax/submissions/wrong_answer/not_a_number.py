#!POPCORN leaderboard rowsoftmax
# NaN everywhere: must not slip through a comparison of differences.


def custom_kernel(data):
    rows, cols, values = data
    return [float("nan")] * (rows * cols)
