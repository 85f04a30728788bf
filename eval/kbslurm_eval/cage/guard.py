"""The cage: what keeps a runner from everything else, put on by a short-lived launcher before the runner's Python
starts.

    judge ── launcher ── unshare(user, mount, pid, ipc, net, uts) ──┬─ keeper   pid 1 of the new namespace; dies with
    the judge
                                                                    └─ runner   mounts, limits, seccomp, exec
Keeper and runner are the judge's own children (CLONE_PARENT), so it waits for them and stops them itself; when the
judge dies, the keeper does, and the kernel ends everything in that namespace. Levels as in the design: 0 a separate
process, 1 + seccomp, limits and a judge that can't be looked into, 2 + namespaces and a read-only root of its own, 3
+ a container with a whole device and pinned cores. The level is what a runner found from inside before it had seen
the submission.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import landlock

NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEW_CGROUP = 0x02000000
ALL_NEW = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET
CLONE_PARENT = 0x8000
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
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_TIMERSLACK = 1, 4, 22, 29
PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 8, 36, 38, 47
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
CAGED_UID = 65_533
# Without namespaces each launch of a judge that is root has a user of its own, whom nobody else is: the kernel counts a
# user's processes, and gives one user's to the other ones of it.
# They lie above what sssd and FreeIPA give to people (to 2 000 200 000), below systemd's foreign ones (2 147 352 576).
OWN_UIDS, UIDS_OF_A_JUDGE = 2_010_000_000, 32
INNER_UID = 1_000
NOBODY = 0x7FFF_FFF0  # no process has this number: Linux goes up to 2**22
DAC_READ_SEARCH = 2
KEPT_ENV = (
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ROCM_PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)  # fmt: skip
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
ETC_BELOW = ("passwd", "group", "nsswitch.conf")  # without a root of its own there are no others than the machine's
CPU_SHARE = tuple(  # libraries ask how many processes are worth their while, and fail where they see but can't read it
    f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
)
DEVICES = ("null", "zero", "full", "random", "urandom")
GPU_DEVICES = ("nvidia", "kfd", "dri")
OPEN = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # where everybody can leave something

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# name: (x86_64, aarch64); None where an architecture hasn't got it
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268),
    "pivot_root": (155, 41), "chroot": (161, 51), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "sethostname": (170, 161), "setdomainname": (171, 162), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "kcmp": (312, 272),
    "process_madvise": (440, 440), "ioperm": (173, None), "iopl": (172, None), "modify_ldt": (154, None),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "shmget": (29, 194), "memfd_secret": (447, 447),
    # the kernel would send any signal for these two, SIGCONT too, to a process that the judge has stopped
    "timer_create": (222, 107), "mq_notify": (244, 184),
    # it goes off while its process is stopped, and whatever watches it is woken in the baseline's turn
    "timerfd_create": (283, 85),
}  # fmt: skip
# without a PID and an IPC namespace of its own a runner could reach others of its user by these
_CALLS_BARE: dict[str, tuple[int | None, int | None]] = {
    "tkill": (200, 130), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "ioprio_set": (251, 30),
    # what others made is reached by its number alone, which /proc tells
    "shmat": (30, 196), "shmctl": (31, 195), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    # Landlock doesn't ask who watches a file: each watch on another link slows the judge's writes to it
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # nor who writes beside a file's bytes: there a later launch would read it
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
_MEMFD = (319, 279)  # memory that no limit but a control group's counts; GPU drivers want it
_CLONE, _CLONE3, _SOCKET, _KILL, _TGKILL = (56, 220), (435, 435), (41, 198), (62, 129), (234, 131)
_SIGQUEUE, _TGSIGQUEUE, _PRLIMIT, _AFFINITY = (129, 138), (297, 240), (302, 261), (203, 122)
_TKILL, _PIDFD_KILL, _FCNTL, _PRCTL = (200, 130), (424, 424), (72, 25), (157, 167)
_IOCTL, _SETPRIORITY, _SOCKETPAIR = (16, 29), (141, 140), (53, 199)
_F_SETSIG, _F_SETLEASE = 10, 1024
_F_SETOWN, _F_SETOWN_EX, _FIOSETOWN, _SIOCSPGRP = 8, 15, 0x8901, 0x8902
_TIOCSPTLCK, _TIOCSCTTY = 0x4004_5431, 0x540E
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


class CageError(OSError):
    """A part of the cage can't be had here."""


