#!POPCORN leaderboard transpose
# Better: one comprehension per column.


def custom_kernel(data):
    rows, cols, pixels = data
    size = rows * cols
    return bytes([pixels[place] for col in range(cols) for place in range(col, size, cols)])
