"""[daemon] and [daemon.local]: the daemon's intervals and folders, and runs on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kbslurm.config.sections.checks import listen_address, slots_by_gpu
from kbslurm.errors import Invalid


def _place_name(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,99}", text):
        raise Invalid(
            f"{text!r} isn't a valid name for a place", hint="Use letters and digits, and @ . _ - in between."
        )
    return text


@dataclass(frozen=True, kw_only=True)
class LocalSection:
    """Runs on this machine: one process per slot."""

    slots: Mapping[str, int] = field(
        default_factory=dict, metadata={"doc": "How many runs at the same time, by GPU type.", "check": slots_by_gpu}
    )
    staff_only: bool = field(default=False, metadata={"doc": "Only the hosts' own submissions run here."})
    name: str = field(
        default="",
        metadata={
            "doc": "This machine's name as a place; empty: local, or local@HOST with a DATABASE_URL."
            " Only daemons that share host and state folder may share it.",
            "check": _place_name,
        },
    )
    profiler: Literal["none", "ncu", "rocprof"] = field(
        default="none",
        metadata={"doc": "What profiles a GPU here besides torch and Python: Nsight Compute, or ROCm's rocprofv3."},
    )


@dataclass(frozen=True, kw_only=True)
class DaemonSection:
    """The daemon process."""

    tick_s: float = field(
        default=30.0,
        metadata={"doc": "Read the database at least this often, even without notifications.", "least": 0.05},
    )
    poll_s: float = field(
        default=15.0, metadata={"doc": "How often places without their own interval are checked.", "least": 0.05}
    )
    lease_ttl_s: float = field(
        default=15.0,
        metadata={"doc": "A standby takes over when the leader has been silent for this long.", "least": 1.0},
    )
    state_dir: Path | None = field(
        default=None,
        metadata={"doc": "Attempts' directories and the embedded database; default: the user's state folder."},
    )
    metrics: str = field(
        default="", metadata={"doc": "Host and port for Prometheus; empty: off.", "check": listen_address}
    )
    local: LocalSection = field(default_factory=LocalSection)
