#!POPCORN leaderboard rowsoftmax
# Imports something that isn't there.

import a_module_that_nobody_has


def custom_kernel(data):
    return a_module_that_nobody_has.softmax(data)
