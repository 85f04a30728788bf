"""What a check of one site needs: the site, how its commands are run, and how long to wait for its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbslurm.backends.slurm.commands import Commands
from kbslurm.domain.site import Site
from kbslurm.flow.script import Charged

NODE_WAIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """One check of a site. `boards`: by GPU type, the isolation that each requires for a run to rank. `clock` is
    the wall clock in seconds, `sleep` how waiting is done. `charged`: whose account pays for the probes where each
    person's own does."""

    site: Site
    commands: Commands
    templates: Path
    eval_dir: Path
    boards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wait_s: float = NODE_WAIT_S
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    charged: Charged | None = None
