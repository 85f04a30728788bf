# ruff: noqa
# mypy: ignore-errors
# does: in place
def custom_kernel(data):
    data.sort()
    return data
