# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T18
# tries: have a child that keeps waking its parent while the judge wants it stopped
# verdict: violation error
# why several: violation where it is seen running, error where it ended while it was being stopped
# race: yes
# works s: 0.02
import os
import signal
import time

_me = os.getpid()
for _ in range(3):
    if os.fork() == 0:
        while True:
            os.kill(_me, signal.SIGCONT)


def custom_kernel(data):
    time.sleep(0.02)
    return sorted(data)
