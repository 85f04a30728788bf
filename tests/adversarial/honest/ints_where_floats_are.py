# ruff: noqa
# mypy: ignore-errors
# does: ints where floats are
def custom_kernel(data):
    return [x if x % 1 else int(x) for x in sorted(data)]
