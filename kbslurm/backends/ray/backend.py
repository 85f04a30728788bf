"""Ray as a backend: one job of its Jobs API per attempt, with the attempt's name as its submission ID.

    submit   keeps the sealed order in our database, then posts a job whose entrypoint knows nothing but the name
    claim    the job's first act: it asks our API for the order, which is given to one process only (law 2), and to none
             once the attempt was cancelled or given up. However often Ray starts a job, it runs at most once
    poll     both sides: what our API was told by the node, and Ray's state of the job
    collect  the result that the node delivered to our API, sealed for us

Ray is no evidence of a start, and none of an end unless it has seen the entrypoint's own exit: it fails jobs that start
all the same, forgets jobs with its head, takes living nodes for dead, and knows one process of an attempt that has two.
So a job that nobody has claimed is ended by forbidding the claim, and one that was claimed has ended when its result is
here, when Ray saw the exit code that only the claimant has, or when its node has been silent for longer than its lease,
after which the node itself has ended the run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kbslurm.backends.github import runner_program
from kbslurm.backends.paths import NAME
from kbslurm.backends.ray import node_program
from kbslurm.backends.ray.api import Answer, Api, mapping_of
from kbslurm.backends.ray.kit import boot_text
from kbslurm.backends.sealed_result import Result, opened
from kbslurm.domain.apptainer import VENDOR_OPTIONS, hardened, quoted
from kbslurm.domain.node_jobs import NodeJob
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.domain.site import Vendor
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.observe.logs import teller
from kbslurm.ports import JobSpec, NodeJobs
from kbslurm_eval.shared.wire import ARTIFACT_CAP

tell = teller("ray")

ORDER_CAP = 40 << 20
GOING_ON, OVER = frozenset({"PENDING", "RUNNING"}), frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
BEATS_PER_LEASE = 8
MOST_BEAT_S = 10.0
KEPT = 16
SAID_CAP = 200


@dataclass(frozen=True, kw_only=True)
class RayImage:
    """The image that runs are in, at this path on the nodes. `programs`: those that may run it, the first one that a
    node has. `or_own_cage`: a node with none of them uses the harness's own cage."""

    path: str
    programs: tuple[str, ...]
    digest: str = ""
    vendor: Vendor = "nvidia"
    or_own_cage: bool = False

    def told(self) -> dict[str, Any]:
        """What a node is told of it."""
        return {
            "image": self.path,
            "pinned": self.digest,
            "vendor": self.vendor,
            "gpu_option": " ".join(VENDOR_OPTIONS[self.vendor]),
            "commands": {name: " ".join(map(quoted, hardened(name, "none"))) for name in self.programs},
            "or_own_cage": self.or_own_cage,
        }


@dataclass(frozen=True, kw_only=True)
class RayGpu:
    """What a run on a GPU type asks Ray for, and how many may be open. `memory_bytes` 0: as much as its problem
    allows. `image` None: runs are in the harness's own cage."""

    num_gpus: float
    resources: Mapping[str, float]
    slots: int
    memory_bytes: int = 0
    image: RayImage | None = None


@dataclass(frozen=True, kw_only=True)
class RayNodes:
    """What the nodes have, and how they reach us."""

    service_url: str
    key_file: str
    python: str = "python3"


