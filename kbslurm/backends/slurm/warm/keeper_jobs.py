"""A site's keepers: opened, watched, drained and ended. ports.KeepsWarm, as far as it isn't about attempts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kbslurm.backends.paths import in_spite_of_locks, said
from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.call_budget import USED_UP
from kbslurm.backends.slurm.call_pace import CallPace
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.executor import KbWatcher
from kbslurm.backends.slurm.fleet import NODE_FIELDS, nodes_in
from kbslurm.backends.slurm.job_lookup import JobLookup, SchedulerAnswers
from kbslurm.backends.slurm.warm import keepers as sightings
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.backends.slurm.warm.pulse import Pulse
from kbslurm.domain.keepers import Keeper, KeeperSighting
from kbslurm.domain.run import Handle, JobName, KeeperName, Seen
from kbslurm.domain.site import Site
from kbslurm.errors import BackendRefused, BackendTrouble
from kbslurm.observe.logs import teller

tell = teller("slurm")

WAITING_FORMAT = "%u|%T|%r|%P|%j"
# Jobs of ours, whoever submits them there: by their names, which nobody else's have by chance.
_OURS = re.compile(r"kbk?-[a-z2-7]{26}")
# What a job waits for that a freed GPU would help; a dependency, a hold or a limit of its own isn't it.
_WANTS = frozenset({"Resources", "Priority", "None", ""})
_TIER = re.compile(r"^PartitionName=(\S+) .*?\bPriorityTier=(\d+)", re.MULTILINE)
SETTINGS_HOLD_S = 3_600.0


class KeeperJobs:
    """The keepers of one site. Its memory is only a cache."""

    def __init__(
        self,
        site: Site,
        root: Path,
        pulse: Pulse,
        *,
        pace: CallPace,
        commands: Commands,
        lookup: JobLookup,
        watcher: KbWatcher,
        is_denied: Callable[[JobName, Handle], bool],
        shared: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site, self._root, self._pulse, self._shared = site, root, pulse, shared
        self._pace, self._commands, self._lookup, self._watcher = pace, commands, lookup, watcher
        self._is_denied, self._now = is_denied, monotonic
        self._answers: SchedulerAnswers | None = None
        self._asked: frozenset[str] = frozenset()
        self._hides: tuple[bool | None, float] = (None, float("-inf"))
        self._beside: dict[str, tuple[tuple[str, ...], float]] = {}
        self.wanted: frozenset[str] = frozenset()
        # those whose scripts had begun when we last looked, and when the scheduler was last asked
        self._begun: frozenset[str] = frozenset()
        self._begun_then: frozenset[str] = frozenset()

    def folder(self, name: str) -> KeeperFolder:
        return KeeperFolder(root=self._root, name=name)

    def heard(self, answers: SchedulerAnswers, ids: set[str]) -> None:
        """What a look for attempts showed; it is one for keepers, too."""
        self._answers, self._asked, self._begun_then = answers, frozenset(ids), self._begun

    def find(self, name: KeeperName) -> KeeperSighting:
        """ID file, claim and what it says of itself; then squeue and sacct by name."""
        keeper = self.folder(name)
        seen = self._from_files(keeper)
        if seen is not None:
            return seen
        known = self._known(keeper)
        if self._pace.is_resting() or not self._pace.has_room(2 if self._site.slurm.accounting else 1):
            return KeeperSighting(seen=Seen.UNKNOWN, handle=known)
        begun = self._has_begun(keeper)
        answers = self._lookup.by_name(JobName(name), keeper.paths)
        rows = sorted(self._watcher.named(name), key=lambda row: int(row.id))
        row = next((row for row in rows if known in (None, row.id)), None)
        if row is not None:
            seen = sightings.with_row(keeper, row, begun=begun)
            return seen or KeeperSighting(seen=Seen.UNKNOWN, handle=known)
        if known is not None:
            return KeeperSighting(seen=Seen.WAITING, handle=known, reason="submitted, but not shown by Slurm")
        return KeeperSighting(seen=Seen.ABSENT if answers.proves_absence else Seen.UNKNOWN)

    def watch(self, keepers: Sequence[Keeper]) -> Mapping[KeeperName, KeeperSighting]:
        """Files first; the rest by the look that attempts need anyway, or one of their own when none was due."""
        found: dict[KeeperName, KeeperSighting] = {}
        unsure: dict[KeeperName, tuple[Keeper, Handle | None]] = {}
        for keeper in keepers:
            folder = self.folder(keeper.name)
            seen = self._from_files(folder)
            if seen is not None:
                found[keeper.name] = seen
            else:
                unsure[keeper.name] = (keeper, keeper.handle or self._known(folder))
        self.wanted = frozenset(str(handle) for _, handle in unsure.values() if handle)
        self._begun = frozenset(keeper.name for keeper in keepers if self._has_begun(self.folder(keeper.name)))
        if unsure and self._pace.may_look():
            self.heard(self._lookup.by_id(set(self.wanted)), set(self.wanted))
        for name, (_, handle) in unsure.items():
            if (seen := self._by_row(name, handle)) is not None:
                found[name] = seen
        return found

    def drain(self, keeper: Keeper) -> None:
        """Tell it by a file."""
        try:
            self.folder(keeper.name).begin_drain()
        except OSError as error:
            message, hint = said(error, self._root, self._shared)
            raise BackendTrouble(self._site.name, message, hint=hint) from None

    def end(self, keeper: Keeper) -> None:
        """scancel, by its ID or, if there is none, its name."""
        self.drain(keeper)
        handle = keeper.handle or self._known(self.folder(keeper.name))
        if not self._pace.has_room():
            raise BackendRefused(self._site.name, USED_UP, permanent=False)
        answer = self._commands.run("scancel", ["--quiet", str(handle) if handle else f"--name={keeper.name}"])
        if answer.complaint and not is_gone(answer.complaint):
            raise BackendTrouble(self._site.name, f"scancel: {answer.complaint}")

    def others_wait(self, gpu: str) -> tuple[bool | None, str]:
        """One look at the GPU type's partition and those beside it; once an hour, three calls to learn which these are
        and whether the site hides other people's jobs."""
        kind = self._site.gpus[gpu]
        if self._pace.is_resting() or not self._pace.has_room(4):
            return None, USED_UP
        partitions = self._and_beside(kind.partition) if kind.partition else ()
        where = ["-p", ",".join(partitions)] if partitions else []
        answer = self._lookup.asked("squeue", ["-h", "-t", "PENDING,RUNNING", "-o", WAITING_FORMAT, *where])
        if answer is None:
            return None, "the scheduler gave no answer"
        rows = [line.strip().split("|", 4) for line in answer.out.splitlines()]
        others = [row for row in rows if len(row) == 5 and not _OURS.fullmatch(row[4])]
        waiting = [row for row in others if row[1] == "PENDING" and row[2].strip("()").split(",")[0] in _WANTS]
        if waiting:
            elsewhere = sorted({row[3] for row in waiting} - {kind.partition}) if kind.partition else []
            where_else = f", some in {', '.join(elsewhere)} on the same nodes" if elsewhere else ""
            return True, f"{len(waiting)} of other people's jobs wait there{where_else}"
        if self._hides_jobs() is not False:  # who sees some of them, like an account's coordinator, may not see all
            return None, "this site hides other people's jobs, so they may be waiting"
        return False, "nobody else's job waits there"

    # ------------------------------------------------------------------------------------------------------- looking

    def _from_files(self, keeper: KeeperFolder) -> KeeperSighting | None:
        try:
            return in_spite_of_locks(keeper.paths, lambda: sightings.from_files(keeper, self._pulse))
        except OSError as error:
            tell("can't look", level="warning", job=keeper.name, why=str(error))
            return None

    def _has_begun(self, keeper: KeeperFolder) -> bool:
        try:
            return evidence.look(keeper.paths).claimed
        except OSError:
            return False

    def _known(self, keeper: KeeperFolder) -> Handle | None:
        try:
            return evidence.look(keeper.paths).handle
        except OSError:
            return None

    def _by_row(self, name: KeeperName, handle: Handle | None) -> KeeperSighting | None:
        answers = self._answers
        if answers is None or answers.queue is None:
            return None
        rows = [row for row in answers.rows() if row.name == name and handle in (None, row.id)]
        if rows:
            return sightings.with_row(self.folder(name), rows[0], begun=name in self._begun_then)
        if handle is None or handle not in self._asked or not answers.proves_absence:
            return None
        if not self._is_denied(JobName(name), handle):
            return None
        return KeeperSighting(seen=Seen.ABSENT, handle=handle)

    def _and_beside(self, partition: str) -> tuple[str, ...]:
        """This partition and those that share nodes with it, except those that come after it (a lower PriorityTier: a
        partition for what is left over, in which jobs always wait). Only this one as long as it can't be seen."""
        known, at = self._beside.get(partition, ((), float("-inf")))
        if known and self._now() < at + SETTINGS_HOLD_S:
            return known
        nodes = self._lookup.asked("sinfo", ["-h", "-a", "-N", "-O", NODE_FIELDS])
        told = None if nodes is None else self._lookup.asked("scontrol", ["-o", "show", "partition"])
        if nodes is None or told is None:
            return (partition,)
        tiers = {found[1]: int(found[2]) for found in _TIER.finditer(told.out)}
        mine = set(partition.split(","))
        shared = {one for node in nodes_in(nodes.out) if mine & set(node.partitions) for one in node.partitions}
        least = min((tiers[one] for one in mine if one in tiers), default=0)
        together = (partition, *sorted(one for one in shared - mine if tiers.get(one, least) >= least))
        self._beside[partition] = (together, self._now())
        return together

    def _hides_jobs(self) -> bool | None:
        """Whether this site shows nobody other people's jobs; None if it doesn't say."""
        known, at = self._hides
        if known is not None and self._now() < at + SETTINGS_HOLD_S:
            return known
        answer = self._lookup.asked("scontrol", ["show", "config"])
        said_so = None if answer is None else re.search(r"^PrivateData\s*=\s*(\S+)", answer.out, re.MULTILINE)
        if said_so is None:
            return None
        self._hides = ("jobs" in said_so[1].split(","), self._now())
        return self._hides[0]


def is_gone(complaint: str) -> bool:
    """Whether scancel means that there is nothing to end any more."""
    return "Invalid job id" in complaint or "already completing or completed" in complaint
