# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R9
# tries: crash the interpreter
# verdict: error
import ctypes


def custom_kernel(data):
    ctypes.string_at(0)
