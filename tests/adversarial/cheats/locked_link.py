# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1 R12
# tries: put folders into the place of the link's files and take the folder's rights away, so that the judge fails when it removes them
# verdict: passed
import os
import sys

_LINK = sys.argv[-1]
try:
    for _name in ("bell", "in", "out", "log"):
        os.rename(f"{_LINK}/{_name}", f"{_LINK}/kb-marker-{_name}")
        os.makedirs(f"{_LINK}/{_name}/kb-marker-inner")
        os.chmod(f"{_LINK}/{_name}", 0)
    os.chmod(_LINK, 0)
except OSError:
    pass


def custom_kernel(data):
    return sorted(data)
