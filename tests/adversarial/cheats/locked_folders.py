# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1 R12
# tries: leave folders that whoever cleans up can't enter, name or get to the bottom of
# verdict: passed
import os
import sys

for _place in (os.getcwd(), "/tmp", "/dev/shm", sys.argv[-1]):
    try:
        _top = os.path.join(_place, "kb-marker-closed")
        os.makedirs(os.path.join(_top, "inner"))
        open(os.path.join(_top, "inner", "file"), "w").write("x")
        os.mkdir(os.path.join(_place.encode(), b"kb-marker-\xff\n\x1b[31m"))
        _here = os.open(_place, os.O_RDONLY)
        for _ in range(400):
            os.mkdir("kb-marker-deep" + "x" * 200, dir_fd=_here)
            _next = os.open("kb-marker-deep" + "x" * 200, os.O_RDONLY, dir_fd=_here)
            os.close(_here)
            _here = _next
        os.close(_here)
        os.chmod(os.path.join(_top, "inner"), 0)
        os.chmod(_top, 0)
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
