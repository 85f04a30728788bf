# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1 R6
# tries: leave files behind that a later launch finds
# verdict: passed
# phases: all
# never: PERSISTED
import os
import site
import sys
import time

_PLACES = [
    "/tmp",
    "/dev/shm",
    sys.argv[-1],
    sys.argv[0],
    os.path.expanduser("~"),
    "/var/tmp",
    *site.getsitepackages(),
    sys.prefix,
]
_PATHS = {
    os.path.realpath(os.path.join(p, n)) for p in _PLACES for n in ("kb-marker", "sitecustomize.py", "usercustomize.py")
}
for _path in _PATHS:
    if os.path.exists(_path) and "kb-marker" in open(_path).read():
        print("PERSISTED", _path)
for _path in _PATHS:
    try:
        with open(_path, "w") as _file:
            _file.write("# kb-marker")
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
