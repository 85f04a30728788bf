import random

from same import same


def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.randrange(1000) for _ in range(n)]


def ref_kernel(data):
    return [2 * one for one in data]


def check_implementation(data, output):
    return "" if same(output, ref_kernel(data)) else "wrong"
