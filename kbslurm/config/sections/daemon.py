"""[daemon] and [daemon.local]: how often the daemon looks, where it keeps files, and runs on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbslurm.config.sections.checks import listen_address, slots_by_gpu
from kbslurm.errors import Invalid


def _place_name(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,99}", text):
        raise Invalid(f"{text!r} can't be a place's name", hint="Letters, digits, and @ . _ - in between.")
    return text


@dataclass(frozen=True, kw_only=True)
class LocalSection:
    """Runs on this very machine: one process per slot."""

    slots: Mapping[str, int] = field(
        default_factory=dict, metadata={"doc": "How many runs at once, by GPU type.", "check": slots_by_gpu}
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run here."})
    name: str = field(
        default="",
        metadata={
            "doc": "What runs of this machine are filed under; empty: local, or local@HOST with a DATABASE_URL."
            " Only daemons that share host and state folder may share it.",
            "check": _place_name,
        },
    )


@dataclass(frozen=True, kw_only=True)
class DaemonSection:
    """The one process that walks the rows."""

    tick_s: float = field(
        default=30.0, metadata={"doc": "A look at the rows at least this often, should no news come.", "least": 0.05}
    )
    poll_s: float = field(
        default=15.0, metadata={"doc": "How often places without a rhythm of their own are looked at.", "least": 0.05}
    )
    lease_ttl_s: float = field(
        default=15.0, metadata={"doc": "A standby takes over when the leader was silent for so long.", "least": 1.0}
    )
    state_dir: Path | None = field(
        default=None,
        metadata={"doc": "Attempts' directories and the embedded database; default: the user's state folder."},
    )
    metrics: str = field(
        default="", metadata={"doc": "Host and port for Prometheus; empty: none.", "check": listen_address}
    )
    local: LocalSection = field(default_factory=LocalSection)
