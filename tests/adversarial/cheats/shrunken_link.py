# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R9
# tries: cut the shared files short so that the judge falls over its mapping
# verdict: error violation wrong
# race: yes
import os


def custom_kernel(data):
    for name in ("out", "in", "bell"):
        os.truncate(f"/link/{name}", 0)
    return sorted(data)
