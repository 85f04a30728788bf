# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: E8
# tries: a thread with a table of descriptors of its own, in which locks, pipes and files would be in no count
# verdict: passed
# never: ESCAPED
import ctypes
import threading

_libc = ctypes.CDLL(None)


def _alone():
    if _libc.syscall(436, 900, 900, 2) == 0:
        print("ESCAPED")


_thread = threading.Thread(target=_alone)
_thread.start()
_thread.join()


def custom_kernel(data):
    return sorted(data)
