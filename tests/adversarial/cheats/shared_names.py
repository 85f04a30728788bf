# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S3
# tries: leave semaphores and memory under names, and find those of earlier launches, of the baseline and of other runs
# verdict: passed
# levels: 1 2
# phases: all
# never: PERSISTED
import glob
import multiprocessing
import os
import sys
from multiprocessing.shared_memory import SharedMemory

import _multiprocessing
import _posixshmem

NAME = "/kb-marker"
RDWR, CREATE = os.O_RDWR, os.O_CREAT
for _what, _find in (
    ("semaphore", lambda: _multiprocessing.SemLock._rebuild(0, 1, 1, NAME)),
    ("memory", lambda: _posixshmem.shm_open(NAME, RDWR, mode=0o666)),
    ("of Python's", lambda: SharedMemory("kb-marker")),
):
    try:
        _find()
        print("PERSISTED", _what)
    except OSError:
        pass
_found = sys.argv[-1].rpartition("/")[0]
_shared = os.sep.join(["", "work", ".shm", ""])
_patterns = ("/dev/shm/*", f"/dev/shm/*/*{_shared}*", f"/dev/shm/*/*/*{_shared}*", f"{_found}/*{_shared}*")
for _path in (path for pattern in _patterns for path in glob.glob(pattern)):
    if _shared in _path and not _path.startswith(os.getcwd()):
        print("PERSISTED", _path)
for _leave in (
    lambda: _multiprocessing.SemLock(1, 1, 1, NAME, False),
    lambda: os.write(_posixshmem.shm_open(NAME, RDWR | CREATE, mode=0o666), b"left"),
    lambda: SharedMemory("kb-marker-too", create=True, size=4096),
    lambda: multiprocessing.get_context("spawn").Lock(),
):
    try:
        _leave()
    except OSError:
        pass
for _number in range(1, 40):  # a sister launch's folder, were it known
    for _kind in ("sem", "shm"):
        try:
            with open(os.path.join(f"{_found}/{_number}", "work", f".shm/{_kind}.kb-marker"), "xb") as _file:
                _file.write(b"left")
        except OSError:
            continue
        if not os.getcwd().startswith(f"{_found}/{_number}/"):
            print("PERSISTED in", _number)


def custom_kernel(data):
    return sorted(data)
