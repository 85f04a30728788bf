"""What the cage refuses at every isolation level: said beside the error of a submission that met it.

Inside the runner, about its own exceptions, for its author: no verdict rests on it. `isolation_hints` has what only
level 1 refuses.
"""

from __future__ import annotations

import errno
import linecache
import os
import re
import resource
import socket
import traceback

from kbslurm_eval.runner.isolation_hints import behind

NETWORK = "submissions have no network: put what yours needs into its own files"
WRITES = "a submission can only write to its own folder ($TMPDIR, which tempfile uses); all else is read-only"
FULL = "the memory that holds a submission's own files is full"
POLLED = "this node has no room left for another descriptor in a poller"
LOOKS = "no process of a submission may look into another or trace it"
SPACES = "a submission keeps the namespaces and mounts that it was started with"
MEMFD = "nameless memory isn't counted; use multiprocessing.shared_memory, or a file in $TMPDIR"
TIMERS = "the kernel would wake a process with them that the judge has stopped; time.sleep and threads work"
KERNEL = "no kernel of the contest needs it, and others were attacked with it"
WHY = {
    "memfd_create": MEMFD, "memfd_secret": MEMFD, "shmget": MEMFD,
    "ptrace": LOOKS, "process_vm_readv": LOOKS, "process_vm_writev": LOOKS, "pidfd_getfd": LOOKS, "kcmp": LOOKS,
    "unshare": SPACES, "setns": SPACES, "mount": SPACES, "umount": SPACES, "umount2": SPACES, "chroot": SPACES,
    "pivot_root": SPACES, "sethostname": SPACES, "timer_create": TIMERS, "timerfd_create": TIMERS,
    "perf_event_open": KERNEL, "bpf": KERNEL, "userfaultfd": KERNEL, "io_uring_setup": KERNEL, "keyctl": KERNEL,
}  # fmt: skip
_NAMED = re.compile(rf"\b({'|'.join(WHY)})\b")
_OFFLINE = re.compile(
    r"name resolution|Name or service not known|Network is unreachable|nodename nor servname"
    r"|Could not resolve host|No address associated with hostname"
)
_NO_MORE = re.compile(r"can't start new thread|Resource temporarily unavailable|pthread_create failed")
_UNREACHABLE = (errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
_DENIED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_LINES = 4  # how far above the line that raised it a system call may be named


def said(error: BaseException) -> str:
    """The sentence for this exception, or nothing."""
    for one in behind(error):
        if sentence := _of(one):
            return sentence
    return ""


def _of(error: BaseException) -> str:
    text, frames = str(error), traceback.extract_tb(error.__traceback__)
    code = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror) or code in _UNREACHABLE or _OFFLINE.search(text):
        return NETWORK
    if isinstance(error, BlockingIOError | RuntimeError) and _NO_MORE.search(text):
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        return f"a submission may have at most {most} processes and threads at once" if most > 0 else ""
    path = getattr(error, "filename", None)
    match code:
        case errno.EFBIG:
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            return f"a file of a submission may have at most {most >> 20} MiB"
        case errno.ENOSPC:
            return POLLED if frames and os.path.basename(frames[-1].filename) == "selectors.py" else FULL
        case errno.EMFILE:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return f"a submission may have at most {most} files open at once"
        case errno.EROFS:
            return WRITES
        case _:
            pass
    if code not in _DENIED or not frames or path is not None:
        return ""
    if os.path.basename(frames[-1].filename) == "socket.py":
        return NETWORK if _wants_network(error) else ""
    lines = (linecache.getline(frames[-1].filename, (frames[-1].lineno or 0) - n) for n in range(_LINES))
    found = next((named for line in lines if (named := _NAMED.search(line))), None)
    return f"the system call {found[1]} is refused: {WHY[found[1]]}" if found else ""


def _wants_network(error: BaseException) -> bool:
    """Whether the socket that was asked for isn't one with a path."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_locals.get("family") != socket.AF_UNIX
