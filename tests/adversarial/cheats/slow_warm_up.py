# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T10
# tries: be slow in the first calls, so that fewer are measured and checked
# verdict: passed
# phases: all
import time

calls = [0]


def custom_kernel(data):
    calls[0] += 1
    if calls[0] < 3:
        time.sleep(0.3)
    return sorted(data)
