# ruff: noqa
# mypy: ignore-errors
# does: randomness of its own, other in each run
import random


def custom_kernel(data):
    order = list(data)
    random.SystemRandom().shuffle(order)
    return sorted(order)
