"""A job that is offered to a place whose nodes call us: who may start it, and what its node has said.

A place like Ray may start the same job twice, forget it, or take a living one for dead. So the right to start it is one
row of ours: `offered`, then either claimed by exactly one process or forbidden, never both. What the place says is
evidence of nothing that this row doesn't allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kbslurm.domain.run import JobName

# A node that hasn't been heard for its lease ends its run itself; two clocks and a kill take a little longer.
LEASE_MARGIN_S = 30.0


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """The row. `lease_s`: a claimed job that its node hasn't told of for so long has ended, by its node's own promise.
    `node`: which one says it has it. `reported`: its sealed result is here."""

    name: JobName
    place: str
    lease_s: float
    offered_at: datetime
    forbidden_at: datetime | None = None
    claimed_at: datetime | None = None
    heard_at: datetime | None = None
    node: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    reported: bool = False

    @property
    def can_start(self) -> bool:
        """Whether a process may still claim it."""
        return self.claimed_at is None and self.forbidden_at is None

    def is_silent(self, now: datetime) -> bool:
        """Whether the process that claimed it can't be running any more: it ends itself when it isn't heard."""
        if self.claimed_at is None:
            return False
        return (now - (self.heard_at or self.claimed_at)).total_seconds() > self.lease_s + LEASE_MARGIN_S
