"""What isn't to be had at isolation level 1, why, and where it is: said beside the error of a submission that met it.

Inside the runner, about its own exceptions, for its author: no verdict rests on it. Where an error only might come of
the fence nothing is said.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator

_NEXT = "it works where user namespaces are allowed: on a site, or with `kbslurm try` on such a machine"
NAMED = (
    "at isolation level 1 compiled code can't share memory or semaphores by name, because every run on this machine "
    f"could open them in /dev/shm; {_NEXT}"
)
SOCKETS = (
    "at isolation level 1 sockets can't connect (so there is no Manager, Listener or server), because others on this "
    f"machine could answer; {_NEXT}"
)
FILES = (
    "at isolation level 1 a submission can only write to its own folder ($TMPDIR, which tempfile uses), because other "
    "runs on this machine would find what it left elsewhere"
)
SIGNALS = (
    "at isolation level 1 a submission can't signal its own processes before Linux 6.12 (except multiprocessing's), "
    f"because the kernel couldn't keep it from signalling others'; {_NEXT}"
)
ANOTHERS = (
    "a submission may only signal its own processes, and not continue them (SIGCONT), because the judge stops them "
    "between calls"
)
PINS = (
    "at isolation level 1 a process may only choose its own cores, as os.sched_setaffinity(0, cores) does, because "
    "other processes could be moved onto the core that is being measured"
)
CROWDED = (
    "at isolation level 1 the kernel counts all of this user's processes and threads together, so other runs on this "
    f"machine may have used up the limit; {_NEXT}"
)
_DENIED = (errno.EPERM, errno.EACCES)
_BY_NAME = re.compile(r"/dev/shm|shared memory|\bshm_open|\bsem_open|\bshm\b", re.IGNORECASE)
_SAYS_DENIED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_STARTS = re.compile(r"\b(fork|forkpty|_fork_exec|fork_exec|posix_spawn)\(")
_KILLS = re.compile(r"\b(kill|killpg|raise_signal|pthread_kill|send_signal)\(")
_PINS = re.compile(r"\b(sched_setaffinity|cpu_affinity)\(")
_SOCKET_PY = re.compile(r'File "[^"]*\bsocket\.py"')
_MOST = 8


def said(error: BaseException) -> str:
    """The sentence for this exception, or nothing."""
    for one in behind(error):
        if sentence := _of(one):
            return sentence
    return ""


def behind(error: BaseException | None) -> Iterator[BaseException]:
    """This exception and those that it came of."""
    for _ in range(_MOST):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _of(error: BaseException) -> str:
    text, frames = str(error), traceback.extract_tb(error.__traceback__)
    refused = isinstance(error, OSError) and error.errno in _DENIED
    if type(error).__name__ == "RemoteTraceback":  # what a worker met: its frames are text by now
        if _SAYS_DENIED.search(text) and _SOCKET_PY.search(text):
            return SOCKETS
        text = text.strip('\n"').rpartition("\n")[2]
    if "can't start new thread" in text or (
        isinstance(error, BlockingIOError) and frames and _STARTS.search(frames[-1].line or "")
    ):
        return CROWDED
    with_path = isinstance(error, OSError) and error.filename is not None  # a plain file: no library would say which
    if (refused or _SAYS_DENIED.search(text)) and _BY_NAME.search(text) and not with_path:
        return NAMED
    if isinstance(error, EOFError) and any(_is(frame, "managers.py", "start") for frame in frames):
        return SOCKETS  # its server, another process, was refused the socket
    if not refused or not frames or not isinstance(error, OSError):
        return ""
    last = frames[-1]
    if isinstance(error.filename, str | bytes):
        own = os.path.realpath(os.environ.get("TMPDIR", "/tmp"))
        path = os.path.realpath(os.fsdecode(error.filename))
        return "" if os.path.commonpath((own, path)) == own or os.path.exists(path) else FILES
    if os.path.basename(last.filename) == "socket.py":
        return SOCKETS if _family(error) == 1 else ""  # those of a network are nowhere to be had
    if _PINS.search(last.line or ""):
        return PINS
    if not _KILLS.search(last.line or ""):
        return ""
    from kbslurm_eval.cage import seen_inside

    return ANOTHERS if seen_inside.may_signal_its_own() else SIGNALS


def _family(error: BaseException) -> object:
    """Of the socket that was asked for; 1 are those with a path."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace and trace.tb_frame.f_locals.get("family")


def _is(frame: traceback.FrameSummary, file: str, function: str) -> bool:
    return os.path.basename(frame.filename) == file and frame.name == function
