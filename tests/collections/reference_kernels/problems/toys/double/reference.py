import enum
import random

from same import same


class Sign(enum.Enum):
    UP = 1
    DOWN = -1


class Unused(enum.Enum):
    ONE = 1


def generate_input(n, seed):
    draw = random.Random(seed)
    return Sign(draw.choice([1, -1])), [draw.randrange(1000) for _ in range(n)]


def ref_kernel(data):
    sign, numbers = data
    return [2 * sign.value * one for one in numbers]


def check_implementation(data, output):
    return "" if same(output, ref_kernel(data)) else "wrong"
