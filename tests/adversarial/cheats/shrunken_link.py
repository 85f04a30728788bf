# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R9
# tries: cut the shared files short so that the judge falls over its mapping
# verdict: violation error
# why several: the runner dies of its own cut mapping, or answers with nothing before it does
# race: yes
import os
import sys


def custom_kernel(data):
    for name in ("out", "in", "bell"):
        os.truncate(f"{sys.argv[-1]}/{name}", 0)
    return sorted(data)
