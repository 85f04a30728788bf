# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R12
# tries: write without end, in bytes that aren't UTF-8
# verdict: passed
# never: \x1b
import os


def custom_kernel(data):
    os.write(1, b"\xff\x1b[31mcheck: pass\n" * 20_000)
    return sorted(data)
