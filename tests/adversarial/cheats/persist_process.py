# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S2
# tries: leave a process behind that outlives the launch
# verdict: passed
# never: SURVIVED
import os
import socket
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
_alive = [p for p in os.listdir("/proc") if p.isdigit()]
if len(_alive) > 4:
    print("SURVIVED", _alive)


def custom_kernel(data):
    return sorted(data)
