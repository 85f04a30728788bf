"""The kernel's side of the test cluster: mounts, namespaces and a root of one's own.

Standard library only, through libc, because these calls run between two roots: after the root has changed, no helper
program of the old one can be started any more, and no module imported.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A folder of the host as seen inside a tree."""

    source: Path
    target: str
    writable: bool = False


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by flags for fresh ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    """mount(2), raising OSError with a sentence that names the target."""
    _checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            data.encode() if data else None,
        ),
        f"mounting {kind or source} on {target}",
    )


def make_private() -> None:
    """Let no mount made here be seen by the host, nor the other way round."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def bind(one: Bind, root: Path) -> None:
    """Show a folder of the host inside the tree below root."""
    target = root / one.target.lstrip("/")
    if one.source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(one.source), str(target), None, MS_BIND)
    if not one.writable:
        mount("none", str(target), None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def overlay(lower: Path, folder: Path) -> Path:
    """A writable view of the tree `lower` whose changes stay in `folder`; gives the root to enter.

    Where the file system of `folder` can't hold an overlay's changes (another overlay, as in many containers), the
    tree is copied instead: slower, but the same for everyone inside.
    """
    for name in ("lower", "upper", "work", "root"):
        (folder / name).mkdir(exist_ok=True)
    mount(str(lower), str(folder / "lower"), None, MS_BIND)
    before = Path.cwd()
    os.chdir(folder)  # relative names: no character of a checkout's path can then upset the mount's options
    try:
        mount("overlay", "root", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work")
    except OSError:
        # copying is left to cp: it alone keeps owners, links, devices and extended attributes, and shares blocks
        status = os.spawnvp(os.P_WAIT, "cp", ["cp", "-a", "--reflink=auto", f"{lower}/.", str(folder / "root")])
        if status != 0:
            raise OSError(f"neither an overlay nor a copy of {lower} could be made in {folder}") from None
        mount("root", "root", None, MS_BIND)
    finally:
        os.chdir(before)
    return folder / "root"


STAND_IN = 240  # a major number that is nobody's: an open is refused by a control group (EPERM), or fails (ENXIO)


def furnish(
    root: Path, devices: Sequence[str] = (), *, tmpfs: Mapping[str, str] | None = None, cgroups: bool = False
) -> None:
    """Give the tree its own /proc, /sys, /dev and the temporary file systems named in tmpfs.

    `devices` are made as harmless character devices: reading them gives nothing, writing loses everything. With
    `cgroups` the tree sees the machine's control groups, and each device has a number of its own to be refused by.
    """
    mount("proc", str(root / "proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", str(root / "sys"), "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if cgroups:
        mount("/sys/fs/cgroup", str(root / "sys/fs/cgroup"), None, MS_BIND | MS_REC)
    dev = root / "dev"
    mount("dev", str(dev), "tmpfs", MS_NOSUID, "mode=755,size=1m")
    before = os.umask(0)
    try:
        nodes = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
        for name, (major, minor) in {**nodes, "fuse": (10, 229)}.items():
            os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        for number, path in enumerate(devices):
            numbers = os.makedev(STAND_IN, number) if cgroups else os.makedev(1, 3)
            os.mknod(root / path.lstrip("/"), 0o666 | stat.S_IFCHR, numbers)
    finally:
        os.umask(before)
    for folder in ("pts", "shm", "mqueue"):
        (dev / folder).mkdir()
    for name, to in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        os.symlink(to, dev / name)
    mount("devpts", str(dev / "pts"), "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    os.symlink("pts/ptmx", dev / "ptmx")
    mount("mqueue", str(dev / "mqueue"), "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("shm", str(dev / "shm"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for path, options in (tmpfs or {}).items():
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("tmpfs", str(root / path.lstrip("/")), "tmpfs", MS_NOSUID | MS_NODEV, options)


def pivot(root: Path) -> None:
    """Make the tree at root (a mount point) this mount namespace's root; the old one is gone afterwards.

    A chroot would not do: Apptainer looks for the mount point that its root belongs to.
    """
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"no pivot_root number is known for {os.uname().machine}")
    os.chdir(root)
    _checked(_libc.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "leaving the old root")
    os.chdir("/")


def set_hostname(name: str) -> None:
    """Name this UTS namespace."""
    _checked(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name.encode()))), "sethostname")


def die_with_parent(how: int = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent ends; to be called after the last change of user."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(how), 0, 0, 0), "prctl")


def join(pid: int) -> None:
    """Enter the namespaces of a process; children forked afterwards are in its PID namespace too."""
    kinds = ("ipc", "uts", "net", "pid", "mnt")  # mnt last: after it /proc is another
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    for kind, handle in zip(kinds, handles, strict=True):
        _checked(_libc.setns(ctypes.c_int(handle), 0), f"entering the {kind} namespace of process {pid}")
        os.close(handle)


def become(uid: int, gid: int, groups: Sequence[int] = ()) -> None:
    """Turn into an ordinary user for good."""
    os.setgroups([gid, *groups])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def forbid_user_namespaces() -> None:
    """Let nobody here make a user namespace any more, as where the machine's administrator has turned them off.

    The limit belongs to a user namespace, so this process enters one of its own, in which every user is who it was.
    """
    left, entered = os.pipe(), os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:  # it stays in the namespace outside, whose rights it takes to write the maps
        code = 1
        try:
            os.close(left[1])
            os.read(left[0], 1)
            for table in ("uid_map", "gid_map"):
                with open(f"/proc/{me}/{table}", "w") as maps:
                    maps.write("0 0 4294967295\n")
            os.write(entered[1], b"1")
            code = 0
        finally:
            os._exit(code)
    unshare(CLONE_NEWUSER)
    os.write(left[1], b"1")
    os.read(entered[0], 1)
    _, status = os.waitpid(helper, 0)
    for handle in (*left, *entered):
        os.close(handle)
    if status != 0:
        raise OSError("the users of a new user namespace could not be mapped")
    with open("/proc/sys/user/max_user_namespaces", "w") as limit:
        limit.write("0\n")


def fork_and_wait(child: Callable[[], NoReturn]) -> int:
    """Run child() in a fork that dies with this process; gives its exit code, 128 + n when signal n ended it.

    SIGTERM, SIGHUP and SIGINT are passed on.
    """
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException as trouble:  # nothing may climb out of the fork into the parent's code
            os.write(2, f"{trouble}\n".encode())
        os._exit(127)
    passed_on = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.signal(one, lambda number, _frame: os.kill(pid, number)) for one in passed_on]
    try:
        _, status = os.waitpid(pid, 0)
    finally:
        for one, handler in zip(passed_on, before, strict=True):
            signal.signal(one, handler)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def run_in_tree(
    tree: Path, argv: Sequence[str], *, binds: Sequence[Bind] = (), uid: int = 0, work: Path, log: Path
) -> int:
    """Run one command with the tree as its root and its output added to a log; gives the exit code.

    The tree itself is changed only through the writable binds: the rest goes to an overlay in `work`, removed after.
    """

    def inside() -> NoReturn:
        die_with_parent()  # as root first: setup must not outlive an interrupted builder either
        make_private()
        root = overlay(tree, work)
        furnish(root, tmpfs={"/tmp": "mode=1777"})
        for one in binds:
            bind(one, root)
        pivot(root)
        if uid:
            become(uid, uid)
            die_with_parent()
        env = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8"}
        os.execvpe(argv[0], list(argv), env)

    def outside() -> NoReturn:
        die_with_parent()
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)
        os._exit(fork_and_wait(inside))

    work.mkdir(parents=True, exist_ok=True)
    try:
        return fork_and_wait(outside)
    finally:
        shutil.rmtree(work, ignore_errors=True)
