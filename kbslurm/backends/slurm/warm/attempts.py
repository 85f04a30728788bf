"""Attempts in a keeper: handing one over, and what its files, its keeper's files and the keeper's row prove of it.

Handing over makes no scheduler call, and neither does following an attempt as long as its keeper says that it lives.
A step has its keeper's job ID, so an attempt's handle is `JOB.STEP`, as its claim says; before that it is `JOB.NAME`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths, put, read_capped, said, write_once
from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.call_budget import USED_UP
from kbslurm.backends.slurm.call_pace import CallPace
from kbslurm.backends.slurm.evidence import Evidence, HandOver
from kbslurm.backends.slurm.executor import KbWatcher
from kbslurm.backends.slurm.job_lookup import JobLookup, SchedulerAnswers
from kbslurm.backends.slurm.reader import JobRow, Phase, end_text, is_strange
from kbslurm.backends.slurm.sightings import ended_sighting
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.backends.slurm.warm.pulse import Pulse
from kbslurm.domain.run import OWN_FAULT, Ending, Handle, InKeeper, JobName, Seen, Sighting, is_step
from kbslurm.domain.site import Site
from kbslurm.errors import BackendRefused, BackendUnclear
from kbslurm.observe.logs import teller
from kbslurm.ports import JobSpec

tell = teller("slurm")

# Its supervisor ends an attempt at its limit; so long after that, a keeper that says nothing of its end is wrong.
OVERDUE_S = 90.0
HANDED_OVER = "handed over to its warm worker"
STARTING = "its warm worker is starting it"
NEVER_BEGAN = "its warm worker ended before it started it"
TAKEN_BACK = "its warm worker was gone before it took it; it wasn't started"
CLOSED = json.dumps({"node": "", "by": "the service"}).encode()  # whose claim that is
CLAIM_CAP = 4096
ENDINGS = {"PREEMPTED": Ending.PREEMPTED, "NODE_FAIL": Ending.NODE_FAILURE, "BOOT_FAIL": Ending.NODE_FAILURE}


def keepers_job(handle: Handle | None) -> str | None:
    """The keeper's job ID in the handle of an attempt in it; None for an attempt that is a job of its own."""
    job, point, _ = (handle or "").partition(".")
    return job if point else None


def hand_over_of(proof: Evidence, handle: Handle | None, keeper: InKeeper | None) -> HandOver | None:
    """Where this attempt was handed over to; from its handle, or its row, where its folder no longer says so. None: it
    is a job of its own."""
    if proof.hand_over is not None:
        return proof.hand_over
    job = keepers_job(handle)
    if keeper is None and job is None:
        return None
    return HandOver(
        keeper="" if keeper is None else keeper.name, job=job or (keeper and keeper.job) or "", limit_s=1 << 30
    )


