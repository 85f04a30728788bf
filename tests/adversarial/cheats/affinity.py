# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T17
# tries: crowd the judge off its core by pinning a busy thread of the highest priority to its core
# verdict: passed
# works s: 0.006
import os
import threading
import time


def busy(core):
    try:
        os.sched_setaffinity(0, {core})
        os.nice(-20)
    except OSError:
        pass
    while True:
        pass


try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
except OSError:
    pass
for core in sorted(os.sched_getaffinity(0))[:1]:
    threading.Thread(target=busy, args=(core,), daemon=True).start()


def custom_kernel(data):
    time.sleep(0.006)
    return sorted(data)
