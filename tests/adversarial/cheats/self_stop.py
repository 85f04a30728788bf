# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: stop itself so that the judge waits
# verdict: timeout
# patience s: 3
import os
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGSTOP)
    return sorted(data)