def _call(name: str, *args: Any) -> int:
    ctypes.set_errno(0)
    done = int(getattr(_libc, name)(*args))
    if done == -1:
        code = ctypes.get_errno()
        raise CageError(code, f"{name}: {os.strerror(code)}")
    return done


def prctl(option: int, value: int = 0) -> None:
    """prctl(2), or CageError."""
    _call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def hide_judge() -> list[str]:
    """Nobody of the same user may look into this process from now on; orphans of its runners come to it."""
    troubles = []
    for option, value, said in (
        (PR_SET_DUMPABLE, 0, "the judge's memory can't be closed to others of its user"),
        (PR_SET_CHILD_SUBREAPER, 1, "orphans of a runner can't be caught"),
        (PR_SET_TIMERSLACK, 1, "timers are coarse"),
    ):
        try:
            prctl(option, value)
        except OSError:
            troubles.append(said)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return troubles


# ------------------------------------------------------------------------------------------------------- seccomp


def seccomp_filter(*, bare: bool, own_pid: int, inet: bool = False, memfd: bool = False, scoped: bool = False) -> bytes:
    """The classic BPF program for this machine. `bare`: there is no PID namespace, so signals to others are refused
    too, unless they are kept inside otherwise (`scoped`): who starts processes must be able to end them. `inet`: the
    ranks of one launch speak TCP with each other."""
    arch, column = _ARCH[platform.machine()]
    refuse, allow, no_such_call, kill = 0x0005_0001, 0x7FFF_0000, 0x0005_0026, 0x8000_0000
    code: list[tuple[int, int, int, int]] = []

    def load(offset: int) -> None:
        code.append((0x20, 0, 0, offset))

    def give(action: int) -> None:
        code.append((0x06, 0, 0, action))

    def number(pair: tuple[int | None, int | None]) -> int | None:
        return pair[column]

    def unless_argument(pair: tuple[int, int], allowed: list[int], index: int = 0) -> None:
        # nr matches? load the argument, allow the listed values, refuse the rest; go on otherwise
        code.append((0x15, 0, len(allowed) + 3, pair[column]))
        load(16 + 8 * index)
        for n, value in enumerate(allowed):
            code.append((0x15, len(allowed) - n, 0, value))
        give(refuse)
        give(allow)

    def refuse_argument(pair: tuple[int, int], value: int, index: int) -> None:
        # nr matches and this argument is that value? refuse; the number is in the accumulator again otherwise
        code.append((0x15, 0, 4, pair[column]))
        load(16 + 8 * index)
        code.append((0x15, 0, 1, value))
        give(refuse)
        load(0)

    load(4)
    code.append((0x15, 1, 0, arch))
    give(kill)
    load(0)
    if column == 0:  # the x32 numbers are another way to the same calls
        code.append((0x35, 0, 1, 0x4000_0000))
        give(refuse)
    for pair in [*_CALLS.values(), *(_CALLS_BARE.values() if bare else ()), *(() if memfd else (_MEMFD,))]:
        if (nr := number(pair)) is not None:
            code.append((0x15, 0, 1, nr))
            give(refuse)
    code.append((0x15, 0, 1, _CLONE3[column]))
    give(no_such_call)  # its flags are out of a filter's sight: the C library then takes clone
    # Nobody inside continues what the judge has stopped: not by a signal, not by the death of a child (its exit
    # signal, the parent-death signal), not by a file's owner signal. A partner, or the kernel, would undo stops.
    for pair, index in ((_KILL, 1), (_TKILL, 1), (_TGKILL, 2), (_SIGQUEUE, 1), (_TGSIGQUEUE, 2), (_PIDFD_KILL, 1)):
        refuse_argument(pair, signal.SIGCONT, index)
    refuse_argument(_FCNTL, _F_SETSIG, 1)
    # Nor by a terminal that is hung up, which the kernel may do long after the last process closed it: a terminal of
    # one's own can't be unlocked, nor another one taken.
    for request in (_TIOCSPTLCK, _TIOCSCTTY):
        refuse_argument(_IOCTL, request, 1)
    if bare:  # a file's owner may be any process: SIGIO ends those of the same user, the judge among them
        for pair, command in ((_FCNTL, _F_SETOWN), (_FCNTL, _F_SETOWN_EX), (_IOCTL, _FIOSETOWN), (_IOCTL, _SIOCSPGRP)):
            refuse_argument(pair, command, 1)
        refuse_argument(_FCNTL, _F_SETLEASE, 1)  # others who open a file of its user's wait 45 s for one who holds it
    code.append((0x15, 0, 6, _PRCTL[column]))
    load(16)
    code.append((0x15, 0, 3, PR_SET_PDEATHSIG))
    load(24)
    code.append((0x15, 0, 1, signal.SIGCONT))
    give(refuse)
    load(0)
    code.append((0x15, 0, 7, _CLONE[column]))
    load(16)
    code.append((0x54, 0, 0, 0xFF))  # the exit signal
    code.append((0x15, 2, 0, signal.SIGCONT))
    load(16)
    code.append((0x45, 0, 1, NEW_NS | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | CLONE_PARENT))
    give(refuse)  # CLONE_PARENT would make a child of the judge, outside of the tree that it stops
    give(allow)
    if inet:  # libraries that open sockets ask the kernel's router (netlink, protocol 0) for the interfaces' names
        code.append((0x15, 0, 7, _SOCKET[column]))
        load(16)
        code.append((0x15, 0, 4, 16))
        load(32)
        code.append((0x15, 0, 1, 0))
        give(allow)
        give(refuse)
        load(0)
    # Landlock doesn't ask who is spoken to by a path, and whoever answers there (the user's own service manager, say)
    # does so outside of it: a runner without a root of its own has pairs only, that can't send elsewhere. A GPU's
    # runner takes the device's memory by such a socket.
    paired = bare and not memfd
    unless_argument(_SOCKET, [*(() if paired else (1,)), *((2, 10) if inet else ())])
    if paired:
        code.append((0x15, 0, 6, _SOCKETPAIR[column]))
        load(24)
        code.append((0x54, 0, 0, 0xF))
        code.append((0x15, 2, 0, socket.SOCK_STREAM))
        code.append((0x15, 1, 0, socket.SOCK_SEQPACKET))
        give(refuse)
        give(allow)
    if bare:
        for pair in () if scoped else (_KILL, _TGKILL, _SIGQUEUE, _TGSIGQUEUE):
            unless_argument(pair, [own_pid])
        for pair in (_PRLIMIT, _AFFINITY):
            unless_argument(pair, [0, own_pid])
        code.append((0x15, 0, 7, _SETPRIORITY[column]))  # its own, as in a namespace; never its whole user's
        load(16)
        code.append((0x15, 0, 3, os.PRIO_PROCESS))
        load(24)
        code.append((0x15, 2, 0, 0))
        code.append((0x15, 1, 0, own_pid))
        give(refuse)
        give(allow)
    give(allow)
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def put_on_seccomp(program: bytes) -> None:
    """From here on, for this process and all that it starts."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    held = ctypes.create_string_buffer(program, len(program))
    told = Program(len(program) // 8, ctypes.cast(held, ctypes.c_void_p))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _call("prctl", PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(told), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _limit(limits: Mapping[str, int], *, own_namespace: bool, gpu: bool) -> None:
    def at_most(kind: int, value: int) -> None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    at_most(resource.RLIMIT_CORE, 0)
    at_most(resource.RLIMIT_NOFILE, 1024)
    at_most(resource.RLIMIT_FSIZE, limits["file_bytes"])
    at_most(resource.RLIMIT_MEMLOCK, 64 << 20)
    at_most(resource.RLIMIT_SIGPENDING, 1024)  # all processes of one user draw on one sum
    # the kernel counts a user's tasks; in a user namespace of its own these are only the runner's
    others = 0 if own_namespace else _tasks_of(os.getuid())
    at_most(resource.RLIMIT_NPROC, limits["processes"] + others)
    if not gpu:  # a GPU driver reserves far more address space than memory
        at_most(resource.RLIMIT_DATA, limits["memory_bytes"] + (256 << 20))
        at_most(resource.RLIMIT_AS, 4 * limits["memory_bytes"] + (8 << 30))


def _tasks_of(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def gpu_devices() -> list[str]:
    """Device files of a GPU on this machine."""
    with contextlib.suppress(OSError):
        return [f"/dev/{n}" for n in sorted(os.listdir("/dev")) if n.startswith(GPU_DEVICES[0]) or n in GPU_DEVICES[1:]]
    return []


# ------------------------------------------------------------------------------------------------------ launcher


def launcher() -> int:
    """The program of `--jail`: reads one JSON line from stdin, starts keeper and runner, says who they are, and
    ends."""
    spec = json.loads(sys.stdin.buffer.readline())
    said = int(spec["said_fd"])
    try:
        _launch(spec, said)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the judge is told in one line
        with contextlib.suppress(OSError):
            os.write(said, f"error {type(error).__name__}: {error}\n".replace("\n", " ").encode()[:2000] + b"\n")
        return 1
    return 0


def _launch(spec: dict[str, Any], said: int) -> None:
    caged = spec["level"] >= 2
    root = os.getuid() == 0
    if caged:
        _own_namespaces(root)
        if spec["ranks"] > 1:
            _loopback_up()
        _furnish(spec)
        keeper = _clone()
        if keeper == 0:
            _keep(said)
        os.write(said, f"keeper {keeper}\n".encode())
    runner = _clone()
    if runner == 0:
        try:
            _become_runner(spec, caged, root)
        except BaseException as error:  # noqa: BLE001 - the process ends here whatever happened
            line = f"error {type(error).__name__}: {error}".replace("\n", " ").encode()[:2000] + b"\n"
            for fd in (said, 3):  # it is at 3 once the rest is closed
                with contextlib.suppress(OSError):
                    os.write(fd, line)
                    break
        finally:
            os._exit(127)
    os.write(said, f"runner {runner}\n".encode())


def _clone() -> int:
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    pid = int(
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(CLONE_PARENT | signal.SIGCHLD), *[ctypes.c_long(0)] * 4)
    )
    if pid < 0:
        code = ctypes.get_errno()
        raise CageError(code, f"clone: {os.strerror(code)}")
    return pid


def _own_namespaces(root: bool) -> None:
    uid, gid, me = os.getuid(), os.getgid(), os.getpid()
    ready, go = os.pipe()
    told, tell = os.pipe()
    mapper = os.fork() if root else -1
    if mapper == 0:
        os.close(go)
        os.close(told)
        os.read(ready, 1)
        done = _map_ids(me, f"0 0 1\n{INNER_UID} {CAGED_UID} 1\n", f"0 0 1\n{INNER_UID} {CAGED_UID} 1\n")
        os.write(tell, b"y" if done else b"n")
        os._exit(0)
    _call("unshare", ALL_NEW)
    mapped = False
    if root:
        os.write(go, b"x")
        mapped = os.read(told, 1) == b"y"
        os.waitpid(mapper, 0)
    if not mapped and not _map_ids(me, f"{INNER_UID} {uid} 1\n", f"{INNER_UID} {gid} 1\n"):
        raise CageError("no user can be mapped into a namespace of its own")
    for fd in (ready, go, told, tell):
        os.close(fd)


def _loopback_up() -> None:
    """In a fresh network namespace even loopback is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        flags = struct.unpack_from("<H", fcntl.ioctl(asked, SIOCGIFFLAGS, struct.pack("<16s24x", b"lo")), 16)[0]
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("<16sH22x", b"lo", flags | IFF_UP))


