"""What a killed attempt leaves on a Ray node, in processes and in memory. Part of what the service sends to a node.

As long as an attempt's supervisor lives, it ends and removes all of it itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbslurm.backends.local import supervise


def adopt() -> None:
    """From now on processes whose parents ended come to this one."""
    supervise.prctl(supervise.PR_SET_CHILD_SUBREAPER, 1)


def end(order: Mapping[str, Any]) -> None:
    """Somebody killed the supervisor of this order: end what has come to us, and remove what that would have
    removed."""
    wake, kept = os.pipe2(os.O_CLOEXEC)
    supervise.kill_tree(supervise.Watch(0.0), wake)
    os.close(wake)
    os.close(kept)
    supervise.clear(dict(order), supervise.CLEARING_S)


def remove(folder: Path) -> None:
    """A folder of attempts of which nobody lives any more, and what they left in memory. What can't be removed in time
    is the next one's, which needs the order in this folder to find it."""
    if all(_remove_from_memory(attempt) for attempt in folder.iterdir()):
        supervise.remove(str(folder), time.monotonic() + supervise.CLEARING_S)


def _remove_from_memory(attempt: Path) -> bool:
    """The order in its folder names the place. Whether nothing is there any more."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        work = json.loads((attempt / "order.json").read_bytes())["work"]
        looks = os.lstat(work)
        if stat.S_ISDIR(looks.st_mode) and looks.st_uid == os.getuid():
            return supervise.remove(work, time.monotonic() + supervise.CLEARING_S)
    return True
