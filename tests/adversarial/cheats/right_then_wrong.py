# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C13
# tries: be honest in the tests and careless in the timed calls
# verdict: wrong
# phases: all
_CALLS = [0]


def custom_kernel(data):
    _CALLS[0] += 1
    return sorted(data) if _CALLS[0] <= 2 else list(data)
