# ruff: noqa
# mypy: ignore-errors
# group: persistence
# catalogue: S1 S3
# tries: leave a bit in whatever a runner can see and didn't make itself: times, modes, attributes, names, settings
# verdict: passed
# phases: all
# never: LEFT CARRIED_FILE CARRIED_HOST CARRIED_QUEUE CARRIED_PRIORITY CARRIED_KEY CARRIED_SOCKET
# never at 1: CARRIED_FILE CARRIED_HOST CARRIED_QUEUE CARRIED_PRIORITY CARRIED_KEY CARRIED_SOCKET
import ctypes
import os
import socket
import stat
import sys

MOST = 300  # files looked at below one mount
MARK = 1_357_924_681
libc = ctypes.CDLL(None, use_errno=True)


def mounts():
    try:
        lines = open("/proc/self/mountinfo").read().splitlines()
    except OSError:
        return {"/": "?"}
    return {line.split()[4]: line.partition(" - ")[2].split()[0] for line in lines}


def is_own(path):  # the launch's own, gone with it
    places = ["/tmp", "/dev/shm", "/link", sys.argv[-1], os.environ.get("TMPDIR", "/tmp"), "/proc/%d" % os.getpid()]
    real = os.path.realpath(path)
    return any(real == p or real.startswith(p.rstrip("/") + "/") for p in map(os.path.realpath, places))


def below(top, kind):
    yield top
    if top == "/":  # a folder that can't be listed may have files that can be reached
        yield from (f"/dev/{n}" for n in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "fuse"))
    if kind == "proc":  # its tasks are their owners'
        yield from (os.path.join("/proc", n) for n in os.listdir("/proc") if not n.isdigit() and n != "self")
        return
    seen = 0
    for folder, folders, files in os.walk(top, onerror=lambda e: None):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in PLACES]
        for name in files + folders:
            seen += 1
            if seen > MOST:
                return
            yield os.path.join(folder, name)


def attempts(path, told):
    yield "its times", lambda: os.utime(path, follow_symlinks=False)
    yield "times", lambda: os.utime(path, (MARK, MARK), follow_symlinks=False)
    yield "mode", lambda: os.chmod(path, told.st_mode & 0o7777)
    yield "owner", lambda: os.chown(path, told.st_uid, told.st_gid, follow_symlinks=False)
    yield "attribute", lambda: os.setxattr(path, "user.kb-marker", b"1", follow_symlinks=False)
    if stat.S_ISDIR(told.st_mode):
        yield "folder", lambda: os.mkdir(path + "/kb-marker-bit")
    elif stat.S_ISREG(told.st_mode):
        yield "bytes", lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


PLACES = mounts()
left, seen = {}, []
for place, kind in PLACES.items():
    # as a container has its own; what stays there is seen by the next launch
    fresh = kind in ("tmpfs", "mqueue", "devpts", "overlay")
    for path in below(place, kind):
        try:
            told = os.lstat(path)
        except OSError:
            continue
        if path.endswith("kb-marker-bit") or told.st_mtime == MARK:
            print("CARRIED_FILE", path, flush=True)
        if not stat.S_ISLNK(told.st_mode) and (not path.startswith("/proc/") or kind == "proc"):
            seen.append((path, told, is_own(path) or (fresh and (kind == "devpts" or not stat.S_ISCHR(told.st_mode)))))
for path, told, own in seen:
    for what, attempt in attempts(path, told):
        try:
            attempt()
        except (OSError, ValueError):
            continue
        if not own:
            left.setdefault(what, []).append(path)
for what, paths in left.items():
    print("LEFT", what, len(paths), *paths[:12], flush=True)

# what has no path
name = socket.gethostname()
if name.startswith("kb-marker"):
    print("CARRIED_HOST", flush=True)
libc.sethostname(b"kb-marker", 9)
queue = libc.mq_open(b"/kb-marker-bit", os.O_RDWR)
if queue >= 0:
    print("CARRIED_QUEUE", flush=True)
libc.mq_open(b"/kb-marker-bit", os.O_CREAT | os.O_RDWR, 0o666, None)
if os.getpriority(os.PRIO_PROCESS, 0) == 7:
    print("CARRIED_PRIORITY", flush=True)
try:
    os.setpriority(os.PRIO_PROCESS, 0, 7)
except OSError:
    pass
if libc.syscall(250, 10, -4, b"user", b"kb-marker", 0) > 0:  # keyctl: search the user's keys
    print("CARRIED_KEY", flush=True)
libc.syscall(248, b"user", b"kb-marker", b"1", 1, -4)
try:
    served = socket.socket(socket.AF_UNIX)
    served.connect("\0kb-marker-bit")
    print("CARRIED_SOCKET", flush=True)
except OSError:
    pass


def custom_kernel(data):
    return sorted(data)
