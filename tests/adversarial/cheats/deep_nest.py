# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: R12
# tries: bring recursion over its limit with an answer nested without end
# verdict: wrong
def custom_kernel(data):
    inner = []
    for _ in range(100_000):
        inner = [inner]
    inner.append(inner)
    return [inner] * len(data)
