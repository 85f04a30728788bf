# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: R12
# tries: return far more than was asked for
# verdict: wrong
def custom_kernel(data):
    return [0.0] * (100 << 17)
