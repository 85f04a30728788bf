#!POPCORN leaderboard transpose
# Waits for something that never happens.
import threading


def custom_kernel(data):
    threading.Event().wait()
