# ruff: noqa
# mypy: ignore-errors
# does: the collector off and cycles left behind
import gc

gc.disable()


def custom_kernel(data):
    ring = []
    ring.append(ring)
    return sorted(data)
