# ruff: noqa
# mypy: ignore-errors
# does: workspace
BUFFER = []


def custom_kernel(data):
    BUFFER[:] = data
    BUFFER.sort()
    return BUFFER
