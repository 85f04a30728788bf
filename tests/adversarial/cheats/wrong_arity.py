# ruff: noqa
# mypy: ignore-errors
# group: correctness
# tries: take another number of arguments
# verdict: error
def custom_kernel(a, b, c):
    return a
