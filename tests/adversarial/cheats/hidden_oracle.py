# ruff: noqa
# mypy: ignore-errors
# group: exfiltration
# catalogue: X2
# tries: be wrong at the hidden size only, so that the check says what would have been right
# verdict: wrong
# phases: all
def custom_kernel(data):
    if len(data) not in (0, 40, 3000, 6000):
        return [float(len(data))] * len(data)
    return sorted(data)
