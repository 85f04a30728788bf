# ruff: noqa
# mypy: ignore-errors
# does: lower its own priority and choose its cores
import os

os.nice(1)
os.sched_setaffinity(0, os.sched_getaffinity(0))


def custom_kernel(data):
    return sorted(data)
