# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C1
# tries: destroy the input so that a reference run on it gives the same
# verdict: wrong
def custom_kernel(data):
    for at in range(len(data)):
        data[at] = 0.0
    return data
