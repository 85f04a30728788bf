"""What the judge knows of the run that it judges, and what has come of it so far: all phases share it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbslurm_eval.cage.runners import Runners
from kbslurm_eval.judge.builds import Builds
from kbslurm_eval.judge.check_mark import CheckMark
from kbslurm_eval.judge.clock_watch import ClockWatch
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import Allowance
from kbslurm_eval.judge.reference import Case, Reference, derived_seed
from kbslurm_eval.judge.run_log import RunLog
from kbslurm_eval.shared.wire import BenchmarkResult, LaunchSamples, Manifest, PhaseName, PhaseResult, TestResult

if TYPE_CHECKING:
    from kbslurm_eval.judge.profiling import ProfileFiles
    from kbslurm_eval.judge.rank_devices import RankDevices
    from kbslurm_eval.judge.rank_reference import RankReference
    from kbslurm_eval.judge.run_device import RunDevice

SECRET: tuple[PhaseName, ...] = ("ranked", "hidden")


@dataclass(kw_only=True)
class Results:
    """What has come of the run so far."""

    tests: list[TestResult] = field(default_factory=list)
    benchmarks: list[BenchmarkResult] = field(default_factory=list)
    phases: list[PhaseResult] = field(default_factory=list)
    log: RunLog = field(default_factory=RunLog)
    secret_log: str = ""
    flags: list[str] = field(default_factory=list)
    level: int = 3
    notes: list[str] = field(default_factory=list)
    launches: int = 0
    checked: int = 0
    samples: list[LaunchSamples] = field(default_factory=list)
    budget: dict[str, Any] = field(default_factory=dict)
    called_ns: int = 0  # in calls of anybody's, by the judge's clock
    facts: dict[str, Any] = field(default_factory=dict)
    profile: ProfileFiles | None = None


@dataclass(kw_only=True)
class RunState:
    """One run. `own`: what the judge found of its own cage. Allowances of rivals are one for all launches each."""

    manifest: Manifest
    runners: Runners
    heartbeat: Heartbeat
    least_level: int
    own: dict[str, Any]
    builds: Builds
    check_mark: CheckMark = field(default_factory=CheckMark)
    results: Results = field(default_factory=Results)
    allowances: list[Allowance] = field(default_factory=list)
    rival_allowances: dict[int, Allowance] = field(default_factory=dict)
    loaded_reference: Reference | RankReference | None = None
    device: RunDevice | None = None
    rank_devices: RankDevices | None = None
    no_clocks: ClockWatch = field(default_factory=ClockWatch)
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """What is left of the whole run's time."""
        return self.manifest.limits.total_s - (time.monotonic() - self.began)

    @property
    def on_device(self) -> bool:
        """Whether calls are made on a device."""
        return self.rank_devices is not None or (self.device is not None and self.device.needed)

    @property
    def clocks(self) -> ClockWatch:
        """The clocks of the device that is used, if one is, or of all that ranks use."""
        if self.rank_devices is not None:
            return self.rank_devices.clocks
        return self.device.clocks if self.device is not None and self.device.needed else self.no_clocks

    @property
    def reference(self) -> Reference | RankReference:
        """The problem's reference, which is there before any phase begins."""
        assert self.loaded_reference is not None
        return self.loaded_reference

    @property
    def device_alone(self) -> bool:
        """Whether there is a device, and only one process at a time may use it."""
        return self.device is not None and self.device.alone

    def seed(self, name: PhaseName, case: Case, *parts: object) -> int | None:
        """The seed of one call: the problem's own in tests, fresh in benchmarks, secret and fresh where it counts."""
        manifest = self.manifest
        if name == "test" and "seed" in case.params:
            return None
        if name in SECRET:
            return derived_seed(manifest.secret_seed, name, manifest.nonce, case.index, *parts)
        return derived_seed(f"public|{manifest.seed}", name, case.index, case.params.get("seed", ""), *parts)

    def close(self) -> None:
        """Every process of it is ended, and the device given back."""
        self.check_mark.close()
        self.runners.close()
        if self.loaded_reference is not None:
            self.loaded_reference.close()
        if self.device is not None:
            self.device.close()
        if self.rank_devices is not None:
            self.rank_devices.close()
