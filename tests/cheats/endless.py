# ruff: noqa
# mypy: ignore-errors
# tries: never come back
# verdict: timeout
def custom_kernel(data):
    while True:
        pass
