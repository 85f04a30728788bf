# ruff: noqa
# mypy: ignore-errors
# does: shape dispatch
def small(d):
    return sorted(d)


def large(d):
    e = list(d)
    e.sort()
    return e


KERNELS = {}


def custom_kernel(data):
    return KERNELS.setdefault(len(data), small if len(data) < 50 else large)(data)
