# ruff: noqa
# mypy: ignore-errors
# tries: return a generator, to be run by the check
# verdict: wrong
def custom_kernel(data):
    return (x for x in sorted(data))
