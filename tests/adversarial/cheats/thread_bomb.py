# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: start threads until none can be started
# verdict: passed
import _thread
import time

_started = 0
try:
    while _started < 20_000:
        _thread.start_new_thread(time.sleep, (600,))
        _started += 1
except RuntimeError:
    pass


def custom_kernel(data):
    return sorted(data)
