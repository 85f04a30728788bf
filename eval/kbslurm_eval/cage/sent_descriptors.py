"""Descriptors on their way through a runner's sockets: what they stand for (files, pipes, pollers) is in nobody's list
of open files, and so in no count."""

from __future__ import annotations

from collections.abc import Iterable

from kbslurm_eval.cage import seen_processes
from kbslurm_eval.cage.rationed import ASKED_SHARE, SHARE, Rationed
from kbslurm_eval.cage.seen_processes import Lookout

MOST = 32  # Python's own way of handing one on takes each at once
TOO_MANY = f"the submission has more than {MOST} open files on their way through sockets"


class SentDescriptors:
    """Whether one runner has too many of them, as of the last look."""

    def __init__(self, lookout: Lookout | None = None) -> None:
        self._looks, self._lookout = Rationed(ASKED_SHARE if lookout else SHARE), lookout
        self.too_many = False

    def look(self, pids: Iterable[int]) -> bool:
        """Whether these processes' sockets hold more than anybody needs, together."""
        if not self.too_many and self._looks.is_due:
            with self._looks.look():
                told = seen_processes.lines(pids, "scm_fds", self._lookout)
                self.too_many = sum(int(line.split()[1]) for line in told) > MOST
        return self.too_many
