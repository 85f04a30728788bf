"""Removing folders that strangers could write to, whatever they made of them.

The library's own way goes down into folders within folders by calling itself, and ends in an error of its own where
there are a thousand of them; what it can't name, enter or open it leaves. This one takes every folder inside out, up to
the top, and so needs neither depth nor long paths; it follows no link and gives itself the rights that it needs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST = 4_000_000  # of files and folders: a bound for this loop, far beyond what any of our file systems hold
LOOKED_AT = 10_000  # of what lies where everybody may write: a tenth of a second


def leftovers(where: Path) -> Iterator[Path]:
    """Our own folders `kb-…` where everybody may write. Others may have put anything there, and as much as they like:
    no link is followed, of theirs nothing is entered, and what is behind thousands of names is another time's."""
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in islice(entries, LOOKED_AT):
            if entry.name.startswith("kb-") and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                        yield Path(entry.path)


def remove(path: str | Path) -> bool:
    """Nothing of it is left, or as little as can be: whether it is gone. Nobody may write to it meanwhile."""
    name = os.fspath(path)
    try:
        kind = os.lstat(name).st_mode
        if not stat.S_ISDIR(kind):
            os.unlink(name)
            return True
        _emptied(name)
        os.rmdir(name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _emptied(name: str) -> None:
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700)
    top = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mark, count = f".kb-{secrets.token_hex(8)}-", 0
        waiting = _files_removed(top)
        while waiting and count < MOST:
            inner = waiting.pop()
            with contextlib.suppress(OSError):
                os.chmod(inner, 0o700, dir_fd=top)  # seen to be a folder, and nobody is left who could change that
                fd = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
                try:
                    for below in _files_removed(fd):
                        count += 1
                        with contextlib.suppress(OSError):
                            os.chmod(below, 0o700, dir_fd=fd)  # who can't be written to can't be moved
                            os.rename(below, f"{mark}{count}", src_dir_fd=fd, dst_dir_fd=top)
                            waiting.append(os.fsencode(f"{mark}{count}"))
                finally:
                    os.close(fd)
                os.rmdir(inner, dir_fd=top)
    finally:
        os.close(top)


def _files_removed(fd: int) -> list[bytes]:
    """Remove everything in this folder but folders: which these are."""
    folders = []
    for name in map(os.fsencode, os.listdir(fd)):
        try:
            os.unlink(name, dir_fd=fd)
        except OSError:
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    folders.append(name)
    return folders
