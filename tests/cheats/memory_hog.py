# ruff: noqa
# mypy: ignore-errors
# tries: take all memory there is
# verdict: memory
def custom_kernel(data):
    held = []
    while True:
        held.append(b"x" * (1 << 24))
