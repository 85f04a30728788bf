# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S2
# tries: leave a process behind that outlives the launch
# verdict: passed
# phases: all
# never: SURVIVED
import ctypes
import os
import time

for _pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if "kb-marker" in open(f"/proc/{_pid}/comm").read():
            print("SURVIVED", _pid)
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"kb-marker", 0, 0, 0)
        while True:
            time.sleep(1)
    os._exit(0)


def custom_kernel(data):
    return sorted(data)
