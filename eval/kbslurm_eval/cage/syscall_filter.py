"""The system call filter (seccomp), which a runner can't remove."""

from __future__ import annotations

import ctypes
import os
import struct

from kbslurm_eval.cage.kernel import (
    CLONE_FILES,
    CLONE_PARENT,
    CLONE_THREAD,
    NEW_CGROUP,
    NEW_IPC,
    NEW_NET,
    NEW_NS,
    NEW_PID,
    NEW_USER,
    NEW_UTS,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    PR_SET_SECCOMP,
    PR_SET_THP_DISABLE,
    SIGCONT,
    SOCK_SEQPACKET,
    SOCK_STREAM,
    libc_call,
    prctl,
)

# name: (x86_64, aarch64); None if an architecture lacks it
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
    # there are so many of them on a node, and one runner could have them all
    "io_setup": (206, 0),
    # what these hold is in no process's memory, and outlives all of them
    "msgget": (68, 186), "semget": (64, 190),
    # a page that lies in a pipe or a socket is in no process's memory any more, can't be moved, and keeps all of the
    # two megabytes that it may be a part of
    "vmsplice": (278, 75),
    # the whole node's pages would be written, again and again
    "sync": (162, 81), "syncfs": (306, 267),
    # who watches files learns what others on the node open, and slows whatever writes to them
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # the kernel's own threads free what these made once a thread ends, in somebody else's turn and without giving way
    "seccomp": (317, 277), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
}  # fmt: skip
# without a PID and an IPC namespace of its own a runner could reach others of its user by these
_CALLS_BARE: dict[str, tuple[int | None, int | None]] = {
    "tkill": (200, 130), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "mq_open": (240, 180), "ioprio_set": (251, 30),
    # what others made is reached by its number alone, which /proc tells
    "shmat": (30, 196), "shmctl": (31, 195), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    # Landlock doesn't ask who writes beside a file's bytes: there a later launch would read it
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
# Pages in pipes likewise (splice, tee, sendfile). Who copies a file does it another way where a kernel has none of
# these, and may not where they are forbidden.
_AS_IF_UNKNOWN = ((275, 76), (276, 77), (40, 71))
# a node's own stock of large pages is in no process's memory that anybody counts, and nobody has the others
_MMAP, _MAP_HUGETLB, _MFD_HUGETLB = (9, 222), 0x4_0000, 4
_MEMFD = (319, 279)  # memory that no limit but a control group's counts; GPU drivers want it
_CLONE, _CLONE3, _SOCKET, _KILL, _TGKILL = (56, 220), (435, 435), (41, 198), (62, 129), (234, 131)
_SIGQUEUE, _TGSIGQUEUE, _PRLIMIT, _AFFINITY = (129, 138), (297, 240), (302, 261), (203, 122)
_TKILL, _PIDFD_KILL, _FCNTL, _PRCTL = (200, 130), (424, 424), (72, 25), (157, 167)
_IOCTL, _SETPRIORITY, _SOCKETPAIR = (16, 29), (141, 140), (53, 199)
_FALLOCATE, _PUNCH_HOLE = (285, 47), 3  # the mode 0 makes a file larger, up to the limit; 3 takes memory away
_CLOSE_RANGE, _UNSHARED = (436, 436), (2, 6)  # with CLOSE_RANGE_UNSHARE
_PR_SCHED_CORE = 62
_FADVISE, _DONT_NEED = (221, 223), 4
_F_SETSIG, _F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ = 10, 1024, 1026, 1031
_OFD_LOCKS = (37, 38)
# the kernel's own threads free filters, in somebody else's turn
_SETSOCKOPT, _BUFFER_SIZES, _ATTACH_FILTER = (54, 208), (7, 8, 32, 33), (26, 50, 51, 52)
_F_SETOWN, _F_SETOWN_EX, _FIOSETOWN, _SIOCSPGRP = 8, 15, 0x8901, 0x8902
_TIOCSPTLCK, _TIOCSCTTY = 0x4004_5431, 0x540E
# bridges, VLANs, the DLCI of older kernels, and a terminal's line discipline
_ASK_FOR_MODULES = (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x5423)
# By level, what ranks may not set: filters, and what has the kernel hold back what is sent, to send it by a timer of
# its own while all is stopped (SO_MAX_PACING_RATE, SO_TXTIME; TCP_CONGESTION, TCP_TX_DELAY).
_OF_RANKS = {1: (*_ATTACH_FILTER, 47, 61), 6: (13, 37)}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _SOCK_DGRAM, _TCP, _UDP = 1, 2, 10, 16, 2, 6, 17
_SETRLIMIT, _RLIMIT_CORE = (160, 164), 4
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def seccomp_filter(*, bare: bool, own_pid: int, inet: bool = False, memfd: bool = False, scoped: bool = False) -> bytes:
    """The classic BPF program for this machine. `bare`: there is no PID namespace, so signals to others are refused
    too, unless they are kept inside otherwise (`scoped`): who starts processes must be able to end them. `inet`: the
    ranks of one launch speak TCP with each other."""
    arch, column = _ARCH[os.uname().machine]
    refuse, allow, no_such_call, kill, done = 0x0005_0001, 0x7FFF_0000, 0x0005_0026, 0x8000_0000, 0x0005_0000
    no_memory = 0x0005_000C
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

    def refuse_bit(pair: tuple[int, int], bit: int, index: int, action: int) -> None:
        code.append((0x15, 0, 4, pair[column]))
        load(16 + 8 * index)
        code.append((0x45, 0, 1, bit))
        give(action)
        load(0)

    def refuse_argument(pair: tuple[int, int], value: int, index: int, action: int = refuse) -> None:
        # nr matches and this argument is that value? refuse; the number is in the accumulator again otherwise
        code.append((0x15, 0, 4, pair[column]))
        load(16 + 8 * index)
        code.append((0x15, 0, 1, value))
        give(action)
        load(0)

    load(4)
    code.append((0x15, 1, 0, arch))
    give(kill)
    load(0)
    if column == 0:  # the x32 numbers are a second way to make the same calls
        code.append((0x35, 0, 1, 0x4000_0000))
        give(refuse)
    for pair in [*_CALLS.values(), *(_CALLS_BARE.values() if bare else ()), *(() if memfd else (_MEMFD,))]:
        if (nr := number(pair)) is not None:
            code.append((0x15, 0, 1, nr))
            give(refuse)
    for pair in (_CLONE3, *_AS_IF_UNKNOWN):  # a filter can't see clone3's flags; the C library falls back to clone
        code.append((0x15, 0, 1, pair[column]))
        give(no_such_call)
    refuse_bit(_MMAP, _MAP_HUGETLB, 3, no_memory)
    refuse_bit(_MEMFD, _MFD_HUGETLB, 1, no_memory)
    # Nobody inside continues what the judge has stopped: not by a signal, not by the death of a child (its exit
    # signal, the parent-death signal), not by a file's owner signal. A partner, or the kernel, would undo stops.
    for pair, index in ((_KILL, 1), (_TKILL, 1), (_TGKILL, 2), (_SIGQUEUE, 1), (_TGSIGQUEUE, 2), (_PIDFD_KILL, 1)):
        refuse_argument(pair, SIGCONT, index)
    refuse_argument(_FCNTL, _F_SETSIG, 1)
    # Others who open a file wait up to 45 s for who holds a lease on it; where the judge isn't root, its own files are
    # this user's.
    refuse_argument(_FCNTL, _F_SETLEASE, 1)
    refuse_argument(_FCNTL, _F_NOTIFY, 1)  # watches a folder, as inotify does
    # A lock of an open file's stays while that is on its way through a socket, where nobody sees whose it is
    # (`cage/held_locks.py` counts a process's).
    for command in _OFD_LOCKS:
        refuse_argument(_FCNTL, command, 1)
    refuse_argument(_FCNTL, _F_SETPIPE_SZ, 1)  # what pipes may hold is counted for a user on the whole node
    if not inet:  # what lies in sockets is counted by how many there are
        for option in (*_BUFFER_SIZES, *_ATTACH_FILTER):
            refuse_argument(_SETSOCKOPT, option, 2)
    else:
        for level, options in _OF_RANKS.items():
            last = len(options) - 1
            code.append((0x15, 0, last + 6, _SETSOCKOPT[column]))
            load(24)
            code.append((0x15, 0, last + 3, level))
            load(32)
            for n, option in enumerate(options):
                code.append((0x15, last - n, n // last, option))
            give(refuse)
            load(0)
    # Nor by a terminal that is hung up, which the kernel may do long after the last process closed it: a terminal of
    # one's own can't be unlocked, nor another one taken.
    for request in (_TIOCSPTLCK, _TIOCSCTTY):
        refuse_argument(_IOCTL, request, 1)
    # The kernel looks for a module by a program that it starts as root, outside of any tree and of any turn.
    for request in _ASK_FOR_MODULES:
        refuse_argument(_IOCTL, request, 1)
    # With a limit of 0 it starts the node's handler of cores for each crash, likewise (`kernel.forbid_cores`): who
    # turns them off is told that it is done.
    refuse_argument(_SETRLIMIT, _RLIMIT_CORE, 0, done)
    code.append((0x15, 0, 8, _PRLIMIT[column]))
    load(24)
    code.append((0x15, 0, 5, _RLIMIT_CORE))
    load(32)  # both halves of where a new limit is, if there is one
    code.append((0x15, 0, 2, 0))
    load(36)
    code.append((0x15, 1, 0, 0))
    give(done)
    load(0)
    if bare:  # a file's owner may be any process: SIGIO ends those of the same user, the judge among them
        for pair, command in ((_FCNTL, _F_SETOWN), (_FCNTL, _F_SETOWN_EX), (_IOCTL, _FIOSETOWN), (_IOCTL, _SIOCSPGRP)):
            refuse_argument(pair, command, 1)
    for flags in _UNSHARED:  # what a thread alone has open is looked for by nobody
        refuse_argument(_CLOSE_RANGE, flags, 2)
    refuse_argument(_FADVISE, _DONT_NEED, 3)  # a file that others read would come from the disk again
    for option in (PR_SET_SECCOMP, PR_SET_THP_DISABLE):
        refuse_argument(_PRCTL, option, 0)
    refuse_argument(_PRCTL, _PR_SCHED_CORE, 0)  # who has a cookie of its own has a core's other half kept empty
    code.append((0x15, 0, 6, _PRCTL[column]))
    load(16)
    code.append((0x15, 0, 3, PR_SET_PDEATHSIG))
    load(24)
    code.append((0x15, 0, 1, SIGCONT))
    give(refuse)
    load(0)
    code.append((0x15, 0, 10, _CLONE[column]))
    load(16)
    code.append((0x54, 0, 0, 0xFF))  # the exit signal
    code.append((0x15, 5, 0, SIGCONT))
    load(16)
    code.append((0x54, 0, 0, CLONE_THREAD | CLONE_FILES))
    code.append((0x15, 2, 0, CLONE_THREAD))  # what a thread alone has open is looked for by nobody
    load(16)
    code.append((0x45, 0, 1, NEW_NS | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | CLONE_PARENT))
    give(refuse)  # CLONE_PARENT would make a child of the judge, outside of the tree that it stops
    give(allow)
    if inet:
        code.append((0x15, 0, 17, _SOCKET[column]))
        load(16)
        code.append((0x15, 2, 0, _AF_INET))
        code.append((0x15, 1, 0, _AF_INET6))
        code.append((0x15, 8, 12, _AF_NETLINK))
        load(24)
        code.append((0x54, 0, 0, 0xF))
        code.append((0x15, 1, 0, SOCK_STREAM))
        code.append((0x15, 0, 6, _SOCK_DGRAM))
        load(32)  # TCP, UDP or what is usual: for any other one the kernel looks for a module
        code.append((0x15, 5, 0, 0))
        code.append((0x15, 4, 0, _TCP))
        code.append((0x15, 3, 2, _UDP))
        load(32)  # libraries ask the kernel's router (netlink, protocol 0) for the interfaces' names
        code.append((0x15, 1, 0, 0))
        give(refuse)
        give(allow)
        load(0)
    # Memory past a file's end is in no size and no limit, and what all links lie in would be full.
    unless_argument(_FALLOCATE, [0, _PUNCH_HOLE], index=1)
    # Landlock doesn't ask who is spoken to by a path, and whoever answers there (the user's own service manager, say)
    # does so outside of it: a runner without a root of its own has pairs only, that can't send elsewhere. A GPU's
    # runner takes the device's memory by such a socket.
    paired = bare and not memfd
    unless_argument(_SOCKET, [] if paired else [_AF_UNIX])
    if paired:
        code.append((0x15, 0, 8, _SOCKETPAIR[column]))
        load(16)
        code.append((0x15, 0, 4, _AF_UNIX))
        load(24)
        code.append((0x54, 0, 0, 0xF))
        code.append((0x15, 2, 0, SOCK_STREAM))
        code.append((0x15, 1, 0, SOCK_SEQPACKET))
        give(refuse)
        give(allow)
    else:
        unless_argument(_SOCKETPAIR, [_AF_UNIX])
    if bare:
        for pair in () if scoped else (_KILL, _TGKILL, _SIGQUEUE, _TGSIGQUEUE):
            unless_argument(pair, [own_pid])
        for pair in (_PRLIMIT, _AFFINITY):
            unless_argument(pair, [0, own_pid])
        code.append((0x15, 0, 7, _SETPRIORITY[column]))  # its own, as in a namespace; never all of its user's
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
    """Apply the filter to this process and everything it starts."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    held = ctypes.create_string_buffer(program, len(program))
    told = Program(len(program) // 8, ctypes.cast(held, ctypes.c_void_p))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    libc_call("prctl", PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(told), ctypes.c_ulong(0), ctypes.c_ulong(0))
