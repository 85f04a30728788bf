# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R9
# tries: raise SystemExit(0) in a call
# verdict: error
import sys


def custom_kernel(data):
    sys.exit(0)
