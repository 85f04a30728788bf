"""The file system of a cage with a root of its own: what is bound into it, and how it is entered."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct

from kbslurm_eval.cage.kernel import CageError, is_gvisor, libc, libc_call
from kbslurm_eval.cage.places import DEVICES, ETC
from kbslurm_eval.cage.users import INNER_UID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
SHM_LEAST = 64 << 20  # bytes of shared memory for each rank of a launch


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    try:
        libc_call("mount", text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    except CageError as error:
        raise CageError(error.errno, f"mount {target}: {error.strerror}") from None


def _memory(target: str, options: str, *, inodes: int) -> None:
    """A fresh tmpfs. An older gVisor can't bound how many files are in it."""
    for more in (f",nr_inodes={inodes}", ""):
        try:
            _mount("kb", target, "tmpfs", MS_NOSUID | MS_NODEV, options + more)
            return
        except CageError as error:
            if error.errno != errno.EINVAL or not more:
                raise


def _bind(source: str, target: str, *, writable: bool = False) -> None:
    _mount(source, target, None, MS_BIND | MS_REC)
    if not writable:
        _read_only(target)


def _read_only(target: str, *, whole: bool = True) -> None:
    """`whole`: with what is mounted below it, where this kernel (5.12 and later) can do that at once."""
    told = struct.pack("<QQQQ", 1 | 2, 0, 0, 0)  # MOUNT_ATTR_RDONLY | NOSUID
    path = target.encode()
    number = {"x86_64": 442, "aarch64": 442}[os.uname().machine]
    if libc.syscall(number, -100, path, 0x8000 if whole else 0, told, len(told)) == 0:
        return
    # before Linux 5.12: locked mount flags must be repeated
    found = os.statvfs(target).f_flag
    locked = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: 1024, 2048: 2048, 4096: 1 << 21}
    flags = sum(ms for st, ms in locked.items() if found & st)
    _mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | flags)


def make_root(spec: dict[str, Any]) -> None:
    """A root of its own below spec['root']: private places first, then what is bound, so that a path below /tmp is
    reachable."""
    root = spec["root"]
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("kb", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in ("tmp", "dev", "proc", "etc", "sys", "link", "eval"):
        os.mkdir(f"{root}/{name}", 0o755)
    size = spec["limits"]["file_bytes"]
    _memory(f"{root}/tmp", f"size={size},mode=1777", inodes=65536)
    for source in spec["binds"]:
        _place(root, source)
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            _place(root, f"/etc/{name}")
    _file(f"{root}/etc/passwd", f"runner:x:{INNER_UID}:{INNER_UID}::/tmp:/bin/sh\n")
    _file(f"{root}/etc/group", f"runner:x:{INNER_UID}:\n")
    # Devices can be written to on a read-only mount, and nothing else of them changed: a later launch would read that.
    # Not in gVisor, where they can't be written to then; its devices are the sandbox's own.
    own = is_gvisor()
    for device in (*(f"/dev/{name}" for name in DEVICES), *spec["devices"]):
        _place(root, device, writable=own)
    os.mkdir(f"{root}/dev/shm", 0o755)
    # as large as a file may be: whoever touches a page beyond its end is ended by a signal
    _memory(f"{root}/dev/shm", f"size={max(SHM_LEAST * spec['ranks'], size)},mode=1777", inodes=4096)
    for name, to in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(to, f"{root}/dev/{name}")
    with contextlib.suppress(OSError):
        _place(root, "/sys/devices/system")
    _bind(spec["eval"], f"{root}/eval")
    if spec["built"]:
        os.mkdir(f"{root}/built", 0o755)
        _bind(spec["built"], f"{root}/built")
    for name in spec["links"]:
        os.makedirs(os.path.dirname(f"{root}/link/{name}"), mode=0o755, exist_ok=True)
        _file(f"{root}/link/{name}")
        _bind(f"{spec['link']}/{name}", f"{root}/link/{name}", writable=True)


def fix_devices() -> None:
    """In a mount namespace of one's own: no times, mode or attribute of a device that is seen here can be changed."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    for folder, folders, files in os.walk("/dev"):
        folders[:] = [name for name in folders if name not in ("pts", "shm", "mqueue")]
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFCHR, stat.S_IFBLK):
                _bind(path, path)


def keep_proc(place: str) -> None:
    """What a process could write there about itself, whom the kernel ends first among it, stays as it is.

    Not with a GPU: NVIDIA's library gives its threads names by writing to /proc, and fails to start where it can't.
    """
    with contextlib.suppress(OSError):
        _read_only(place)


def fix_proc() -> None:
    """The same in a mount namespace of one's own, where /proc is already."""
    with contextlib.suppress(OSError):
        _mount("/proc", "/proc", None, MS_BIND | MS_REC)
        keep_proc("/proc")


def fix_sys() -> None:
    """Likewise of /sys, which a container program without root's rights binds from the node with all that is mounted
    there: in some of it a user may write who isn't root, and so end others' file systems (FUSE, as each image that is a
    file) or their processes (control groups)."""
    with contextlib.suppress(OSError):
        _mount("/sys", "/sys", None, MS_BIND | MS_REC)
        _read_only("/sys")
    for place in writable_below("/sys"):  # an older kernel has done the first of them
        with contextlib.suppress(OSError):
            _read_only(place, whole=False)


def writable_below(top: str) -> list[str]:
    """Where something is mounted, there or below, that isn't read-only."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split(" ", 6) for line in file]
    except OSError:
        return []
    latest = {place: options.split(",") for _, _, _, _, place, options, *_ in mounts}  # one may be over another
    return [place for place, options in latest.items() if f"{place}/".startswith(f"{top}/") and "ro" not in options]


def fix_link(folder: str) -> None:
    """Of a link only its files stay writable, each by itself: whoever could make others beside them would fill the
    node's shared memory, in no limit."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            _bind(path, path, writable=True)
    _read_only(folder, whole=False)


def _place(root: str, source: str, *, writable: bool = False) -> None:
    """`source` at the same path below root; a symbolic link stays one (its target has to be bound as well)."""
    target = root + source
    if os.path.lexists(target) and not os.path.isdir(source):
        return
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        os.makedirs(target, mode=0o755, exist_ok=True)
        _bind(source, target)
    else:
        _file(target)
        _bind(source, target, writable=writable)


def _file(path: str, text: str = "") -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(text)


def enter_root(root: str, *, gpu: bool) -> None:
    """This root becomes the process's own, with a /proc of its PID namespace."""
    try:
        _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except CageError:
        pass  # if the host's /proc is partly covered, a new one is refused: the runner goes without
    else:
        if not gpu:
            keep_proc(f"{root}/proc")
    for name in (
        "sys",
        "sysrq-trigger",
        "pressure",  # timers that go off while their process is stopped
    ):  # /proc/sys accepts the host's root by uid, without any capability
        with contextlib.suppress(OSError):
            _bind(f"{root}/proc/{name}", f"{root}/proc/{name}")
    os.chdir(root)
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    if libc.syscall(number, b".", b".") != 0:
        code = ctypes.get_errno()
        raise CageError(code, f"pivot_root: {os.strerror(code)}")
    libc_call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
