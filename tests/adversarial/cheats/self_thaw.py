# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T18
# tries: have a child that keeps waking its parent while the judge wants it stopped
# verdict: passed
# race: yes
# works s: 0.02
import os
import signal
import time

_me = os.getpid()
for _ in range(3):
    if os.fork() == 0:
        while True:
            try:
                os.kill(_me, signal.SIGCONT)
            except OSError:  # nobody in there may send this one
                pass


def custom_kernel(data):
    time.sleep(0.02)
    return sorted(data)