def _map_ids(pid: int, uids: str, gids: str) -> bool:
    try:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        Path(f"/proc/{pid}/uid_map").write_text(uids)
        Path(f"/proc/{pid}/gid_map").write_text(gids)
    except OSError:
        return False
    return True


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def text(value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    try:
        _call("mount", text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    except CageError as error:
        raise CageError(error.errno, f"mount {target}: {error.strerror}") from None


def _bind(source: str, target: str, *, writable: bool = False) -> None:
    _mount(source, target, None, MS_BIND | MS_REC)
    if not writable:
        _read_only(target)


def _read_only(target: str) -> None:
    told = struct.pack("<QQQQ", 1 | 2, 0, 0, 0)  # MOUNT_ATTR_RDONLY | NOSUID, for the whole tree
    path = target.encode()
    number = {"x86_64": 442, "aarch64": 442}[platform.machine()]
    if _libc.syscall(number, -100, path, 0x8000, told, len(told)) == 0:
        return
    # a kernel before 5.12: what is locked on the mount must be repeated
    found = os.statvfs(target).f_flag
    locked = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: 1024, 2048: 2048, 4096: 1 << 21}
    flags = sum(ms for st, ms in locked.items() if found & st)
    _mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | flags)


def _furnish(spec: dict[str, Any]) -> None:
    """A root of its own below spec['root']: private places first, then what is bound, so that a path below /tmp is
    reachable."""
    root = spec["root"]
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("kb", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in ("tmp", "dev", "proc", "etc", "sys", "link", "eval"):
        os.mkdir(f"{root}/{name}", 0o755)
    size = spec["limits"]["file_bytes"]
    _mount("kb", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},nr_inodes=65536,mode=1777")
    for source in spec["binds"]:
        _place(root, source)
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            _place(root, f"/etc/{name}")
    Path(f"{root}/etc/passwd").write_text(f"runner:x:{INNER_UID}:{INNER_UID}::/tmp:/bin/sh\n", encoding="ascii")
    Path(f"{root}/etc/group").write_text(f"runner:x:{INNER_UID}:\n", encoding="ascii")
    for name in DEVICES:
        _place(root, f"/dev/{name}", writable=True)
    for device in spec["devices"]:
        _place(root, device, writable=True)
    os.mkdir(f"{root}/dev/shm", 0o755)
    shared = f"size={64 * spec['ranks']}m,nr_inodes=4096,mode=1777"
    _mount("kb", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, shared)
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
        Path(f"{root}/link/{name}").touch()
        _bind(f"{spec['link']}/{name}", f"{root}/link/{name}", writable=True)


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
        _bind(source, target, writable=writable)
    else:
        Path(target).touch()
        _bind(source, target, writable=writable)


def _keep(said: int) -> None:
    """Pid 1 of the namespace: holds nothing, reaps orphans, and dies with the judge; then the kernel ends the rest."""
    try:
        os.close(said)
        os.closerange(0, 64)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_DUMPABLE, 0)
        while True:
            signal.pause()
    finally:
        os._exit(0)


