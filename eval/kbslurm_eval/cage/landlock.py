"""Landlock: where a runner may read and write when no mount namespace of its own says so (isolation level 1).

It holds for ordinary users as it does for root, for the process that asked for it and all that it starts. What it
can't hold are a file's mode, owner and times, where the runner's user owns the file; sockets with a path, watches and
attributes, which the filter of system calls refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable

CREATE, ADD, RESTRICT = 444, 445, 446  # the same numbers on every architecture
_ABI_ASKED = 1
_BENEATH = 1
(
    EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK,
    MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV,
) = (1 << n for n in range(16))  # fmt: skip
_SINCE = {1: 13, 2: 14, 3: 15, 4: 15}  # how many of these each ABI version knows; later versions know all
TRUNCATES = 3  # the first version that restricts truncating files
SCOPES, SCOPED_SINCE = 0b11, 6  # other processes' abstract sockets, and signals to them
READ = EXECUTE | READ_FILE | READ_DIR
USE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
OWN = 0xFFFF & ~(MAKE_CHAR | MAKE_BLOCK)
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def version() -> int:
    """This kernel's Landlock version; 0 without Landlock."""
    return max(0, int(_libc.syscall(ctypes.c_long(CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(_ABI_ASKED))))


def keeps_signals() -> bool:
    """Whether a fenced process can only signal processes in the same fence."""
    return version() >= SCOPED_SINCE


def put_on(rules: Iterable[tuple[str, int]]) -> bool:
    """From here on only what these rules (a path, and the rights at it and below) allow; False where the kernel has no
    Landlock. Privileges that can be gained must have been given up (PR_SET_NO_NEW_PRIVS)."""
    known = version()
    if not known:
        return False
    handled = (1 << _SINCE.get(known, 16)) - 1
    told = struct.pack("<QQQ", handled, 0, SCOPES if known >= SCOPED_SINCE else 0)
    size = 8 if known < 4 else 16 if known < SCOPED_SINCE else 24
    fence = _asked(CREATE, told, ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        for path, rights in rules:
            _allow(fence, path, rights & handled)
        _asked(RESTRICT, ctypes.c_int(fence), ctypes.c_uint(0))
    finally:
        os.close(fence)
    return True


def _allow(fence: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            _asked(ADD, ctypes.c_int(fence), ctypes.c_int(_BENEATH), struct.pack("<Qi", rights, fd), ctypes.c_uint(0))
        finally:
            os.close(fd)


def _asked(number: int, *args: object) -> int:
    ctypes.set_errno(0)
    done = int(_libc.syscall(ctypes.c_long(number), *args))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return done
