"""Queries squeue and sacct for jobs, by ID or name; an answer that isn't understood to its last line proves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.commands import Answer, Commands
from kbslurm.backends.slurm.executor import KbWatcher
from kbslurm.backends.slurm.reader import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    JobRow,
    is_strange,
    read_sacct,
    read_squeue,
)
from kbslurm.domain.run import JobName
from kbslurm.domain.site import Site
from kbslurm.errors import BackendTrouble
from kbslurm.observe.logs import teller

tell = teller("slurm")

BATCH = 200
LOOK_BACK_S = 300


@dataclass(frozen=True, kw_only=True)
class JobRows:
    """The rows of one answer. Not `complete`: something in it wasn't understood, so absence from it proves nothing."""

    by_id: Mapping[str, JobRow]
    complete: bool


@dataclass(frozen=True, kw_only=True)
class SchedulerAnswers:
    """The scheduler's answers in one poll; a source that couldn't be queried is None."""

    queue: JobRows | None
    past: JobRows | None
    accounting: bool

    @property
    def proves_absence(self) -> bool:
        """Whether all the site's sources answered, and each answer was understood to its last line."""
        past = self.past.complete if self.past is not None else not self.accounting
        return self.queue is not None and self.queue.complete and past

    def rows(self) -> list[JobRow]:
        """All rows, the queue's first."""
        return [row for rows in (self.queue, self.past) if rows is not None for row in rows.by_id.values()]


class JobLookup:
    """A site's jobs, as its scheduler shows them. Each look feeds the site's watcher, which has them from then on."""

    def __init__(self, site: Site, commands: Commands, wall: Callable[[], float], watcher: KbWatcher) -> None:
        self._site, self._commands, self._wall, self._watcher = site, commands, wall, watcher

    def by_id(self, ids: set[str], *, others: bool = False) -> SchedulerAnswers:
        """One squeue for all our jobs; sacct for those of these IDs that it no longer shows. `others`: jobs without a
        known ID are looked for, too."""
        queue = self._squeue([] if others else self._commands.only(sorted(ids)))
        if queue is None:
            return self._fed(SchedulerAnswers(queue=None, past=None, accounting=self._site.slurm.accounting))
        vanished = sorted(id_ for id_ in ids - set(queue.by_id) if id_.isdigit())
        past = self._sacct_ids(vanished) if vanished else JobRows(by_id={}, complete=True)
        return self._fed(SchedulerAnswers(queue=queue, past=past, accounting=self._site.slurm.accounting))

    def by_name(self, name: JobName, paths: AttemptPaths) -> SchedulerAnswers:
        """Every job with this name, since shortly before its attempt's manifest was written."""
        queue = self._squeue([f"--name={name}"])
        if not self._site.slurm.accounting:
            return self._fed(SchedulerAnswers(queue=queue, past=None, accounting=False))
        try:
            since = paths.manifest.stat().st_mtime
        except OSError:
            since = self._wall() - 2 * 86_400
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since - LOOK_BACK_S))
        past = self._sacct([f"--name={name}", "-S", start])
        return self._fed(SchedulerAnswers(queue=queue, past=past, accounting=True))

    def _fed(self, answers: SchedulerAnswers) -> SchedulerAnswers:
        self._watcher.feed(answers.rows())
        return answers

    def _squeue(self, which: Sequence[str]) -> JobRows | None:
        answer = self.asked("squeue", ["--me", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT, *which])
        if answer is None:
            return None
        complete = not is_strange(answer.out, SQUEUE_FORMAT.count("|"))
        return JobRows(by_id={row.id: row for row in read_squeue(answer.out)}, complete=complete)

    def _sacct_ids(self, ids: Sequence[str]) -> JobRows | None:
        if not self._site.slurm.accounting:
            return None
        found: dict[str, JobRow] = {}
        complete = True
        for start in range(0, len(ids), BATCH):
            rows = self._sacct(["-j", ",".join(ids[start : start + BATCH])])
            if rows is None:
                return None
            found |= rows.by_id
            complete = complete and rows.complete
        return JobRows(by_id=found, complete=complete)

    def _sacct(self, which: Sequence[str]) -> JobRows | None:
        answer = self.asked("sacct", ["-X", "-n", "-P", "-D", "-o", SACCT_FIELDS, *which])
        if answer is None:
            return None
        complete = not is_strange(answer.out, SACCT_FIELDS.count(","))
        return JobRows(by_id={row.id: row for row in read_sacct(answer.out)}, complete=complete)

    def asked(self, tool: str, arguments: Sequence[str]) -> Answer | None:
        """The answer, or None if there is no reliable one."""
        try:
            answer = self._commands.run(tool, arguments)
        except BackendTrouble as error:
            tell("no answer", level="warning", site=self._site.name, tool=tool, why=error.message)
            return None
        if answer.complaint:
            tell("no answer", level="warning", site=self._site.name, tool=tool, why=answer.complaint)
            return None
        return answer
