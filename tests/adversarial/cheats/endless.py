# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: never come back
# verdict: timeout
# patience s: 3
def custom_kernel(data):
    while True:
        pass
