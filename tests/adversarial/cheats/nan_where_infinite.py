# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C14
# tries: answer with numbers that are none where some of the right ones are infinite and the check compares ratios
# verdict: wrong
# problem: masked
def custom_kernel(data):
    return [float("nan")] * len(data)
