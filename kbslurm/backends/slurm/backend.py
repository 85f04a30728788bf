"""ports.Backend on Slurm: submission by submitit's hooks, evidence from files first, then squeue, then sacct."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from kbslurm.backends.paths import (
    AttemptPaths,
    in_spite_of_locks,
    make_folder,
    read_artifacts,
    read_capped,
    said,
    write_once,
)
from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.call_budget import USED_UP, CallBudget
from kbslurm.backends.slurm.call_pace import CallPace
from kbslurm.backends.slurm.commands import Answer
from kbslurm.backends.slurm.evidence import SEALED_CAP, Evidence, HandOver
from kbslurm.backends.slurm.executor import KbJob, KbWatcher, SbatchSaid, folder_is_ours, jobs_of
from kbslurm.backends.slurm.job_lookup import JobLookup, SchedulerAnswers
from kbslurm.backends.slurm.reader import JobRow, Phase, read_test_only
from kbslurm.backends.slurm.refusals import refusal_in
from kbslurm.backends.slurm.sightings import (
    came_back,
    ended_sighting,
    killed_sighting,
    sighting_elsewhere,
    sighting_of_row,
)
from kbslurm.backends.slurm.staged_harness import HarnessChanged, stage
from kbslurm.backends.slurm.staged_harness import prune as prune_harnesses
from kbslurm.backends.slurm.transport import commands_of, executor_of
from kbslurm.backends.slurm.warm.attempts import WarmAttempts, hand_over_of
from kbslurm.backends.slurm.warm.bell import Bell
from kbslurm.backends.slurm.warm.keeper_jobs import KeeperJobs, is_gone
from kbslurm.backends.slurm.warm.pulse import Pulse
from kbslurm.domain.keepers import Keeper, KeeperSighting
from kbslurm.domain.run import Ending, Handle, JobName, KeeperName, OpenAttempt, Seen, Sighting
from kbslurm.domain.site import Site
from kbslurm.domain.waiting import for_everybody
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.flow.script import attempts_folder, harness_folder, keepers_folder
from kbslurm.observe.logs import teller
from kbslurm.ports import JobSpec, KeeperSpec, PaceReport
from kbslurm_eval.shared import remove_tree
from kbslurm_eval.shared.wire import ARTIFACT_CAP

tell = teller("slurm")

SHARED = "the service's folder on the cluster"

HEARTBEAT_CAP = 4096
FORESEE_S = 10.0  # the longest that a caller waits for it
NO_ANSWER = "the scheduler can't be reached"
SILENT_KEEPER = "its warm worker is silent, and nothing else says what became of it"
# Accounting may be down, and a job to cancel may be gone: neither says anything about the controller.
CONTROLLERS = ("squeue",)
_EXCLUDE = re.compile(r"^#SBATCH --exclude=.*\n", re.MULTILINE)
PRUNED = 500
UNSEEN = Sighting(seen=Seen.UNKNOWN)


class SlurmBackend:
    """One site. Its memory is only a cache: a new process finds everything it needs in files and by name."""

    def __init__(
        self,
        site: Site,
        *,
        eval_dir: Path,
        environ: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        crash_point: Callable[[str], None] = lambda _: None,
        budget: CallBudget | None = None,
    ) -> None:
        self.site, self.name = site, site.name
        self.root = attempts_folder(site)
        self.pace = CallPace(site.poll, monotonic, budget)
        self.commands = commands_of(site, environ=environ, heard=self._heard)
        self._eval_dir, self._harness = eval_dir, Path(harness_folder(site, eval_dir))
        self._watcher = KbWatcher()
        self._jobs = jobs_of(self._watcher)
        self._lookup = JobLookup(site, self.commands, wall, self._watcher)
        self._crash_point = crash_point
        self._lock = threading.Lock()
        self._ended: dict[JobName, Sighting] = {}
        self._denied: dict[JobName, Handle] = {}
        self._doubts: dict[JobName, str] = {}
        self._bell = Bell(self.root)
        pulse, keepers = Pulse(monotonic, site.paths.visibility_delay_s), keepers_folder(site)
        self._warm = WarmAttempts(
            site,
            self.root,
            keepers,
            pulse,
            pace=self.pace,
            lookup=self._lookup,
            watcher=self._watcher,
            is_denied=self._is_denied,
            end_quietly=self._end_quietly,
            look=self._look_softly,
            monotonic=monotonic,
            shared=SHARED,
        )
        self._keepers = KeeperJobs(
            site,
            keepers,
            pulse,
            pace=self.pace,
            commands=self.commands,
            lookup=self._lookup,
            watcher=self._watcher,
            is_denied=self._is_denied,
            shared=SHARED,
            monotonic=monotonic,
        )
        self._lapse = ""  # why the login node can't be reached at all, and what to type

    # ------------------------------------------------------------------------------------------------------ the port

    def capacity(self) -> Mapping[str, int]:
        """Slots by GPU type, as configured."""
        return {name: gpu.slots for name, gpu in self.site.gpus.items()}

    def submit(self, job: JobSpec) -> Handle:
        """Write the attempt's directory and run sbatch once. See ports.Backend for what each error means."""
        paths = AttemptPaths(root=self.root, name=job.name)
        if job.gpu not in self.site.gpus:
            known = ", ".join(sorted(self.site.gpus))
            raise BackendRefused(
                self.name, f"there is no {job.gpu} here", permanent=True, hint=f"Choose one of: {known}."
            )
        if job.script is None:
            raise BackendRefused(self.name, f"job {job.name} has no script", permanent=True)
        with self._preparing():
            self._prepare(paths, job)
            there = evidence.look(paths).handle
        if there is not None:
            return there
        if job.keeper is not None:  # no scheduler is asked for it
            limit_s = math.ceil(job.time_limit_s + self.site.start_s)
            handle = self._warm.hand_over(paths, job, limit_s, self._crash_point)
            self._bell.watch([job.name])
            self._crash_point("submitted")
            return handle
        self._may_sbatch()
        self._crash_point("folder")
        try:
            handle = self._sbatch(paths, job.script)
        except BackendRefused as refused:
            anywhere = _EXCLUDE.sub("", job.script)
            if anywhere == job.script or not refused.permanent:
                raise
            # No node may be left: one that failed before is better than none.
            handle = self._sbatch(paths, anywhere)
        self._crash_point("submitted")
        return handle

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        """What is written before anything is sent: nothing has been started if that fails."""
        try:
            yield
        except OSError as error:
            message, hint = said(error, self.root, SHARED)
            raise BackendRefused(self.name, message, permanent=False, together=True, hint=hint) from None
        except HarnessChanged:
            raise BackendRefused(
                self.name,
                f"the harness in {self._eval_dir} was changed while this service ran",
                permanent=False,
                together=True,
                hint="Restart the service; the run waits until then.",
            ) from None

    def _may_sbatch(self) -> None:
        """Refuse what the pace leaves no room for."""
        if self.pace.is_resting():
            why = self.pace.report().why
            said_why = self._away or f"{NO_ANSWER}{f' ({why})' if why else ''}"
            raise BackendRefused(self.name, said_why, permanent=False, away=True)
        if not self.pace.has_room():
            raise BackendRefused(self.name, USED_UP, permanent=False, together=True)

    def find(self, name: JobName) -> Sighting:
        """Id file, claim, squeue by name, sacct by name. ABSENT only if all of the site's sources answered.

        It isn't urgent: without room in the budget it is UNKNOWN this time.
        """
        paths = self._paths(name)
        found = self._look(paths)
        sighting = found.sighting()
        if sighting is not None:
            return sighting
        if found.hand_over is not None:
            return self._warm.find(name, found, found.hand_over)
        rests = self.pace.is_resting()
        if rests or not self.pace.has_room(2 if self.site.slurm.accounting else 1):
            waiting = Seen.WAITING if found.handle is not None else Seen.UNKNOWN
            why = (self._away or NO_ANSWER) if rests else USED_UP
            return found.running() or Sighting(seen=waiting, handle=found.handle, reason=why)
        told = self._lookup.by_name(name, paths)
        if rows := self._watcher.named(name):
            return self._adopt(name, found, rows)
        if found.handle is not None:
            running = found.running()
            return running or Sighting(
                seen=Seen.WAITING, handle=found.handle, reason="submitted, but not shown by Slurm"
            )
        if not told.proves_absence:
            return Sighting(seen=Seen.UNKNOWN, reason=self._away or NO_ANSWER)
        return Sighting(seen=Seen.ABSENT)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """Read every attempt's files; then, as the pace allows, one squeue for the rest and one sacct for what
        vanished."""
        found: dict[JobName, Sighting] = {}
        unsure: dict[JobName, tuple[Handle | None, Evidence]] = {}
        warm: dict[JobName, tuple[Evidence, HandOver]] = {}
        for attempt in attempts:
            proof = self._look_softly(self._paths(attempt.name))
            sighting = proof.sighting()
            over = hand_over_of(proof, attempt.handle, attempt.keeper)
            if sighting is None and over is not None:
                sighting = self._warm.softly(attempt.name, proof, over)
            if sighting is not None:
                found[attempt.name] = sighting
            elif over is not None:
                warm[attempt.name] = (proof, over)
            else:
                # The job that claimed is the attempt; the handle may belong to a duplicate that found the claim taken
                # and exited.
                owner = Handle(proof.owner) if proof.owner else None
                unsure[attempt.name] = (owner or attempt.handle or proof.handle, proof)
        self._warm.forget_all_but({attempt.name for attempt in attempts})
        going = (Seen.WAITING, Seen.RUNNING)
        inside = [a.name for a in attempts if a.keeper is not None and (found.get(a.name) or UNSEEN).seen in going]
        self._bell.watch([*warm, *inside], only=True)
        open_ones = unsure | warm
        self._forget_but(open_ones)
        if not open_ones or not self.pace.may_look():
            self._tell_lapse(open_ones, found)
            return found | self._remembered(unsure) | {name: self._ended[name] for name in warm if name in self._ended}
        ids = {str(handle) for handle, _ in unsure.values() if handle} | {over.job for _, over in warm.values()}
        ids |= self._keepers.wanted
        told = self._lookup.by_id(ids, others=any(handle is None for handle, _ in unsure.values()))
        self._keepers.heard(told, ids)
        self._tell_lapse(open_ones, found)
        steps = self._warm.steps_if_overdue(warm)
        for name in open_ones:
            handle, proof = unsure.get(name, (None, Evidence()))
            if name in warm:
                seen = self._warm.judge(name, *warm[name], told, steps) or self._ended.get(name)
            else:
                seen = self._judge(name, handle, proof, told)
            if seen is None:
                self._doubts[name] = SILENT_KEEPER if name in warm else self._doubt(name, handle, told)
                continue
            self._doubts.pop(name, None)
            found[name] = seen
            if seen.seen is Seen.ENDED:
                self._ended[name] = seen
            else:
                self._ended.pop(name, None)
        return found

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        """The sealed report's bytes."""
        paths = self._paths(attempt.name)
        try:
            return in_spite_of_locks(paths, lambda: read_capped(paths.report, SEALED_CAP))
        except OSError as error:
            message, hint = said(error, self.root, SHARED)
            raise BackendTrouble(self.name, message, hint=hint) from None

    def doubt(self, name: JobName) -> str:
        """Why the last poll concluded nothing about this job."""
        return self._doubts.get(name, "")

    def ran_out_with_mb(self, name: JobName) -> int | None:
        """From the attempt's folder, where the job's supervisor noted both."""
        proof = self._look_softly(self._paths(name))
        return proof.granted_mb if proof.no_memory else None

    def progress(self, attempt: OpenAttempt) -> Mapping[str, Any] | None:
        """The harness's latest progress report, unchecked; read from its file, without a Slurm call."""
        try:
            told = json.loads(read_capped(self._paths(attempt.name).heartbeat, HEARTBEAT_CAP) or b"null")
        except (OSError, ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def foresee(self, script: str) -> datetime | None:
        """`sbatch --test-only` of this script: when it would start. Nothing is submitted and no file is written.

        A refusal gives no time; launching such a job reports it in full.
        """
        if self.site.submit.via == "rest":  # the API can't be asked that
            return None
        if self.pace.is_resting() or not self.pace.has_room(2):  # leave room for the launch that follows
            return None
        limit_s = min(FORESEE_S, self.site.slurm.ask_timeout_s)
        try:
            answer = self.commands.run("sbatch", ["--test-only"], timeout_s=limit_s, told=script)
        except BackendTrouble as error:
            tell("no foresight", site=self.name, why=error.message)
            return None
        at = None if answer.status else read_test_only(answer.err)
        if at is None:
            tell("no foresight", site=self.name, why=(answer.complaint or answer.err.strip() or "no word")[:300])
        return at

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        """A profile's files next to the report."""
        paths = self._paths(attempt.name)
        try:
            return in_spite_of_locks(paths, lambda: read_artifacts(paths.artifacts, names, ARTIFACT_CAP))
        except OSError as error:
            message, hint = said(error, self.root, SHARED)
            raise BackendTrouble(self.name, message, hint=hint) from None

    def cancel(self, attempt: OpenAttempt) -> None:
        """Set the marker that a job starting later obeys, then scancel by ID, or by name if there is no ID.

        Without room in the budget it is BackendRefused, for now.
        """
        paths = self._paths(attempt.name)
        try:
            if paths.dir.is_dir():
                in_spite_of_locks(paths, lambda: write_once(paths.cancelled, b""))
        except OSError as error:
            tell("no marker", level="warning", job=attempt.name, why=str(error))
        # The job that claimed is the attempt, whatever handle was recorded; a duplicate that hasn't noticed yet is
        # killed too.
        proof = self._look_softly(paths)
        over = hand_over_of(proof, attempt.handle, attempt.keeper)
        if over is not None:
            which = self._warm.to_cancel(attempt.name, proof)
        else:
            ids = sorted({str(handle) for handle in (attempt.handle, proof.handle) if handle})
            which = ids or [f"--name={attempt.name}"]
        if not which:
            return
        if not self.pace.has_room():
            raise BackendRefused(self.name, USED_UP, permanent=False)
        answer = self.commands.run("scancel", ["--quiet", *which])
        if answer.complaint and not is_gone(answer.complaint):
            raise BackendTrouble(self.name, self._lapse or f"scancel: {answer.complaint}")

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove folders of attempts without activity since this moment, at most PRUNED at a time.

        `keep`: attempts that are still open in the database, however old. A job that starts later anyway finds no
        folder to claim, and exits. Old harnesses are removed too, once no remaining attempt needs them. Makes no Slurm
        calls. Returns how many attempts were removed.
        """
        gone = self._prune_folders(self.root, before, keep)
        try:
            for harness in prune_harnesses(self._harness, self.root, before.timestamp()):
                tell("pruned harness", site=self.name, folder=harness)
        except FileNotFoundError:
            return gone  # there was never an attempt here
        except OSError as error:
            message, hint = said(error, self.root, SHARED)
            raise BackendTrouble(self.name, message, hint=hint) from None
        return gone

    def _prune_folders(self, root: Path, before: datetime, keep: Collection[str]) -> int:
        kept, gone = frozenset(keep), 0
        try:
            for entry in list(os.scandir(root)):
                if gone == PRUNED:
                    break
                if entry.name in kept or not entry.name.startswith(("kb-", "kbk-", ".new-", ".old-")):
                    continue
                if entry.is_dir(follow_symlinks=False) and _last_change(Path(entry.path)) < before.timestamp():
                    leaving = root / f".old-{secrets.token_hex(8)}"
                    Path(entry.path).rename(leaving)
                    remove_tree.remove(leaving)
                    gone += not entry.name.startswith(".")
        except FileNotFoundError:
            return gone
        except OSError as error:
            message, hint = said(error, root, SHARED)
            raise BackendTrouble(self.name, message, hint=hint) from None
        return gone

    # ----------------------------------------------------------------------------------------------------- warm workers

    def doorbell(self) -> int | None:
        """It rings for attempts in keepers, where the site allows any."""
        return self._bell.descriptor() if any(gpu.warm for gpu in self.site.gpus.values()) else None

    def close(self) -> None:
        """Close the doorbell. Running jobs keep running."""
        self._bell.close()

    def open_keeper(self, spec: KeeperSpec) -> Handle:
        """Make its folder and run sbatch once. See ports.Backend.submit for what each error means."""
        keeper = self._keepers.folder(spec.name)
        with self._preparing():
            self._stage()
            keeper.create()
            if not folder_is_ours(keeper.dir):
                raise BackendRefused(self.name, f"{keeper.dir} is accessible to others", permanent=False)
            there = evidence.look(keeper.paths).handle
        if there is not None:
            return there
        self._may_sbatch()
        self._crash_point("keeper_folder")
        handle = self._sbatch(keeper.paths, spec.script, sent="keeper_sent")
        self._crash_point("keeper_submitted")
        return handle

    def find_keeper(self, name: KeeperName) -> KeeperSighting:
        """See ports.KeepsWarm."""
        return self._keepers.find(name)

    def watch_keepers(self, keepers: Sequence[Keeper]) -> Mapping[KeeperName, KeeperSighting]:
        """See ports.KeepsWarm."""
        return self._keepers.watch(keepers)

    def drain_keeper(self, keeper: Keeper) -> None:
        """See ports.KeepsWarm."""
        self._keepers.drain(keeper)

    def end_keeper(self, keeper: Keeper) -> None:
        """See ports.KeepsWarm."""
        self._keepers.end(keeper)

    def others_wait(self, gpu: str) -> tuple[bool | None, str]:
        """See ports.KeepsWarm."""
        return self._keepers.others_wait(gpu)

    def prune_keepers(self, before: datetime, *, keep: Collection[KeeperName]) -> int:
        """See ports.KeepsWarm."""
        return self._prune_folders(keepers_folder(self.site), before, keep)

    # --------------------------------------------------------------------------------------------------- for operators

    def pace_report(self) -> PaceReport:
        """How often the scheduler is called, and the rest of the budget."""
        return replace(self.pace.report(), way=self.commands.way())

    def lapse(self) -> str:
        """Why the login node can't be reached at all, and what to type; empty if it can."""
        return self._lapse

    def calls(self) -> Mapping[str, int]:
        """How often this process ran each command."""
        return dict(self.commands.calls)

    # ------------------------------------------------------------------------------------------------------ submission

    def _stage(self) -> None:
        stage(self._eval_dir, self._harness, digest=self._harness.name.removeprefix("eval-"))

    def _prepare(self, paths: AttemptPaths, job: JobSpec) -> None:
        self._stage()
        if not self.root.is_dir():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            make_folder(self.root)
        paths.create(manifest=job.manifest, key=job.key)
        if not folder_is_ours(paths.dir):
            raise BackendRefused(self.name, f"{paths.dir} is accessible to others", permanent=False)

    def _sbatch(self, paths: AttemptPaths, script: str, *, sent: str = "sent") -> Handle:
        executor = executor_of(
            self.commands, paths.dir, script, jobs=self._jobs, crash_point=lambda _: self._crash_point(sent)
        )
        self.commands.count("sbatch")
        began = time.monotonic()
        try:
            job = executor.submit_rendered()
        except SbatchSaid as answer:
            trouble = self._refused_or_unclear(answer)
            failed = isinstance(trouble, BackendUnclear) or bool(self._lapse)
            self.pace.called(time.monotonic() - began, failed=failed, why=trouble.message if failed else "")
            raise trouble from None
        except OSError as error:
            message, hint = said(error, paths.dir, SHARED)
            raise BackendUnclear(self.name, message, hint=hint) from None
        self.pace.called(time.monotonic() - began)
        return Handle(str(job.job_id))

    def _refused_or_unclear(self, answer: SbatchSaid) -> BackendTrouble:
        self._lapse = self.commands.lapse_in(answer.status, answer.text)
        if self._lapse:
            return BackendRefused(self.name, self._away, permanent=False, away=True, hint=self._lapse)
        if answer.status in (126, 127):
            return BackendRefused(self.name, "sbatch wasn't found", permanent=False, hint="Set bin_dir under [slurm].")
        if answer.status in (124, 137):
            return BackendUnclear(self.name, f"sbatch didn't answer in {self.site.slurm.submit_timeout_s:.0f} s")
        refusal = refusal_in(answer.text) if answer.status else None
        if refusal is not None:
            said = f"the limit on our jobs there is reached ({refusal.message})" if refusal.limit else refusal.message
            together = not refusal.permanent
            return BackendRefused(
                self.name, said, permanent=refusal.permanent, together=together, hint=refusal.hint or None
            )
        first = next((line for line in answer.text.splitlines() if line.strip()), "sbatch gave no output")
        return BackendUnclear(self.name, first.strip()[:300])

    # -------------------------------------------------------------------------------------------------------- judging

    def _judge(self, name: JobName, handle: Handle | None, proof: Evidence, told: SchedulerAnswers) -> Sighting | None:
        """What files and scheduler together prove about one attempt; None changes nothing."""
        if told.queue is None:
            return self._running(name, handle, proof) or self._ended.get(name)
        row = self._row_of(name, handle)
        if row is not None:
            self._denied.pop(name, None)
            if row.phase is Phase.ENDED:  # its last files may have arrived since we checked
                proof = self._look_softly(self._paths(name))
                return proof.sighting() or self._sighting(row, proof)
            if row.phase is Phase.WAITING and came_back(row, proof):  # for a GPU, only to exit at its claim
                self._end_quietly(row.id)
            return self._sighting(row, proof)
        if proof.elsewhere and (proof.claimed or not proof.cancelled):  # else it can't start there any more
            return sighting_elsewhere(proof, handle)
        if not told.proves_absence or (handle is not None and not self._is_denied(name, handle)):
            return self._running(name, handle, proof)
        if proof.reported:
            return replace(ended_sighting(proof, Ending.REPORTED, ""), handle=handle)
        if proof.exit is not None:  # its final status mentions a signal, and Slurm no longer knows why
            return replace(killed_sighting(proof), handle=handle)
        return Sighting(
            seen=Seen.ABSENT,
            handle=handle,
            node=proof.node,
            reason="the cluster doesn't know its job any more, and it left no result",
        )

    def _doubt(self, name: JobName, handle: Handle | None, told: SchedulerAnswers) -> str:
        """What about the scheduler's answers keeps them from saying anything about this job."""
        if told.queue is None:
            return f"{NO_ANSWER}{f' ({why})' if (why := self.pace.report().why) else ''}"
        row = self._row_of(name, handle)
        if row is not None:
            return f"Slurm shows its job in a state that isn't known here, {row.state.split(' ')[0][:40]}"
        if not told.proves_absence:
            return "Slurm's answer can't be read or is incomplete"
        return "its job isn't in Slurm's list, and Slurm doesn't say that it is gone"

    def _running(self, name: JobName, handle: Handle | None, proof: Evidence) -> Sighting | None:
        """RUNNING by its claim, unless the controller has denied this job since: the claim of a killed job stays."""
        return None if handle is not None and self._denied.get(name) == handle else proof.running()

    def _is_denied(self, name: JobName, handle: Handle) -> bool:
        """Whether the controller confirms that it doesn't know this job. Queried once per vanished job.

        A job list can be cut off at a line end, by a site's cache or in transit, without any sign: absence from it
        proves nothing. A query for a single job gives a definite yes or no.
        """
        if self._denied.get(name) == handle:
            return True
        if not self.pace.has_room():
            return False
        try:
            answer = self.commands.run("scontrol", ["show", "job", "--oneliner", handle])
        except BackendTrouble as error:
            tell("no answer", level="warning", site=self.name, tool="scontrol", why=error.message)
            return False
        shown = re.search(rf"\bJobId={handle}\b.*? JobName=(\S+)", answer.out)
        if "Invalid job id" in answer.complaint or (shown is not None and shown[1] != name):
            self._denied[name] = handle
            return True
        why = "scontrol shows it" if shown is not None else f"scontrol: {answer.complaint or 'nothing'}"
        tell("not in the list, not vanished", level="warning", site=self.name, job=name, handle=handle, why=why)
        return False

    def _end_quietly(self, job: str) -> None:
        """Kill it to save the wait for a GPU. Without room in the budget it just waits, since its claim is taken."""
        if self.pace.has_room():
            self._lookup.asked("scancel", ["--quiet", job])

    def job(self, name: JobName, handle: Handle) -> KbJob:
        """An attempt's job, with its state as of the last look."""
        return self._jobs(folder=self._paths(name).dir, job_id=handle)

    def _row_of(self, name: JobName, handle: Handle | None) -> JobRow | None:
        """How the last look showed this attempt's job; an ID that Slurm has reused for another job doesn't count."""
        return self._watcher.row(name) if handle is None else self.job(name, handle).row

    def _sighting(self, row: JobRow, proof: Evidence) -> Sighting | None:
        paths = self._paths(JobName(row.name))
        if row.phase is Phase.ELSEWHERE and not proof.elsewhere:
            try:  # this cluster soon forgets its copy, and then no daemon must take the job for missing
                write_once(paths.elsewhere, b"")
            except OSError as error:
                tell("no marker", level="warning", job=row.name, why=str(error))
        return sighting_of_row(row, proof, paths, self.name)

    def _adopt(self, name: JobName, found: Evidence, rows: Sequence[JobRow]) -> Sighting:
        """Law 2: the job that claimed, else the recorded one, else the oldest; others with the name are killed."""
        ids = sorted({int(row.id) for row in rows})
        chosen = str(found.handle) if found.handle is not None else str(ids[0]) if ids else None
        for extra in ids:
            if str(extra) != chosen and any(int(r.id) == extra and r.phase is not Phase.ENDED for r in rows):
                self._end_quietly(str(extra))
        row = self._row_of(name, Handle(chosen) if chosen else None)
        seen = self._sighting(row, found) if row is not None else found.running()
        return seen or Sighting(
            seen=Seen.UNKNOWN, handle=Handle(chosen) if chosen else None, reason="its state is unknown"
        )

    # --------------------------------------------------------------------------------------------------------- memory

    def _remembered(self, unsure: Mapping[JobName, tuple[Handle | None, Evidence]]) -> dict[JobName, Sighting]:
        found = {}
        for name, (handle, proof) in unsure.items():
            seen = self._ended.get(name) or self._running(name, handle, proof)
            if seen is not None:
                found[name] = seen
        return found

    def _forget_but(self, unsure: Mapping[JobName, object]) -> None:
        with self._lock:
            for memory in (self._ended, self._denied, self._doubts):
                for name in [known for known in memory if known not in unsure]:
                    del memory[name]

    def _paths(self, name: JobName) -> AttemptPaths:
        return AttemptPaths(root=self.root, name=name)

    def _look(self, paths: AttemptPaths) -> Evidence:
        try:
            return in_spite_of_locks(paths, lambda: evidence.look(paths))
        except OSError as error:
            message, hint = said(error, self.root, SHARED)
            raise BackendTrouble(self.name, message, hint=hint) from None

    def _look_softly(self, paths: AttemptPaths) -> Evidence:
        """An unreadable directory doesn't affect the others: Slurm is queried for its attempt."""
        try:
            return in_spite_of_locks(paths, lambda: evidence.look(paths))
        except OSError as error:
            tell("can't look", level="warning", job=paths.name, why=str(error))
            return Evidence()

    @property
    def _away(self) -> str:
        """Why the scheduler can't be reached, for whoever waits."""
        return for_everybody(self._lapse)

    def _tell_lapse(self, unsure: Mapping[JobName, object], found: Mapping[JobName, Sighting]) -> None:
        """Without a way to the login node nothing more is known of these. What files prove is settled first."""
        if self._lapse and unsure and not found:
            raise BackendTrouble(self.name, self._lapse)

    def _heard(self, answer: Answer) -> None:
        self._lapse = self.commands.lapse_in(answer.status, answer.err)
        failed = bool(answer.complaint) and answer.tool in CONTROLLERS
        self.pace.called(answer.took_s, failed=failed, why=f"{answer.tool}: {answer.complaint}" if failed else "")


def _last_change(folder: Path) -> float:
    """When a file last appeared in this attempt's folder, or its report."""
    found = [folder.stat().st_mtime]
    for inner in ("out", "claim"):
        with suppress(FileNotFoundError, PermissionError):  # an unisolated job may have locked it
            found.append((folder / inner).stat().st_mtime)
    return max(found)
