"""What is said beside an error that comes of the fence at isolation level 1, and that nothing is said of others."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kbslurm_eval.cage import seen_inside
from kbslurm_eval.runner import isolation_hints, refusals

DENIED = "PermissionError: [Errno 1] Operation not permitted"
TORCH = "unable to open shared memory object </torch_12_34_0> in read-write mode: Permission denied (13)"


def raised(error: BaseException) -> Callable[[], NoReturn]:
    def again() -> NoReturn:
        raise error

    return again


def denied(code: int, *path: str) -> OSError:
    return OSError(code, os.strerror(code), *path)


def behind(outer: Exception, inner: Exception) -> Callable[[], NoReturn]:
    def again() -> NoReturn:
        try:
            raise inner
        except Exception:
            raise outer from None

    return again


def signalling() -> NoReturn:
    raise denied(errno.EPERM)  # as a line with os.kill(pid, number) would


def pinning() -> NoReturn:
    raise denied(errno.EPERM)  # as a line with os.sched_setaffinity(pid, cores) would


class RemoteTraceback(Exception):
    """As `multiprocessing.pool` hands on what a worker met."""


def no_socket(family: int) -> Callable[[], NoReturn]:
    """As Python's own `socket.socket` ends where the filter refuses it."""
    library: dict[str, Callable[[int, OSError], NoReturn]] = {}
    exec(compile("def made(family, error):\n    raise error", "/usr/lib/python3/socket.py", "exec"), library)
    return lambda: library["made"](family, denied(errno.EPERM))


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (raised(RuntimeError(TORCH)), isolation_hints.NAMED),
        (raised(denied(errno.EACCES, "/dev/shm/of-its-own")), isolation_hints.FILES),
        (raised(RuntimeError(f"Caught RuntimeError in DataLoader worker process 0.\n{TORCH}")), isolation_hints.NAMED),
        (behind(ValueError("no"), RuntimeError(TORCH)), isolation_hints.NAMED),
        (raised(denied(errno.EACCES, "/nowhere/else")), isolation_hints.FILES),
        (signalling, isolation_hints.ANOTHERS),
        (pinning, isolation_hints.PINS),
        (
            behind(ValueError("no"), RemoteTraceback(f'  File "/usr/lib/socket.py", line 1\n{DENIED}')),
            isolation_hints.SOCKETS,
        ),
        (behind(ValueError("no"), RemoteTraceback(f'  File "/usr/lib/pool.py", line 1\n{DENIED}')), ""),
        (no_socket(socket.AF_UNIX), isolation_hints.SOCKETS),
        (no_socket(socket.AF_INET), ""),
        (raised(denied(errno.EACCES, "/etc/passwd")), ""),
        (raised(denied(errno.ENOSPC, "/dev/shm/x")), ""),
        (raised(RuntimeError("shared memory is too small")), ""),
        (raised(ValueError("Permission denied")), ""),
        (raised(EOFError("the end")), ""),
        (raised(denied(errno.EPERM)), ""),
    ],
)
def test_the_sentence_is_the_one_for_this_error(call: Callable[[], None], sentence: str) -> None:
    with pytest.raises(Exception) as found:
        call()
    assert isolation_hints.said(found.value) == sentence


def memfd_create() -> NoReturn:
    raise denied(errno.EPERM)  # as a line with os.memfd_create(name) would


def ptrace() -> NoReturn:
    found = -1  # libc.ptrace(PTRACE_ATTACH, pid, 0, 0)
    raise denied(errno.EPERM) if found else AssertionError


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (no_socket(socket.AF_INET), refusals.NETWORK),
        (no_socket(socket.AF_UNIX), ""),
        (raised(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")), refusals.NETWORK),
        (behind(ValueError("no"), denied(errno.ENETUNREACH)), refusals.NETWORK),
        (
            raised(RuntimeError("Connection: Temporary failure in name resolution")),
            refusals.NETWORK,
        ),
        (raised(denied(errno.EROFS, "/usr/x")), refusals.WRITES),
        (raised(denied(errno.ENOSPC, "x")), refusals.FULL),
        (memfd_create, f"the system call memfd_create is refused: {refusals.MEMFD}"),
        (ptrace, f"the system call ptrace is refused: {refusals.LOOKS}"),
        (raised(denied(errno.EACCES, "/etc/shadow")), ""),
        (raised(denied(errno.EPERM)), ""),
        (raised(ValueError("at most 3 files")), ""),
    ],
)
def test_at_every_level_a_refusal_says_what_it_is(call: Callable[[], None], sentence: str) -> None:
    with pytest.raises(Exception) as found:
        call()
    assert refusals.said(found.value) == sentence


def test_a_limit_is_told_with_its_number() -> None:
    for error, said in (
        (RuntimeError("can't start new thread"), "processes and threads at once"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "processes and threads at once"),
        (denied(errno.EMFILE), "files open at once"),
    ):
        assert said in refusals.said(error) or "-1" in str(error), error


def test_where_the_filter_refuses_signals_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_inside, "may_signal_its_own", lambda: False)
    with pytest.raises(OSError) as found:
        signalling()
    assert isolation_hints.said(found.value) == isolation_hints.SIGNALS


def test_one_in_its_own_folder_is_its_own_affair(own: Path) -> None:
    with pytest.raises(OSError) as found:
        raised(denied(errno.EACCES, f"{own}/x"))()
    assert isolation_hints.said(found.value) == ""


def test_every_sentence_is_one_and_says_why_and_what_next() -> None:
    for sentence in (isolation_hints.NAMED, isolation_hints.SOCKETS, isolation_hints.FILES, isolation_hints.SIGNALS):
        assert "level 1" in sentence and sentence.isprintable() and not sentence.endswith(".")
        assert "because" in sentence or "which wouldn't" in sentence
        assert "kbslurm try" in sentence or "$TMPDIR" in sentence
