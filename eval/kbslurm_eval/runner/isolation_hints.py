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

_NEXT = "`kbslurm try` on a machine that allows user namespaces has them, and so has a site"
NAMED = (
    "compiled code gets no memory or semaphores shared by name at isolation level 1, because it would find them in "
    f"/dev/shm, where every run on this machine looks; {_NEXT}"
)
SOCKETS = (
    "there are no sockets to connect to at isolation level 1 (so no Manager, Listener or server), because others on "
    f"this machine could answer; {_NEXT}"
)
FILES = (
    "at isolation level 1 a submission writes to its own folder only ($TMPDIR, which tempfile uses), because what it "
    "left elsewhere other runs on this machine would find"
)
SIGNALS = (
    "at isolation level 1 a submission can't signal its own processes on a Linux before 6.12 (those of multiprocessing "
    f"apart), because that wouldn't keep the signals from others'; {_NEXT}"
)
ANOTHERS = (
    "a submission signals its own processes only, and continues none of them (SIGCONT), because its judge stops them "
    "between two calls"
)
PINS = (
    "at isolation level 1 a process chooses its own cores only, as os.sched_setaffinity(0, cores) does, because others "
    "of its user could be moved to the core that is measured"
)
_DENIED = (errno.EPERM, errno.EACCES)
_BY_NAME = re.compile(r"/dev/shm|shared memory|\bshm_open|\bsem_open|\bshm\b", re.IGNORECASE)
_SAYS_DENIED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_KILLS = re.compile(r"\b(kill|killpg|raise_signal|pthread_kill|send_signal)\(")
_PINS = re.compile(r"\b(sched_setaffinity|cpu_affinity)\(")
_SOCKET_PY = re.compile(r'File "[^"]*\bsocket\.py"')
_MOST = 8


def said(error: BaseException) -> str:
    """The sentence for this exception, or nothing."""
    for one in _behind(error):
        if sentence := _of(one):
            return sentence
    return ""


def _behind(error: BaseException | None) -> Iterator[BaseException]:
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
