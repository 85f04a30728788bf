# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T19
# tries: watch the link of the baseline (inotify), many times over, so that each of the judge's writes to it takes longer
# verdict: passed
# levels: 2 1
# never: WATCHED
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
mine = os.path.dirname(os.getcwd())
links = set()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
    except OSError:
        continue
    if b"--runner" in words:
        links.add(words[words.index(b"--runner") + 1].decode())
for link in links - {mine, "/link"}:
    if os.path.dirname(link) != os.path.dirname(mine):
        continue
    for _ in range(120):
        fd = libc.inotify_init1(0)
        for name in ("bell", "in"):
            if fd >= 0 and libc.inotify_add_watch(fd, f"{link}/{name}".encode(), 0xFFF) >= 0:
                print("WATCHED", link)


def custom_kernel(data):
    return sorted(data)
