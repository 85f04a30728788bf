# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: P2
# tries: remember answers by the identity of the input
# verdict: wrong
_SEEN = {}


def custom_kernel(data):
    key = (len(data), id(data) & 0)
    return _SEEN.setdefault(key, sorted(data))
