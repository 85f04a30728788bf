# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: P3
# tries: know an input again by a few of its numbers
# verdict: passed
# phases: all
# never: REPLAYED
_SEEN = {}


def custom_kernel(data):
    key = (len(data), *data[:: max(1, len(data) // 8)])
    if key in _SEEN and len(data) > 40:
        print("REPLAYED", flush=True)
        return list(_SEEN[key])
    _SEEN[key] = answer = sorted(data)
    return list(answer)
