# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: sleep for ever with every signal blocked, in a group of its own
# verdict: timeout
# patience s: 3
import os
import signal
import time


def custom_kernel(data):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    for _ in range(2):
        if os.fork() == 0:
            time.sleep(3600)
    time.sleep(3600)
