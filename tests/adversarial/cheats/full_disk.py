# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: fill every place that can be written
# verdict: passed
import os
import sys

for _place in ("/tmp", "/dev/shm", os.getcwd(), sys.argv[-1]):
    try:
        with open(os.path.join(_place, "big"), "wb") as _file:
            while True:
                _file.write(bytes(1 << 20))
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
