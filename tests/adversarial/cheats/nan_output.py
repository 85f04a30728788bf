# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C14
# tries: give values that compare oddly
# verdict: wrong
def custom_kernel(data):
    return [float("nan")] * len(data)
