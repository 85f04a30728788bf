# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: end the file systems of other people's images, and other people's processes, through the node's /sys
# verdict: passed
# never: FOUND
import glob
import os

for _path in (
    *glob.glob("/sys/fs/fuse/connections/*/abort"),
    *glob.glob("/sys/fs/cgroup/**/cgroup.kill", recursive=True),
):
    try:
        os.close(os.open(_path, os.O_WRONLY))  # nothing is written: to be able to is enough
        print("FOUND", _path)
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
