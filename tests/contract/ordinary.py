"""A user whom the modes of files mean something to."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kbslurm_eval.shared import remove_tree

T = TypeVar("T")
NOBODY = 65534


@contextlib.contextmanager
def user(prepared: Callable[[Path], T]) -> Iterator[T]:
    """What was prepared in a folder of an ordinary user's, whom we are for so long: root is nobody meanwhile, in what
    it starts as well.

    That user removes the folder, whatever was locked in it: what only root can remove was left by mistake.
    """
    was = os.getresuid()
    place = Path(tempfile.mkdtemp(prefix="kbslurm-test-", dir="/tmp"))  # where nobody can reach it
    try:
        found = prepared(place)  # nobody may be unable to read the checkout
        if was[1] == 0:
            for path in (place, *place.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, 0)
        yield found
    finally:
        removed = remove_tree.remove(place)
        os.setresuid(-1, was[1], -1)
        os.setresuid(*was)
        remove_tree.remove(place)
        assert removed, "its own user can't remove it"


def python() -> Path:
    """A Python that this user may run: a virtual environment's own may lie in the home of root."""
    found = [sys.executable, *filter(None, [shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")])]
    return next(Path(one) for one in found if os.access(one, os.X_OK))