def _become_runner(spec: dict[str, Any], caged: bool, root: bool) -> None:
    os.setsid()
    if caged:
        _enter(spec["root"])
    log, said = int(spec["log_fd"]), int(spec["said_fd"])
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, to in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, to)
    os.dup2(said, 3)
    os.set_inheritable(3, False)
    os.closerange(4, 4096)
    fenced = spec["level"] == 1 and _fenced(spec)
    _drop_user(spec, caged, root, fenced=fenced)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _limit(spec["limits"], own_namespace=caged, gpu=bool(spec["devices"]))
    os.umask(0o022)
    if spec["level"] >= 1:
        gpu, inet = bool(spec["devices"]), spec["ranks"] > 1
        scoped = fenced and landlock.keeps_signals()
        put_on_seccomp(seccomp_filter(bare=not caged, own_pid=os.getpid(), inet=inet, memfd=gpu, scoped=scoped))
    else:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


def _enter(root: str) -> None:
    try:
        _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except CageError:
        pass  # where the host's own /proc is partly covered a new one is refused: the runner goes without
    for name in (
        "sys",
        "sysrq-trigger",
    ):  # the kernel's switches obey the host's root by number, whatever it may else do
        with contextlib.suppress(OSError):
            _bind(f"{root}/proc/{name}", f"{root}/proc/{name}")
    os.chdir(root)
    number = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    if _libc.syscall(number, b".", b".") != 0:
        code = ctypes.get_errno()
        raise CageError(code, f"pivot_root: {os.strerror(code)}")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _fenced(spec: dict[str, Any]) -> bool:
    """Read what a cage with a root of its own would show, write to the launch's own folder and link; nothing else.
    The C library's memory by name isn't to be had: it would lie where the links of others do (Python's: `sharing`)."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    shown = [*spec["binds"], *spec["libraries"], *(f"/etc/{name}" for name in (*ETC, *ETC_BELOW)), spec["eval"]]
    shown += ["/proc", "/sys/devices/system", *CPU_SHARE, *([spec["built"]] if spec["built"] else ())]
    used = [*(f"/dev/{name}" for name in DEVICES), *spec["devices"], *(f"{spec['link']}/{n}" for n in spec["links"])]
    return landlock.put_on(
        [(path, landlock.READ) for path in shown]
        + [(path, landlock.USE | landlock.READ_DIR) for path in used]
        + [(path, landlock.OWN) for path in spec["own"]]
    )


def _drop_user(spec: dict[str, Any], caged: bool, root: bool, *, fenced: bool) -> None:
    if not root:
        return
    if caged:
        if os.getuid() == 0:
            os.setresgid(INNER_UID, INNER_UID, INNER_UID)
            os.setresuid(INNER_UID, INNER_UID, INNER_UID)
        return
    reached = all(_open_to_all(path) for path in spec["reached"])
    if not reached and not fenced:
        _drop_capabilities()
        return
    if not reached:
        prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(spec["uid"], spec["uid"], spec["uid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    if not reached:  # a Python below root's own folder: past its door, and no further than the fence
        kept = 1 << DAC_READ_SEARCH
        _call("capset", struct.pack("<II", 0x20080522, 0), struct.pack("<6I", kept, kept, kept, 0, 0, 0))
        _call("prctl", PR_CAP_AMBIENT, *(ctypes.c_ulong(n) for n in (2, DAC_READ_SEARCH, 0, 0)))


def _drop_capabilities() -> None:
    prctl(28, 0x2F)  # securebits first, as long as they may be set: no capability comes back by exec
    _call("capset", struct.pack("<II", 0x20080522, 0), bytes(24))


def _open_to_all(path: str) -> bool:
    """Whether any user gets to this file or folder."""
    found = Path(path)
    return all(p.stat().st_mode & stat.S_IXOTH for p in found.parents) and bool(found.stat().st_mode & stat.S_IROTH)


# ------------------------------------------------------------------------------------------------- seen from inside


def seen_from_inside() -> dict[str, Any]:
    """What this process finds about its own cage: numbers of its namespaces, whether seccomp is on, whether / can be
    written."""
    spaces = {}
    for name in ("user", "mnt", "pid", "ipc", "net"):
        with contextlib.suppress(OSError):
            spaces[name] = os.stat(f"/proc/self/ns/{name}").st_ino
    seccomp, privileges, capabilities = _from_status()
    return {
        "spaces": spaces, "seccomp": seccomp, "no_new_privs": privileges, "capabilities": capabilities,
        "read_only_root": not _root_can_be_written(), "uid": os.getuid(), "proc": bool(spaces),
        "first_process_open": _first_process_is_open(), "landlock": landlock.version(),
    }  # fmt: skip


def seen_by_judge() -> dict[str, Any]:
    """The same for a judge, which also has to see when other processes stand."""
    return {**seen_from_inside(), "blind": _blind()}


def _blind() -> str:
    """Why a process of a submission's could seem to be gone while it runs; empty where none could.

    Where /proc hides other people's processes (hidepid), one that closes itself is hidden even from its own user.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return "this kernel doesn't say whose children processes are (/proc/PID/task/TID/children)"
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_DUMPABLE, 0)
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(told, 1)
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            return "" if file.read() else "/proc says nothing of other processes"
    except OSError:
        return "/proc hides processes from the judge (hidepid), so a submission's can't be seen to have stopped"
    finally:
        os.close(told)
        os.close(tell)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _root_can_be_written() -> bool:
    return _takes_files("/")


