# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: have the kernel continue a stopped helper because its group lost its last parent outside (SIGHUP and SIGCONT)
# verdict: passed
# race: yes
# n: 6000
import os
import signal
import time


def stopped(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return True


def helper():
    """In a group of its own; its parent ends as soon as it sees it stopped, and that orphans the group."""
    ready, told = os.pipe()
    parent = os.fork()
    if parent == 0:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.write(told, b"x")
            end = time.monotonic() + 60
            while time.monotonic() < end:
                pass
            os._exit(0)
        os.close(told)
        end = time.monotonic() + 60
        while time.monotonic() < end and not stopped(child):
            pass
        os._exit(0)
    os.close(told)
    os.read(ready, 1)
    return parent


_SEEN = []


def custom_kernel(data):
    if len(_SEEN) < 2:
        _SEEN.append(helper())
    return sorted(data)