class RayBackend:
    """Runs jobs on one Ray cluster. A ports.Backend; nothing that matters is in memory.

    `jobs` is asked for when it is first needed, since a database may be up only later. `key` is the run key that the
    nodes hold too. `min_isolation`: below it the harness refuses to run anything of a submission. `ranked`: without it
    leaderboard runs are refused and nothing hidden is sent. `crash_point` is called with a name between any two steps
    of submitting: offering, sending, sent.
    """

    def __init__(
        self,
        api: Api,
        jobs: Callable[[], NodeJobs],
        *,
        name: str,
        gpus: Mapping[str, RayGpu],
        nodes: RayNodes,
        key: bytes,
        eval_dir: Path,
        lease_s: float = 120.0,
        min_isolation: int = 2,
        ranked: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        crash_point: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self.name, self.api, self.gpus, self.nodes = name, api, dict(gpus), nodes
        self.min_isolation, self.ranked = min_isolation, ranked
        self._jobs_of, self._key, self._lease_s, self._now = jobs, key, lease_s, now
        self._harness = runner_program.harness_digest(eval_dir)
        self._crash_point = crash_point
        self._results: dict[JobName, Result | str] = {}
        self._doubts: dict[JobName, str] = {}
        self._known: NodeJobs | None = None

    def capacity(self) -> Mapping[str, int]:
        return {gpu: asked.slots for gpu, asked in self.gpus.items()}

    def close(self) -> None:
        """Close the connections. Running jobs keep running."""
        self.api.close()
        if self._known is not None:
            self._known.close()

    @property
    def _jobs(self) -> NodeJobs:
        if self._known is None:
            self._known = self._jobs_of()
        return self._known

    # ------------------------------------------------------------------------------------------------------ starting

    def submit(self, job: JobSpec) -> Handle:
        """Keep its order, then post it. The handle is the attempt's name."""
        asked = self._fitting(job)
        sealed = self._order(job, asked.image)
        self._crash_point("offering")
        there = self._jobs.offer(_checked(job.name), self.name, sealed, self._lease_s, self._now())
        if not there.can_start or there.reported:
            return Handle(job.name)  # it was started before, or never will be: polling says which
        self._crash_point("sending")
        answer = self.api.post("/api/jobs/", self._posted(job.name, asked))
        self._crash_point("sent")
        if answer.status == 200:
            return Handle(job.name)
        if answer.status in (404, 405):
            hint = "Check the address: it is that of Ray's dashboard, http://HEAD:8265."
            why = "there is no Jobs API at its address"
            raise BackendRefused(self.name, why, permanent=False, away=True, hint=hint)
        if answer.status in (400, 413, 422):
            raise BackendRefused(self.name, f"Ray refused the job: {answer.said}", permanent=True)
        # Ray says 500 to a name that it knows, and to what it couldn't do or doesn't know that it did.
        if self._rays(job.name) is not None:
            return Handle(job.name)
        raise BackendUnclear(self.name, f"Ray answered with status {answer.status}: {answer.said}")

    def _fitting(self, job: JobSpec) -> RayGpu:
        asked = self.gpus.get(job.gpu)
        if asked is None:
            hint = f"This backend serves {', '.join(self.gpus)}."
            raise BackendRefused(self.name, f"there is no {job.gpu} here", permanent=True, hint=hint)
        if asked.memory_bytes and job.memory_bytes > asked.memory_bytes:
            raise BackendRefused(
                self.name,
                f"the problem may use {job.memory_bytes >> 20} MiB, a run there {asked.memory_bytes >> 20} MiB",
                permanent=True,
                hint=f"Raise ray.{self.name}.gpus.{job.gpu}.memory_gb.",
            )
        return asked

    def _order(self, job: JobSpec, image: RayImage | None) -> bytes:
        """All that the node needs, sealed for it."""
        order = {
            "form": node_program.FORM,
            "name": job.name,
            "manifest": self._manifest(job),
            "key": job.key.hex(),
            "time_limit_s": job.time_limit_s,
            "memory_bytes": job.memory_bytes,
            "harness": self._harness,
            "arguments": ["--min-isolation", str(self.min_isolation)] if self.min_isolation else [],
            "min_isolation": self.min_isolation,
            "container": None if image is None else image.told(),
            "lease_s": self._lease_s,
            "beat_s": min(MOST_BEAT_S, self._lease_s / BEATS_PER_LEASE),
        }
        sealed = runner_program.sealed(json.dumps(order).encode(), self._key, job.name, "order")
        if len(sealed) > ORDER_CAP:
            raise BackendRefused(
                self.name,
                f"problem and submission are {len(sealed) >> 20} MiB; a node gets at most {ORDER_CAP >> 20} MiB",
                permanent=True,
                hint="Let the problem's files make their data instead of bringing it, or run it elsewhere.",
            )
        return sealed

    def _manifest(self, job: JobSpec) -> str:
        if self.ranked:
            return job.manifest
        told = json.loads(job.manifest)
        if told["mode"] == "leaderboard":
            why, hint = f"[ray.{self.name}] ranked is false", "Set ranked = true."
            raise BackendRefused(self.name, f"{why}, so nothing from there ranks", permanent=True, hint=hint)
        told["hidden"] = []
        return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def _posted(self, name: JobName, asked: RayGpu) -> dict[str, Any]:
        """What Ray is told, and keeps for whoever has its token."""
        nodes = self.nodes
        words = [nodes.python, "-I", "-c", boot_text(), name, self.name, nodes.service_url, nodes.key_file]
        told: dict[str, Any] = {
            "submission_id": name,
            "entrypoint": f"exec {shlex.join(words)}",
            "entrypoint_resources": dict(asked.resources),
        }
        return told | ({"entrypoint_num_gpus": asked.num_gpus} if asked.num_gpus else {})

    # ------------------------------------------------------------------------------------------------------- looking

    def find(self, name: JobName) -> Sighting:
        row = self._jobs.look([_checked(name)]).get(name)
        if row is None:
            return Sighting(seen=Seen.ABSENT)  # nothing is sent before it is offered
        if _is_settled(row):
            return self._sighting(row, None)
        rays = self._rays(name)
        row = self._jobs.look([name]).get(name, row)
        if row.can_start and rays is None:
            # What Ray doesn't know it doesn't start. Should a lost request arrive after all, it is the same attempt,
            # which only one process gets.
            return Sighting(seen=Seen.ABSENT)
        return self._sighting(row, rays)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """One look at our own rows, and one call of Ray for each job that isn't settled by them."""
        if not attempts:
            return {}
        names = [attempt.name for attempt in attempts]
        rows = self._jobs.look(names)
        found: dict[JobName, Sighting] = {}
        rays: dict[JobName, Mapping[str, Any] | None] = {}
        trouble: BackendTrouble | None = None
        for name in names:
            row = rows.get(name)
            if row is None or _is_settled(row):
                continue
            try:
                rays[name] = self._rays(name)
            except BackendTrouble as error:
                trouble = error
                break
        rows = self._jobs.look(names)  # once more: a result may have come while Ray was asked
        self._doubts = {}
        for name in names:
            row = rows.get(name)
            if row is None:
                found[name] = Sighting(seen=Seen.ABSENT)
            elif name in rays:
                found[name] = self._sighting(row, rays[name])
            elif _is_settled(row):
                found[name] = self._sighting(row, None)
            elif trouble is not None:
                self._doubts[name] = trouble.message
                found[name] = self._by_its_node(row) or Sighting(seen=Seen.UNKNOWN, reason=trouble.message)
        if trouble is not None and not any(one.seen is not Seen.UNKNOWN for one in found.values()):
            raise trouble
        return found

    def _forgotten(self, row: NodeJob) -> Sighting:
        """Ray had taken it, and doesn't know it any more: another head, without the old one's store."""
        return self._never(row, Ending.VANISHED, "Ray doesn't know its job any more, and it was never started")

    def _never(self, row: NodeJob, ending: Ending, why: str) -> Sighting:
        """Make sure that it won't be started any more. It may just have been."""
        row = self._jobs.forbid(row.name, self.name, self._now(), unclaimed=True)
        if row.claimed_at is not None:
            return self._by_its_node(row) or Sighting(seen=Seen.UNKNOWN, reason=why)
        return Sighting(seen=Seen.ENDED, handle=Handle(row.name), ending=ending, reason=why)

    def _rays(self, name: JobName) -> Mapping[str, Any] | None:
        """What Ray says about the job; None if it answered that there is none."""
        answer = self.api.get(f"/api/jobs/{name}")
        if answer.status == 404:
            if "does not exist" not in str(answer.data):
                raise BackendTrouble(self.name, "what answers at its address isn't Ray's Jobs API")
            return None
        found = mapping_of(answer)
        if found.get("status") not in GOING_ON | OVER:
            said = str(found.get("status"))[:40]
            raise BackendTrouble(self.name, f"Ray says {said!r} of a job, which isn't known here")
        return found

    def _sighting(self, row: NodeJob, rays: Mapping[str, Any] | None) -> Sighting:
        """What both sides prove together."""
        if row.reported:
            return self._reported(row)
        if row.claimed_at is None:
            if row.forbidden_at is not None:
                return self._ended(row, Ending.CANCELLED, "cancelled before it started")
            return self._unclaimed(row, rays)
        status = None if rays is None else rays["status"]
        if status in GOING_ON:
            return self._running(row)
        if rays is not None and rays.get("driver_exit_code") == node_program.UNDELIVERED:
            return self._left(row)
        if row.is_silent(self._now()):
            return self._silent(row, rays)
        return self._by_its_node(row) or self._doubted(row, status)

    def _unclaimed(self, row: NodeJob, rays: Mapping[str, Any] | None) -> Sighting:
        if rays is None:
            return self._forgotten(row)
        status = rays["status"]
        if status == "PENDING":
            return Sighting(
                seen=Seen.WAITING, handle=Handle(row.name), reason="Ray has no worker free that has what it needs"
            )
        if status == "RUNNING":
            return Sighting(seen=Seen.WAITING, handle=Handle(row.name), reason="its node hasn't claimed it yet")
        if status == "STOPPED":
            return self._never(row, Ending.CANCELLED, "somebody stopped it on Ray before it started")
        said = _first_words(rays)
        return self._never(row, Ending.BOOT_FAILURE, f"Ray says {status}, and it was never started{said}")

    def _left(self, row: NodeJob) -> Sighting:
        """The process that had it says by its exit code that it couldn't deliver anything."""
        if row.forbidden_at is not None:
            return self._ended(row, Ending.CANCELLED, "it was cancelled")
        return self._ended(row, Ending.NO_REPORT, "its job on Ray ended and couldn't deliver a result")

    def _silent(self, row: NodeJob, rays: Mapping[str, Any] | None) -> Sighting:
        """Nothing was heard for longer than the lease, after which its node has ended it."""
        if row.forbidden_at is not None:
            return self._ended(row, Ending.CANCELLED, "it was cancelled, and its node is gone")
        said = "" if rays is None else str(rays.get("message"))
        if "preempt" in said.lower():
            return self._ended(row, Ending.PREEMPTED, f"its node {row.node} was preempted")
        status = None if rays is None else rays["status"]
        if status == "STOPPED":
            return self._ended(row, Ending.CANCELLED, "somebody stopped it on Ray")
        how = "Ray doesn't know its job any more" if status is None else f"Ray says {status}"
        why = f"its node {row.node} fell silent: {how}, and nothing was heard from it for {row.lease_s:g} s"
        return self._ended(row, Ending.NODE_FAILURE, why)

    def _by_its_node(self, row: NodeJob) -> Sighting | None:
        """It runs, if its node has said so lately, whatever Ray says."""
        heard_at = row.heard_at or row.claimed_at
        if heard_at is None or self._now() - heard_at > timedelta(seconds=3 * min(MOST_BEAT_S, row.lease_s)):
            return None
        return self._running(row)

    def _doubted(self, row: NodeJob, status: Any) -> Sighting:
        says = "doesn't know its job any more" if status is None else f"says {status}"
        why = f"Ray {says}, but its node may only be out of reach; known for certain after {row.lease_s:g} s of silence"
        self._doubts[row.name] = why
        return Sighting(seen=Seen.UNKNOWN, handle=Handle(row.name), reason=why)

    def _running(self, row: NodeJob) -> Sighting:
        return Sighting(seen=Seen.RUNNING, handle=Handle(row.name), node=row.node or None, started_at=row.claimed_at)

    def _ended(self, row: NodeJob, ending: Ending, why: str) -> Sighting:
        return Sighting(
            seen=Seen.ENDED,
            handle=Handle(row.name),
            node=row.node or None,
            ending=ending,
            reason=why,
            started_at=row.claimed_at,
        )

    # ------------------------------------------------------------------------------------------- what was delivered

    def _reported(self, row: NodeJob) -> Sighting:
        result = self._result(row.name)
        if not isinstance(result, Result):
            return self._ended(row, Ending.BAD_REPORT, result or "its result is gone")
        cancelled = row.forbidden_at is not None and result.ending is not Ending.REPORTED
        return Sighting(
            seen=Seen.ENDED,
            handle=Handle(row.name),
            node=result.node or row.node or None,
            ending=Ending.CANCELLED if cancelled else result.ending,
            exit_code=result.exit_code,
            reason="it was cancelled" if cancelled else result.reason,
            started_at=result.started_at or row.claimed_at,
            ended_at=result.ended_at,
        )

    def _result(self, name: JobName) -> Result | str | None:
        """The delivered result; a sentence if it isn't valid; None if there is none yet."""
        if name in self._results:
            return self._results[name]
        sealed = self._jobs.result(name)
        if sealed is None:
            return None
        try:
            found: Result | str = opened(sealed, self._key, name)
        except runner_program.OrderFailed as error:
            found = f"its result can't be opened ({error})"
        except Exception as error:  # noqa: BLE001 - whatever a result can be made to raise, it is this one's alone
            found = f"its result can't be opened ({type(error).__name__})"
        if isinstance(found, Result) and found.report is None and found.log:
            tell("ended without a report", level="warning", job=name, node=found.node, log=found.log[-2_000:])
        self._results[name] = found
        while len(self._results) > KEPT:
            self._results.pop(next(iter(self._results)))
        return found

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        result = self._result(attempt.name)
        return result.report if isinstance(result, Result) else None

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        result = self._result(attempt.name)
        if not isinstance(result, Result):
            return {}
        return {name: data for name, data in result.artifacts.items() if name in names and len(data) <= ARTIFACT_CAP}

    def progress(self, attempt: OpenAttempt) -> Mapping[str, Any] | None:
        """What its node told last."""
        try:
            row = self._jobs.look([attempt.name]).get(attempt.name)
        except BackendTrouble:
            return None
        return None if row is None else row.progress or None

    def doubt(self, name: JobName) -> str:
        return self._doubts.get(name, "")

    # -------------------------------------------------------------------------------------------------------- ending

    def cancel(self, attempt: OpenAttempt) -> None:
        """Forbid the claim, so that nothing starts and a running node is told to end; then stop the job on Ray."""
        row = self._jobs.forbid(_checked(attempt.name), self.name, self._now())
        if row.reported:
            return
        answer: Answer = self.api.post(f"/api/jobs/{attempt.name}/stop")
        if answer.status not in (200, 404):
            raise BackendTrouble(self.name, f"Ray couldn't stop it (status {answer.status}): {answer.said}")

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove orders and results that nobody has touched since. Ray's own list of jobs is Ray's."""
        return self._jobs.prune(self.name, before, keep=keep)


def _is_settled(row: NodeJob) -> bool:
    """Whether our own row says all that there is to say."""
    return row.reported or (row.claimed_at is None and row.forbidden_at is not None)


def _first_words(rays: Mapping[str, Any]) -> str:
    """Ray's reason, without the tail of a log."""
    said = str(rays.get("message") or "").partition(", last available logs")[0].strip().splitlines()
    return f": {said[0][:SAID_CAP]}" if said else ""


def _checked(name: JobName) -> JobName:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} isn't a valid job name")
    return name
