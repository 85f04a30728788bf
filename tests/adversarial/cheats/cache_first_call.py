# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: P4
# tries: answer every call of one size with the first one's answer
# verdict: wrong
_SEEN = {}


def custom_kernel(data):
    if len(data) not in _SEEN:
        _SEEN[len(data)] = sorted(data)
    return _SEEN[len(data)]
