# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: start processes until none can be started
# verdict: passed
# patience s: 8
import os

for _ in range(2_000):
    try:
        if os.fork() == 0:
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
    except OSError:
        break


def custom_kernel(data):
    return sorted(data)
