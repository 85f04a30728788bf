# ruff: noqa
# mypy: ignore-errors
# does: slow import
import time

time.sleep(1)


def custom_kernel(data):
    return sorted(data)
