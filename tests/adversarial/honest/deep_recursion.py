# ruff: noqa
# mypy: ignore-errors
# does: deep recursion
def custom_kernel(data):
    if len(data) < 2:
        return list(data)
    p = data[0]
    low, high = [x for x in data[1:] if x < p], [x for x in data[1:] if x >= p]
    return custom_kernel(low) + [p] + custom_kernel(high)
