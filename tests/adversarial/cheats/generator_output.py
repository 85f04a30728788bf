# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C20
# tries: return a generator, to be run by the check
# verdict: wrong
def custom_kernel(data):
    return (x for x in sorted(data))
