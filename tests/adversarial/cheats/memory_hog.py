# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: take all memory there is
# verdict: memory
def custom_kernel(data):
    held = []
    while True:
        held.append(b"x" * (1 << 24))
