# ruff: noqa
# mypy: ignore-errors
# does: memory given back
def custom_kernel(data):
    held = bytearray(200 << 20)
    del held
    return sorted(data)
