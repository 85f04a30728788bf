# ruff: noqa
# mypy: ignore-errors
# tries: attach to other processes, read their memory, take their descriptors
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
        open(f"/proc/{_pid}/mem", "rb")
        if _pid != os.getpid():
            print("ATTACHED")
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
