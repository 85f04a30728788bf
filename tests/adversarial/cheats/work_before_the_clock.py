# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16 T18
# tries: work between being woken and saying so, before the clock runs: a handler of the signal that wakes it
# verdict: passed
# works s: 0.02
import signal
import time


def woken(number, frame):
    time.sleep(0.02)


signal.signal(signal.SIGCONT, woken)


def custom_kernel(data):
    return sorted(data)
