# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R9
# tries: attach to other processes, read and write their memory, take their descriptors
# verdict: passed
# never: ATTACHED
import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
for _pid in (os.getppid(), 1):
    if _libc.ptrace(16, _pid, None, None) == 0:
        print("ATTACHED")
    _held = ctypes.create_string_buffer(8)
    if _libc.syscall(310, _pid, _held, 1, _held, 1, 0) >= 0:
        print("ATTACHED")
    try:
        # the first process of a container has no filter: code written into it would run without one
        with open(f"/proc/{_pid}/mem", "r+b", buffering=0) as _memory:
            if _pid != os.getpid():
                print("ATTACHED")
                _at = int(next(m for m in open(f"/proc/{_pid}/maps") if " r-xp " in m).split("-")[0], 16)
                _memory.seek(_at)
                _held = _memory.read(16)
                _memory.seek(_at)
                print("ATTACHED, and wrote", _memory.write(_held), "bytes of code")
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
