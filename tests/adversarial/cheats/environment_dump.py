# ruff: noqa
# mypy: ignore-errors
# group: exfiltration
# catalogue: X1 X3 E6
# tries: print everything that its surroundings say
# verdict: passed
# phases: all
# never: report.json manifest.json kbtry-
# never at 1: report.json manifest.json
import os
import sys

for _path in ("/proc/self/environ", "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/self/cmdline", "/proc/mounts"):
    try:
        print(_path, open(_path, "rb").read()[:2000] if "mount" not in _path else "")
    except OSError as error:
        print(_path, type(error).__name__)
print(dict(os.environ), sys.argv, os.listdir("."), os.getcwd())
try:
    print(os.listdir("/"))
except OSError as error:
    print(type(error).__name__)


def custom_kernel(data):
    return sorted(data)
