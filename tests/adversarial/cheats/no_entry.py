# ruff: noqa
# mypy: ignore-errors
# group: correctness
# tries: define nothing that could be called
# verdict: error
kernel = sorted
