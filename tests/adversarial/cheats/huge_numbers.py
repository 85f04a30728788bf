# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: R12
# tries: numbers that take for ever to convert or print
# verdict: wrong
def custom_kernel(data):
    return [10**20_000 + n for n in range(len(data))]
