"""Where what processes share by name lies, at isolation level 1: files in the launch's own folder."""

from __future__ import annotations

import errno
import os

FOLDER = ".shm"
LONGEST = 255
folder = ""  # set once, by `sharing.install`


def path_of(kind: str, name: str) -> str:
    """The file of what is shared under this name, which has the bounds that it has in /dev/shm."""
    bare = name.lstrip("/")
    if not bare or "/" in bare:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
    if len(bare) + len(kind) + 1 > LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, f"{kind}.{bare}")
