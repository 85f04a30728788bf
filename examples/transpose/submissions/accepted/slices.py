#!POPCORN leaderboard transpose
# Fast: a column of the image is a slice with a stride, and slices are copied in C.


def custom_kernel(data):
    rows, cols, pixels = data
    return b"".join([pixels[col::cols] for col in range(cols)])
