# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R1 R9
# tries: end with success in the middle of a call
# verdict: error
import os


def custom_kernel(data):
    print("check: pass")
    os._exit(0)
