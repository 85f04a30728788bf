"""A place where jobs run, as the flow sees it: a backend, and our settings for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbslurm.domain.breaker import CLOSED, Breaker
from kbslurm.domain.keepers import STARTS_WITHIN_S, Keeper, Warm
from kbslurm.domain.physics import Peak
from kbslurm.domain.placement import PlaceRole, PlaceView
from kbslurm.domain.run import Work
from kbslurm.ports import Backend

ScriptWriter = Callable[[Work, Path, float], str]
"""The job script of (work, attempt directory, time limit in seconds), if the backend needs one."""

KeeperWriter = Callable[[Keeper, Path], str]
"""The job script of (keeper, its directory)."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A backend and its settings.

    `root`: the folder of its attempts' directories, if they are on a file system shared with us. `poll_s`: how often we
    check open attempts. `grace_s`: how long after the job's end a report may still arrive (shared file systems are
    slow). `sweep_gap_s`: the time between the two clean sweeps of law 2. `patience_s`: how long a job may wait there to
    be started. `stray_s`: how long we wait for a job that still runs after its deadline. `keep_s`: how long files of
    finished attempts are kept. `ranked_min_isolation`: the minimum for a run from here to rank; a board may require
    more. `peaks`: what one of its GPUs can do, by type. `widest`: how many GPUs one run may have, by type, if limited.
    `needs_mb`: the memory that a job of this work needs there, if its scheduler can kill it for using more.
    `role`, `classes` and `prices` (cost per GPU and second, by type) are for the placement policy.
    `warm`: by GPU type, how the place may hold GPUs for a while, which takes `keepers_root` and `keeper_script`.
    `start_s`: what a run may take to start in such a one, beyond its own limit. `kind`: slurm, local, github, modal …
    `settings`: a digest of all that it was made from, by which a reload sees what changed. `home`: a digest of where
    its attempts are; while some are open, it can't change.
    """

    backend: Backend
    root: Path | None = None
    script: ScriptWriter | None = None
    untrusted: bool = True
    ranked_min_isolation: int = 0
    poll_s: float = 15.0
    grace_s: float = 30.0
    sweep_gap_s: float = 25.0
    patience_s: float = 7 * 86_400.0
    stray_s: float = 3_600.0
    keep_s: float = 7 * 86_400.0
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    widest: Mapping[str, int] = field(default_factory=dict)
    needs_mb: Callable[[Work], int] | None = None
    role: PlaceRole = "home"
    classes: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    warm: Mapping[str, Warm] = field(default_factory=dict)
    keepers_root: Path | None = None
    keeper_script: KeeperWriter | None = None
    start_s: float = STARTS_WITHIN_S
    kind: str = ""
    settings: str = ""
    home: str = ""

    @property
    def name(self) -> str:
        return self.backend.name

    def for_policy(self, breaker: Breaker = CLOSED, draining: Mapping[str, str] | None = None) -> PlaceView:
        """The place as the placement policy sees it."""
        return PlaceView(
            name=self.name,
            role=self.role,
            slots=self.backend.capacity(),
            classes=self.classes,
            prices=self.prices,
            breaker=breaker,
            draining=draining or {},
        )

    def admits(self, work: Work) -> bool:
        """Whether this submission may run here: untrusted code only where it is isolated from the rest of the site."""
        return self.untrusted or work.by_staff

    def fits(self, work: Work) -> bool:
        """Whether this place has what the run needs at all, busy or not."""
        gpu = work.attempt.gpu
        wide_enough = gpu not in self.widest or work.problem.world_size <= self.widest[gpu]
        return gpu in self.backend.capacity() and wide_enough and self.admits(work)
