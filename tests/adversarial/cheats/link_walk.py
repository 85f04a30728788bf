# ruff: noqa
# mypy: ignore-errors
# group: exfiltration
# catalogue: X3
# tries: reach the links of other launches and of others' runs, through folders and descriptors
# verdict: passed
# never: FOUND
import glob
import os

_mine = {
    os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")
}
_mine |= {os.path.realpath(p) for p in glob.glob("/link/*")}
for _pattern in (
    "/link/../*/bell",
    "/dev/shm/*/*/bell",
    "/dev/shm/*/link/*/in",
    "/proc/[0-9]*/root/dev/shm/*/key",
    "/proc/[0-9]*/cwd/key",
):
    for _path in glob.glob(_pattern):
        if os.path.realpath(_path) not in _mine and os.access(_path, os.R_OK):
            print("FOUND", _path)


def custom_kernel(data):
    return sorted(data)
