#!POPCORN leaderboard transpose
# Ends its process in the middle of a call.

import os


def custom_kernel(data):
    os._exit(3)
