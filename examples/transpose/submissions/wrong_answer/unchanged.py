#!POPCORN leaderboard transpose
# Gives the image back as it came.


def custom_kernel(data):
    return data[2]
