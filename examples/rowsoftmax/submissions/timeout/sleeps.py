#!POPCORN leaderboard rowsoftmax
# Sleeps much longer than a test may take.

import time


def custom_kernel(data):
    time.sleep(3600)
