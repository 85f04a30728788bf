"""What an attempt's directory proves: the strongest evidence, at no cost to the scheduler."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbslurm.backends.paths import AttemptPaths, read_capped
from kbslurm.backends.slurm.executor import JOB_ID_FILE
from kbslurm.backends.supervisor_exit import Exit, end_without_report, exit_in
from kbslurm.domain.run import Ending, Handle, Seen, Sighting
from kbslurm_eval.shared.wire import REPORT_CAP

NOTE_CAP = 65_536
SEALED_CAP = 2 * REPORT_CAP
_JOB = re.compile(r"[0-9]+(\.[0-9]+)?")  # a job, or a step of a keeper's


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """The keeper that an attempt was to be handed over to, that keeper's job, and the attempt's time limit there."""

    keeper: str
    job: str
    limit_s: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A snapshot of an attempt's directory. `owner`: the job that claimed it, or the step, as `JOB.STEP`. `restarted`:
    Slurm restarted the job that had claimed it. `granted_mb`: the memory that Slurm gave the job, as it told the job
    itself. `no_memory`: the kernel ended a process of it for its memory use. `told_to_end`: a signal from outside came
    while it ran. `elsewhere`: Slurm said that another cluster took it. `hand_over`: where to, if it isn't a job of its
    own."""

    reported: bool = False
    unfit: bool = False
    cancelled: bool = False
    exit: Exit | None = None
    owner: str | None = None
    node: str | None = None
    claimed: bool = False
    claimed_at: datetime | None = None
    began: bool = False
    job_id: str | None = None
    restarted: bool = False
    granted_mb: int | None = None
    no_memory: bool = False
    told_to_end: bool = False
    elsewhere: bool = False
    hand_over: HandOver | None = None

    @property
    def handle(self) -> Handle | None:
        """The job that is this attempt: the one that claimed it, else the one that was submitted."""
        found = self.owner or self.job_id
        return None if found is None else Handle(found)

    def sighting(self) -> Sighting | None:
        """What this proves by itself, or None if the scheduler has to be queried.

        A report alone doesn't prove the end: its writer may still be running. The script's final status does.
        """
        if self.exit is None:
            return None
        if self.reported:
            return self._ended(Ending.REPORTED, "")
        proved = end_without_report(self.exit, cancelled=self.cancelled, unfit=self.unfit)
        return None if proved is None else self._ended(*proved)  # None: only Slurm knows why

    def running(self) -> Sighting | None:
        """RUNNING according to the claim, if nothing shows that it ended."""
        if not self.claimed or self.exit is not None or self.reported:
            return None
        return Sighting(seen=Seen.RUNNING, handle=self.handle, node=self.node, started_at=self.claimed_at)

    def _ended(self, ending: Ending, reason: str) -> Sighting:
        return Sighting(
            seen=Seen.ENDED,
            handle=self.handle,
            node=self.node,
            ending=ending,
            exit_code=self.exit.status if self.exit else None,
            reason=f"{reason} on {self.node}" if reason and self.node else reason,
            started_at=self.claimed_at,
            ended_at=self.exit.at if self.exit else None,
        )


def look(paths: AttemptPaths) -> Evidence:
    """Read the directory. Listing it first refreshes a network file system's cache. OSError if it can't be read."""
    try:
        names = _names(paths.dir)
        inner = _names(paths.out) if paths.out.name in names else set()
        claim = _names(paths.claim) if paths.claim.name in names else set()
    except FileNotFoundError:
        return Evidence()
    owner = _note(paths, "claim/owner.json") if "owner.json" in claim else {}
    job = _text(owner, "job") or (_line(paths, "claim/job") if "job" in claim else None)
    fit = _is_fit(paths) if paths.report.name in inner else None
    return Evidence(
        reported=fit is True,
        unfit=fit is False,
        cancelled=paths.cancelled.name in names,
        exit=exit_in(_note(paths, paths.exit.name), moment(paths.exit)) if paths.exit.name in names else None,
        owner=job,
        node=_text(owner, "node"),
        claimed=paths.claim.name in names,
        claimed_at=moment(paths.owner) if owner else None,
        began=paths.heartbeat.name in inner,
        job_id=_line(paths, JOB_ID_FILE) if JOB_ID_FILE in names else None,
        granted_mb=int(_line(paths, "claim/granted_mb") or 0) or None if "granted_mb" in claim else None,
        no_memory="no_memory" in claim,
        told_to_end="told_to_end" in claim,
        elsewhere=paths.elsewhere.name in names,
        hand_over=_hand_over(_note(paths, paths.keeper.name)) if paths.keeper.name in names else None,
        restarted=job is not None and f"restart-{job}" in names,
    )


# Until 25.05 the line begins with `slurmstepd-NODE:`, later with the time in brackets.
_MEMORY = re.compile(
    rb"^(slurmstepd\S*:|\[[0-9T:.-]+\]) error: [^\n]*(exceeded (job )?memory limit|oom[-_ ]kill event)",
    re.IGNORECASE | re.MULTILINE,
)


def slurm_said_memory(paths: AttemptPaths) -> bool:
    """Whether the node's Slurm wrote to the job's log that it killed the job for its memory use.

    A Slurm that enforces memory by polling (OverMemoryKill) reports it nowhere else: the job's state is then FAILED.
    """
    try:
        fd = os.open(paths.log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - NOTE_CAP))
        return _MEMORY.search(file.read(NOTE_CAP)) is not None


def _is_fit(paths: AttemptPaths) -> bool:
    """Whether the report is a regular file that we would read."""
    looks = paths.report.lstat()
    return stat.S_ISREG(looks.st_mode) and looks.st_size <= SEALED_CAP


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def _note(paths: AttemptPaths, name: str) -> Mapping[str, Any]:
    raw = read_capped(paths.dir / name, NOTE_CAP)
    try:
        told = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _line(paths: AttemptPaths, name: str) -> str | None:
    raw = read_capped(paths.dir / name, NOTE_CAP)
    text, end, _ = (raw or b"").decode(errors="replace").partition("\n")
    return text if end and _JOB.fullmatch(text) else None  # without a line end it may be half a number


def _hand_over(told: Mapping[str, Any]) -> HandOver | None:
    keeper, job, limit_s = _text(told, "keeper"), _text(told, "job"), told.get("limit_s")
    if keeper is None or job is None or not isinstance(limit_s, int):
        return None
    return HandOver(keeper=keeper, job=job, limit_s=limit_s)


def _text(told: Mapping[str, Any], key: str) -> str | None:
    value = told.get(key)
    return value if isinstance(value, str) and value else None


def read_exit(paths: AttemptPaths) -> Mapping[str, Any] | None:
    """A final status as it was written, unchecked; None if there is none."""
    return _note(paths, paths.exit.name) or None


def moment(path: Path) -> datetime | None:
    """When this file was written; the script would need an extra process to get the time."""
    try:
        return datetime.fromtimestamp(path.lstat().st_mtime, UTC)
    except FileNotFoundError:
        return None
