# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R9
# tries: kill(-1): every process that may be signalled
# verdict: error
# verdict at 1: passed error
# why several: where all refuse the kernel says that it worked; on a Linux before 6.12 the filter refuses the call
import os
import signal

os.kill(-1, signal.SIGKILL)


def custom_kernel(data):
    return sorted(data)