def _takes_files(folder: str) -> bool:
    probe = f"{folder.rstrip('/')}/.kb-probe-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(probe)
    except OSError as error:  # a disk that is full now needn't be so later
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
    return True


def places_left_open(places: Iterable[str]) -> list[str]:
    """In which of these folders this process can leave a file."""
    return [place for place in places if _takes_files(place)]


def may_signal_its_own() -> bool:
    """Whether signals of this process are for the kernel to judge, rather than refused by the filter."""
    try:
        os.kill(NOBODY, 0)
    except OSError as error:
        return error.errno == errno.ESRCH
    return True


def signals_get_out() -> bool:
    """Whether this process may signal the one that started it."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return False
    return True


def _from_status() -> tuple[int, int, str]:
    found = {"Seccomp": "", "NoNewPrivs": "", "CapEff": ""}
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = value.strip()
    if not found["Seccomp"]:  # no /proc in the cage: PR_GET_SECCOMP and PR_GET_NO_NEW_PRIVS say it
        return int(_libc.prctl(21, 0, 0, 0, 0)), int(_libc.prctl(39, 0, 0, 0, 0)), ""
    return int(found["Seccomp"]), int(found["NoNewPrivs"] or 0), found["CapEff"]


def caged_from_inside(told: Mapping[str, Any], folder: str) -> None:
    """What a runner in a container puts on itself: its log, limits and the filter. The rest is the container's."""
    log = f"{folder}/log"
    if os.path.exists(log):
        fd = os.open(log, os.O_WRONLY)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
    with contextlib.suppress(OSError):
        os.setsid()
    _limit(told["limits"], own_namespace=False, gpu=bool(gpu_devices()))
    _leave_the_first_process()
    try:
        gpu, inet = bool(gpu_devices()), bool(told.get("inet"))
        put_on_seccomp(seccomp_filter(bare=False, own_pid=os.getpid(), inet=inet, memfd=gpu))
    except (OSError, KeyError) as error:
        print(f"no filter for system calls: {error}", file=sys.stderr)


