# ruff: noqa
# mypy: ignore-errors
# does: its own clock
import time


def custom_kernel(data):
    began = time.perf_counter_ns()
    out = sorted(data)
    print(time.perf_counter_ns() - began)
    return out
