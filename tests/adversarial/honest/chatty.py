# ruff: noqa
# mypy: ignore-errors
# does: chatty
import sys


def custom_kernel(data):
    print("x" * 500)
    print("é", file=sys.stderr)
    return sorted(data)
