"""`_multiprocessing` for a runner that has no /dev/shm of its own: the same semaphores, kept in the launch's folder.

A semaphore is the C library's (`sem_init`, shared between processes) in a page that processes map: one without a name
in memory that only descendants share, one with a name in a file. What Python's own type promises holds here, too:
kinds, bounds, who owns a lock, signals that come while one is waited for.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import time
from _thread import get_ident
from collections.abc import Callable
from typing import Any, Self

from kbslurm_eval.runner import named_files

RECURSIVE_MUTEX, SEMAPHORE = 0, 1
SEM_VALUE_MAX = 2**31 - 1

_SHARED_ANONYMOUS = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_NOWHERE = ctypes.c_void_p(-1).value


class _Page:
    """A page that processes share. Python's own mappings each hold a descriptor, and a runner has a thousand only."""

    def __init__(self, fd: int = -1) -> None:
        flags = _SHARED_ANONYMOUS if fd < 0 else mmap.MAP_SHARED
        self.at = 0
        at = _libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if at is None or at == _NOWHERE:
            raise _error(ctypes.get_errno())
        self.at = int(at)

    def __del__(self, munmap: Any = _libc.munmap, size: int = mmap.PAGESIZE, pointer: Any = ctypes.c_void_p) -> None:
        if self.at:
            munmap(pointer(self.at), pointer(size))


class _Moment(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _call(name: str, *more: Any) -> Callable[..., int]:
    """The C library's, for the semaphore at an address: 0, or the number of the error."""
    call = getattr(_libc, name)
    call.argtypes = [ctypes.c_void_p, *more]
    return lambda *args: ctypes.get_errno() if call(*args) else 0


_init, _getvalue = _call("sem_init", ctypes.c_int, ctypes.c_uint), _call("sem_getvalue", ctypes.c_void_p)
_trywait, _wait, _post = _call("sem_trywait"), _call("sem_wait"), _call("sem_post")
_timedwait = _call("sem_timedwait", ctypes.c_void_p)


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class SemLock:
    """A semaphore, or a lock that its owner may take again, that processes share."""

    SEM_VALUE_MAX = SEM_VALUE_MAX

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        if kind not in (RECURSIVE_MUTEX, SEMAPHORE):
            raise ValueError("unrecognized kind")
        # nobody can come to know a name that is gone at once: no file is needed then
        page = _made(value) if unlink else _named(name, value)
        self._hold(page, page.at, kind, maxvalue, None if unlink else name)

    def _hold(self, page: _Page | None, handle: int, kind: int, maxvalue: int, name: str | None) -> None:
        self._page, self.handle = page, handle  # the mapping goes when this object does
        self.kind, self.maxvalue, self.name = kind, maxvalue, name
        self._taken, self._owner = 0, 0

    @classmethod
    def _rebuild(cls, handle: int, kind: int, maxvalue: int, name: str | None) -> Self:
        page = None if name is None else _opened(name)
        self = cls.__new__(cls)
        self._hold(page, handle if page is None else page.at, kind, maxvalue, name)
        return self

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Whether it could be had, at once or in time."""
        if self.kind == RECURSIVE_MUTEX and self._is_mine():
            self._taken += 1
            return True
        until = None if timeout is None else _in(timeout)
        while (code := _trywait(self.handle)) == errno.EINTR:
            pass
        if code == errno.EAGAIN and block:
            # handlers of signals run between two rounds, and what they raise ends the waiting
            while (code := self._waited(until)) == errno.EINTR:
                pass
        if code in (errno.EAGAIN, errno.ETIMEDOUT):
            return False
        if code:
            raise _error(code)
        self._owner = get_ident()  # before it counts: the last owner, another thread, would take it for its own
        self._taken += 1
        return True

    def _waited(self, until: _Moment | None) -> int:
        if until is None:
            return _wait(self.handle)
        return _timedwait(self.handle, ctypes.byref(until))

    def release(self) -> None:
        """One more may have it."""
        if self.kind == RECURSIVE_MUTEX:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._taken > 1:
                self._taken -= 1
                return
        elif self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._taken -= 1  # before the next owner counts its own
        if code := _post(self.handle):
            self._taken += 1
            raise _error(code)

    def _count(self) -> int:
        return self._taken

    def _is_mine(self) -> bool:
        return self._taken > 0 and self._owner == get_ident()

    def _get_value(self) -> int:
        value = ctypes.c_int()
        if code := _getvalue(self.handle, ctypes.byref(value)):
            raise _error(code)
        return max(0, value.value)

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._taken = 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *args: object) -> None:
        self.release()


def sem_unlink(name: str) -> None:
    """Nobody else finds it by this name any more."""
    os.unlink(named_files.path_of("sem", name))


def _made(value: int, fd: int = -1) -> _Page:
    if not 0 <= value <= SEM_VALUE_MAX:
        raise _error(errno.EINVAL)
    page = _Page(fd)
    if code := _init(page.at, 1, value):
        raise _error(code)
    return page


def _named(name: str, value: int) -> _Page:
    """A new one. It gets its name when it is complete: nobody opens one that has no value yet."""
    path = named_files.path_of("sem", name)
    draft = named_files.path_of("new", secrets.token_hex(8))
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, mmap.PAGESIZE)
        page = _made(value, fd)
        os.link(draft, path)
        return page
    finally:
        os.close(fd)
        os.unlink(draft)


def _opened(name: str) -> _Page:
    fd = os.open(named_files.path_of("sem", name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _Page(fd)
    finally:
        os.close(fd)


def _in(seconds: float) -> _Moment:
    at_ns = time.time_ns() + int(max(0.0, seconds) * 1e9)
    return _Moment(at_ns // 1_000_000_000, at_ns % 1_000_000_000)
