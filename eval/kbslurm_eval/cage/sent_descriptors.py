"""Descriptors on their way through a runner's sockets: what they stand for (files, pipes, pollers) is in nobody's list
of open files, and so in no count."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from kbslurm_eval.cage.rationed import Rationed

MOST = 32  # Python's own way of handing one on takes each at once
TOO_MANY = f"the submission has more than {MOST} open files on their way through sockets"


class SentDescriptors:
    """Whether one runner has too many of them, as of the last look."""

    def __init__(self) -> None:
        self._looks = Rationed()
        self.too_many = False

    def look(self, pids: Iterable[int]) -> bool:
        """Whether these processes' sockets hold more than anybody needs, together."""
        if not self.too_many and self._looks.is_due:
            with self._looks.look():
                self.too_many = sum(map(_sent_by, pids)) > MOST
        return self.too_many


def _sent_by(pid: int) -> int:
    many = 0
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError):
                if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                        many += sum(int(line.split()[1]) for line in file if line.startswith(b"scm_fds:"))
    return many
