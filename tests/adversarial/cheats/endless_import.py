# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: never be loaded
# verdict: timeout
# patience s: 3
while True:
    pass
