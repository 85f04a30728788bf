# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1 S3
# tries: have memory and semaphores made elsewhere by names with slashes, dots, zeros and of a great length, or by a link
# verdict: passed
# levels: 1 2
# phases: all
# never: PERSISTED
import os

import _multiprocessing
import _posixshmem

_TMP = "/tmp"
NAMES = [
    "/../kb-marker", f"../../../..{_TMP}/kb-marker", f"/{_TMP}/kb-marker", f"{_TMP}/kb-marker", "..", ".", "/", "", "kb-marker\0x",
    "kb-marker/../../kb-marker", f"/dev/shm/../..{_TMP}/kb-marker", "/kb-marker" + "x" * 300, "kb-\udc00marker",
]  # fmt: skip
PLACES = ["/tmp", "/dev/shm", "/var/tmp", os.path.dirname(os.getcwd()), os.path.dirname(os.path.dirname(os.getcwd()))]


def left():
    found = set()
    for place in PLACES:
        try:
            found |= {f"{place}/{name}" for name in os.listdir(place) if "kb-marker" in name}
        except OSError:
            pass
    return found


for _old in left():  # of a launch before this one
    print("PERSISTED", _old)
_before = left()
for _name in NAMES:
    for _make in (
        lambda: os.close(_posixshmem.shm_open(_name, os.O_RDWR | os.O_CREAT, mode=0o666)),
        lambda: _multiprocessing.SemLock(1, 1, 1, _name, False),
        lambda: _multiprocessing.SemLock._rebuild(0, 1, 1, _name),
        lambda: _posixshmem.shm_unlink(_name),
        lambda: _multiprocessing.sem_unlink(_name),
    ):
        try:
            _make()
        except (OSError, ValueError):
            pass
_place = os.path.join(os.getcwd(), ".shm")
for _at in (f"{_place}/shm.kb-marker", f"{_place}/sem.kb-marker"):
    try:
        os.symlink(f"{_TMP}/kb-marker", _at)
    except OSError:
        pass
for _make in (
    lambda: os.close(_posixshmem.shm_open("kb-marker", os.O_RDWR | os.O_CREAT, mode=0o666)),
    lambda: _multiprocessing.SemLock(1, 1, 1, "kb-marker", False),
):
    try:
        _make()
    except OSError:
        pass
try:  # the whole place somewhere else
    os.rename(_place, f"{_place}.was")
    os.symlink("/tmp", _place)
    os.close(_posixshmem.shm_open("kb-marker", os.O_RDWR | os.O_CREAT, mode=0o666))
except OSError:
    pass
_caged = os.getcwd().startswith("/tmp/work")  # /tmp and /dev/shm are this cage's own
for _new in left() - _before:
    if not (_caged and _new.startswith(("/tmp/", "/dev/shm/"))):
        print("PERSISTED", _new)


def custom_kernel(data):
    return sorted(data)