def _leave_the_first_process() -> None:
    """A user namespace below the container's: the memory of its first process, which has no filter, is out of reach.

    It belongs to the same user, so that a submission could otherwise write code of its own into it, to be run without
    the filter. Whether that is shut off now, by this or by the machine's own ways, is looked at: see `level_of`.
    """
    uid, gid = os.getuid(), os.getgid()
    with contextlib.suppress(OSError):
        _call("unshare", NEW_USER)
        _map_ids(os.getpid(), f"{uid} {uid} 1\n", f"{gid} {gid} 1\n")
        _drop_capabilities()


def _first_process_is_open() -> bool:
    """Whether the memory of the first process of this PID namespace can be opened, which is never ours."""
    if os.getpid() == 1:
        return False
    try:
        os.close(os.open("/proc/1/mem", os.O_RDWR))
    except OSError:
        return False
    return True


def level_of(seen: Mapping[str, Any], own: Mapping[str, Any], *, container: bool) -> tuple[int, list[str]]:
    """The level that these findings amount to, and what keeps it from being higher."""
    notes = []
    if blind := own.get("blind"):
        return 0, [str(blind)]
    if not (seen.get("seccomp") == 2 and seen.get("no_new_privs") == 1):
        return 0, ["no filter for system calls (seccomp)"]
    spaces, mine = seen.get("spaces", {}), own.get("spaces", {})
    if not seen.get("furnished") and spaces.get("mnt") in (None, mine.get("mnt")) and (why := _unconfined(seen, own)):
        return 0, [why]
    if seen.get("proc"):
        for name in ("pid", "mnt", "ipc", "net"):
            if spaces.get(name) is None or spaces.get(name) == mine.get(name):
                notes.append(f"no {name} namespace of its own")
    elif not seen.get("furnished"):
        notes.append("its namespaces can't be seen (no /proc)")
    if not seen.get("read_only_root"):
        notes.append("its root can be written")
    if others := sorted(set(seen.get("interfaces") or ()) - {"lo"}):
        notes.append(f"network interfaces besides loopback are up: {', '.join(others)[:100]}")
    if strays := seen.get("strays"):
        notes.append(str(strays))
    if seen.get("first_process_open"):
        notes.append("the memory of its container's first process, which has no filter, is open to it")
    if notes:
        return 1, notes
    return (3 if container else 2), notes


def _unconfined(seen: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Why what a runner writes outlives it, where the file system is the judge's own; empty where it doesn't."""
    if left := seen.get("open"):
        return f"files can be left for the next launch in {', '.join(map(str, left))[:200]}"
    if seen.get("signals"):
        return "processes of others can be signalled"
    if not int(seen.get("landlock") or 0):  # what is closed are the usual places only
        return "files can be left wherever its user may write (this kernel has no Landlock)"
    another = seen.get("uid") != own.get("uid") and int(str(seen.get("capabilities") or 0), 16) == 0
    if not another and int(seen.get("landlock") or 0) < landlock.TRUNCATES:
        return "files of its user can be emptied (this kernel's Landlock doesn't say who may)"
    return ""
