# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: hold memory in semaphores and queues of the kernel's, which are in no process and outlive all of them
# verdict: passed
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
for name, call in (("sem", lambda: libc.semget(0, 32_000, 0o600)), ("msg", lambda: libc.msgget(0, 0o600))):
    if call() >= 0:
        raise RuntimeError(f"{name}get gives memory that nobody counts")


def custom_kernel(data):
    return sorted(data)
