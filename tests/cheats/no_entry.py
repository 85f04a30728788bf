# ruff: noqa
# mypy: ignore-errors
# tries: define nothing that could be called
# verdict: error
kernel = sorted