class WarmAttempts:
    """The attempts in keepers of one site."""

    def __init__(
        self,
        site: Site,
        root: Path,
        keepers: Path,
        pulse: Pulse,
        *,
        pace: CallPace,
        lookup: JobLookup,
        watcher: KbWatcher,
        is_denied: Callable[[JobName, Handle], bool],
        end_quietly: Callable[[str], None],
        look: Callable[[AttemptPaths], Evidence],
        monotonic: Callable[[], float],
        shared: str,
    ) -> None:
        self._site, self._accounting, self._root, self._keepers = site.name, site.slurm.accounting, root, keepers
        self._pace, self._lookup, self._watcher = pace, lookup, watcher
        self._is_denied, self._end_quietly, self._look = is_denied, end_quietly, look
        self._pulse, self._now, self._shared = pulse, monotonic, shared
        self._begun: dict[JobName, float] = {}

    def hand_over(self, paths: AttemptPaths, job: JobSpec, limit_s: int, crash_point: Callable[[str], None]) -> Handle:
        """Post it. What is written into its folder before says where it is to be looked for."""
        assert job.keeper is not None
        assert job.script is not None
        keeper = KeeperFolder(root=self._keepers, name=job.keeper.name)
        told = HandOver(keeper=job.keeper.name, job=job.keeper.job or "", limit_s=limit_s)
        try:
            before = evidence.look(paths).hand_over
            if before is None:
                if keeper.paths.exit.exists() or keeper.drain.exists():
                    raise BackendRefused(self._site, "the warm worker takes no more work", permanent=False)
                if not self._pulse.beats(keeper):
                    raise BackendRefused(self._site, "the warm worker has been silent for a while", permanent=False)
                if not paths.script.exists():
                    put(paths.script, job.script.encode(), 0o500)
                write_once(paths.keeper, (json.dumps(dataclasses.asdict(told)) + "\n").encode())
            elif before.keeper != told.keeper:
                raise BackendRefused(self._site, "it was handed over to another warm worker", permanent=False)
            crash_point("folder")
        except OSError as error:
            message, hint = said(error, paths.dir, self._shared)
            raise BackendRefused(self._site, message, permanent=False, hint=hint) from None
        try:
            keeper.post(job.name, limit_s)
        except OSError as error:
            message, hint = said(error, keeper.dir, self._shared)
            raise BackendUnclear(self._site, message, hint=hint) from None
        crash_point("sent")
        return provisional(told, job.name)

    def to_cancel(self, name: JobName, proof: Evidence) -> list[str]:
        """What scancel has to end: this attempt's own step, never its keeper. Nothing if it was taken back or is over;
        BackendRefused while it is being started, which its marker stops."""
        if proof.exit is not None:
            return []
        if proof.claimed:
            return [proof.owner] if proof.owner and is_step(proof.owner) else []
        if proof.hand_over is None:
            return []
        keeper = KeeperFolder(root=self._keepers, name=proof.hand_over.keeper)
        try:
            if keeper.take_back(name) or keeper.where(name) != "taken":
                return []
        except OSError as error:
            tell("can't take back", level="warning", job=name, why=str(error))
        raise BackendRefused(self._site, "its warm worker is starting it", permanent=False)

    # ------------------------------------------------------------------------------------------------------- looking

    def softly(self, name: JobName, proof: Evidence, over: HandOver) -> Sighting | None:
        """As `from_files`; folders that can't be read prove nothing."""
        try:
            return self.from_files(name, proof, over)
        except OSError as error:
            tell("can't look", level="warning", job=name, why=str(error))
            return None

    def find(self, name: JobName, proof: Evidence, over: HandOver) -> Sighting:
        """Its keeper's mailbox, the claim, then its keeper's row: whoever hands over leaves his traces there first."""
        seen = self.softly(name, proof, over)
        if seen is not None:
            return seen
        if self._pace.is_resting() or not self._pace.has_room(2 if self._accounting else 1):
            return Sighting(seen=Seen.UNKNOWN, handle=proof.handle, reason=USED_UP)
        told = self._lookup.by_name(JobName(over.keeper), KeeperFolder(root=self._keepers, name=over.keeper).paths)
        return self.judge(name, proof, over, told, None) or Sighting(seen=Seen.UNKNOWN, handle=proof.handle)

    def judge(
        self, name: JobName, proof: Evidence, over: HandOver, told: SchedulerAnswers, steps: set[str] | None
    ) -> Sighting | None:
        """What files and its keeper's row together prove about an attempt in it; None changes nothing."""
        if told.queue is None:
            return None
        row = self._watcher.keeper(over.job)
        if row is None:
            if not told.proves_absence or not self._is_denied(JobName(over.keeper), Handle(over.job)):
                return None
            reason = "the cluster doesn't know its warm worker any more, and it left no result"
            absent = Sighting(seen=Seen.ABSENT, handle=proof.handle, node=proof.node, reason=reason)
            return absent if proof.claimed else self.forbidden(name, over, take=True)
        # its last files may have arrived since we checked
        proof = self._look(AttemptPaths(root=self._root, name=name))
        if (ended := proof.sighting()) is not None:
            return ended
        if steps is not None and row.phase is Phase.RUNNING and proof.claimed and self.is_overdue(name, over):
            if proof.owner not in steps:
                return self.stepless(proof, over, name)
            self._end_quietly(str(proof.owner))
        return self.with_row(name, proof, over, row)

    def steps_if_overdue(self, warm: Mapping[JobName, tuple[Evidence, HandOver]]) -> set[str] | None:
        """Our steps as Slurm shows them, asked for only if one should have ended long ago; None: not known."""
        if not any(proof.claimed and self.is_overdue(name, over) for name, (proof, over) in warm.items()):
            return None
        if not self._pace.has_room():
            return None
        answer = self._lookup.asked("squeue", ["--me", "-h", "-s", "-o", "%i|%j"])
        if answer is None or is_strange(answer.out, 1):
            return None
        return {line.strip().partition("|")[0] for line in answer.out.splitlines()}

    # ------------------------------------------------------------------------------------------------------- judging

    def from_files(self, name: JobName, proof: Evidence, told: HandOver) -> Sighting | None:
        """What files alone prove; None: Slurm must be asked about the keeper. OSError if they can't be read."""
        keeper = KeeperFolder(root=self._keepers, name=told.keeper or "kbk-unknown")
        lives = self._pulse.beats(keeper) and not keeper.paths.exit.exists()
        if proof.claimed and proof.owner is None and (closed := self.forbidden(name, told)) is not None:
            return closed  # a service that took this claim ended before it had said so
        if proof.claimed:
            if keeper.is_done(name):
                return self._done(name, told)
            # its last files may say how it ended, but what ends it for sure is its keeper's word, which is near
            return _running(proof, told, name) if lives and not self.is_overdue(name, told) else None
        match keeper.where(name):
            case "mail" if lives:
                return Sighting(seen=Seen.WAITING, handle=provisional(told, name), reason=HANDED_OVER)
            case "mail" if keeper.take_back(name):
                return self.forbidden(name, told, TAKEN_BACK, cancelled=proof.cancelled, take=True)
            case "back":  # that a second service posts it again must not start it
                return self.forbidden(name, told, TAKEN_BACK, cancelled=proof.cancelled, take=True)
            case "taken" | "mail" if lives:
                return Sighting(seen=Seen.WAITING, handle=provisional(told, name), reason=STARTING)
            case None if told.keeper and keeper.dir.is_dir():
                return Sighting(seen=Seen.ABSENT, reason="it was never handed over to its warm worker")
            case _:
                return None

    def with_row(self, name: JobName, proof: Evidence, told: HandOver, row: JobRow | None) -> Sighting | None:
        """The same with the keeper's row; None changes nothing. A keeper's end says nothing against a submission."""
        if row is not None and row.phase is Phase.RUNNING:
            if proof.claimed:
                return _running(proof, told, name)
            return Sighting(seen=Seen.WAITING, handle=provisional(told, name), reason=STARTING)
        if row is None or row.phase not in (Phase.ENDED, Phase.WAITING):
            return None
        if not proof.claimed:
            return self.forbidden(name, told, take=True)
        # in the queue again: somebody requeued the job, so this life of it is over, and its claim keeps it from another
        ending = Ending.KEEPER_LEFT if row.phase is Phase.WAITING else ENDINGS.get(_word(row), Ending.KEEPER_LEFT)
        if proof.reported:
            ending = Ending.REPORTED
        why = end_text(row.state, row.reason) if row.phase is Phase.ENDED else "its job was requeued from outside"
        where = f" on {proof.node}" if proof.node else ""
        reason = f"its warm worker ended{where}: Slurm: {_word(row)}{f' ({why})' if why else ''}"
        return replace(ended_sighting(proof, ending, reason), handle=proof.handle or provisional(told, name))

    def forbidden(
        self, name: JobName, told: HandOver, reason: str = NEVER_BEGAN, *, take: bool = False, cancelled: bool = False
    ) -> Sighting | None:
        """Take the claim of an attempt that its keeper is not to start any more: then it never runs, whatever lives on
        at a node. None: it had begun. Without `take`: whether a service, perhaps another one, has taken it."""
        paths = AttemptPaths(root=self._root, name=name)
        try:
            if not (take and paths.take_claim(CLOSED)) and read_capped(paths.owner, CLAIM_CAP) != CLOSED:
                return None
            end = {"cause": "unstarted", "status": 0, "began": False, "why": "the worker was gone", "job": told.job}
            write_once(paths.exit, json.dumps(end).encode())
        except FileNotFoundError:
            reason = "its folder is gone, so nothing can start it"
        except OSError as error:
            tell("can't forbid", level="warning", site=self._site, job=name, why=str(error))
            return None
        return withdrawn(told, name, reason, cancelled=cancelled)

    def stepless(self, proof: Evidence, told: HandOver, name: JobName) -> Sighting:
        """Slurm has no such step, long after it should have ended, and its keeper said nothing of it."""
        reason = "its warm worker said nothing of how it ended, and Slurm has no such step"
        ending = Ending.REPORTED if proof.reported else Ending.NO_REPORT
        return replace(ended_sighting(proof, ending, reason), handle=proof.handle or provisional(told, name))

    def is_overdue(self, name: JobName, told: HandOver) -> bool:
        """Whether it has been seen as begun for much longer than its own limit: by our clock, since its node's or its
        file server's may be late."""
        begun = self._begun.setdefault(name, self._now())
        return self._now() > begun + told.limit_s + OVERDUE_S

    def forget_all_but(self, names: Collection[JobName]) -> None:
        """Only these are open."""
        self._begun = {name: begun for name, begun in self._begun.items() if name in names}

    def _done(self, name: JobName, told: HandOver) -> Sighting:
        """Its keeper says that nothing of it is left there: whatever it could write, it has written."""
        paths = AttemptPaths(root=self._root, name=name)
        proof = evidence.look(paths)
        if (found := proof.sighting()) is not None:
            return found
        handle = proof.handle or provisional(told, name)
        if proof.reported:
            return replace(ended_sighting(proof, Ending.REPORTED, ""), handle=handle)
        ending, reason = Ending.NO_REPORT, f"its step was killed from outside on {proof.node}"
        if proof.cancelled:
            ending, reason = Ending.CANCELLED, "it was cancelled"
        elif proof.no_memory or evidence.slurm_said_memory(paths):
            ending, reason = Ending.MEMORY, f"Slurm: its step used more memory than it had on {proof.node}"
        if ending in OWN_FAULT and not proof.began:
            ending = Ending.BOOT_FAILURE
        return replace(ended_sighting(proof, ending, reason), handle=handle, granted_mb=proof.granted_mb)


def provisional(told: HandOver, name: JobName) -> Handle:
    """The handle of an attempt whose step isn't known yet. It is never taken for the keeper's own."""
    return Handle(f"{told.job}.{name}")


def withdrawn(told: HandOver, name: JobName, reason: str, *, cancelled: bool = False) -> Sighting:
    """It certainly never started and never will; because it was cancelled, or not."""
    if cancelled:
        reason = "it was cancelled before it started"
        return Sighting(seen=Seen.ENDED, handle=provisional(told, name), ending=Ending.CANCELLED, reason=reason)
    return Sighting(seen=Seen.ENDED, handle=provisional(told, name), ending=Ending.WITHDRAWN, reason=reason)


def _running(proof: Evidence, told: HandOver, name: JobName) -> Sighting:
    handle = proof.handle or provisional(told, name)
    return Sighting(seen=Seen.RUNNING, handle=handle, node=proof.node, started_at=proof.claimed_at)


def _word(row: JobRow) -> str:
    return row.state.strip().split(" ")[0].rstrip("+").upper()
