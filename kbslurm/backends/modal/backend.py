"""Modal: each attempt is one call of a deployed function, one function per GPU type. A ports.Backend.

Modal starts a call and returns its ID once, and calls can't be found by name. So what law 2 needs is recorded there, in
a Dict of the app: before a call is sent, an entry says so, and until when the call may start; afterwards its ID is
added. Every daemon reads the same entries, on whatever host. A lost ID can't be recovered: its attempt is UNKNOWN until
the call, if it exists, can't run any more (the function itself refuses to start late), and ABSENT from then on. It is
then sent again: one run may be wasted, but no two runs of an attempt overlap, and the lost one's report is never read.

Modal restarts a call's input automatically when its container is taken away or breaks; that can only be disabled for
functions without a GPU, and a container without network can't check whether it is the first. So it is detected from
here: a call whose container isn't the one in the attempt's row was restarted. It is cancelled, its report is never
accepted, and the attempt ends as preempted.

What comes back is read as bytes and never unpickled; see results.py. A handle is a call's id.
"""

from __future__ import annotations

import json
import math
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kbslurm.backends.modal.connection import CallFailed, Connection, Deployed, Outcome
from kbslurm.backends.modal.inside import PAYLOAD_VERSION
from kbslurm.backends.modal.results import Envelope, NoResult, envelope_of
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.ports import JobSpec

CALL_PREFIX, TASK_PREFIX = "fc-", "ta-"
MARGIN_S = 180.0  # between two clocks, and for what the function does before and after the harness
STARTING_S = 60.0  # extra time that a function needs beyond its job
REMEMBERED, REMEMBERED_BYTES = 16, 64 << 20
WRAPPING = 1024  # what Modal's client may put around our bytes
FAR = 1e11  # later than any clock says
DEPLOY = "Run kbslurm modal deploy; kbslurm modal check shows the current state."

# Modal's status of a finished call. SUCCESS comes with an envelope that says more.
ENDINGS: Mapping[str, tuple[Ending, str]] = {
    "FAILURE": (Ending.NO_REPORT, "the function failed; see Modal's logs"),
    "TERMINATED": (Ending.CANCELLED, "the call was cancelled"),
    "TIMEOUT": (Ending.TIMEOUT, "it hit the function's time limit"),
    "INIT_FAILURE": (Ending.IMAGE, "its container wouldn't start"),
    "INTERNAL_FAILURE": (Ending.NODE_FAILURE, "Modal itself failed"),
    "IDLE_TIMEOUT": (Ending.NO_REPORT, "its container was idle"),
    "MEMORY_MANAGER_EVICTION": (Ending.PREEMPTED, "its machine ran out of memory"),
    "MEMORY_THRASHING_EVICTION": (Ending.MEMORY, "it thrashed at its memory limit"),
    "KERNEL_OOM_KILL": (Ending.MEMORY, "it hit its memory limit"),
}


@dataclass(frozen=True, kw_only=True)
class ModalGpu:
    """The limits of one GPU type's function. `slots`: how many attempts may be open at once."""

    slots: int
    timeout_s: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """The recorded entry of an attempt. `by` identifies the write that created it."""

    by: str = ""
    gone_at: float = 0.0
    call: str = ""
    cancelled: bool = False

    @staticmethod
    def read(text: bytes | None) -> _Entry | None:
        """The entry in this text; an unreadable one counts as an intent that never ends."""
        if text is None:
            return None
        try:
            told = json.loads(text)
            return _Entry(
                by=str(told["by"]),
                gone_at=gone_at if (gone_at := float(told["gone_at"])) < FAR else math.inf,  # NaN too
                call=str(told["call"]),
                cancelled=told["cancelled"] is True,
            )
        except (ValueError, KeyError, TypeError):
            return _Entry(gone_at=math.inf)

    def text(self, **changes: Any) -> bytes:
        told = {"by": self.by, "gone_at": self.gone_at, "call": self.call, "cancelled": self.cancelled}
        return json.dumps({**told, **changes}, sort_keys=True).encode()


class ModalBackend:
    """Runs jobs as calls of the app's functions. Nothing important is in memory, so several instances can coexist.

    `harness_digest`: the required harness; an app with a different one refuses.
    `start_within_s`: how long a call may wait for a GPU. `min_isolation`: below this level the harness runs nothing
    there. `crash_point` is called with a name between any two steps of submitting: intent, placed, spawned, started.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        app: str,
        gpus: Mapping[str, ModalGpu],
        harness_digest: str,
        start_within_s: float,
        min_isolation: int = 0,
        name: str = "modal",
        margin_s: float = MARGIN_S,
        now: Callable[[], float] = time.time,
        crash_point: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self.name, self.app = name, app
        self._connection, self._gpus, self._harness_digest = connection, dict(gpus), harness_digest
        self._start_within_s, self._margin_s, self._min_isolation = start_within_s, margin_s, min_isolation
        self._now, self._crash_point = now, crash_point
        self._dict_id = ""
        self._envelopes: OrderedDict[str, tuple[str, Envelope | NoResult]] = OrderedDict()  # by call; and its container

    def capacity(self) -> Mapping[str, int]:
        return {name: gpu.slots for name, gpu in self._gpus.items()}

    def submit(self, job: JobSpec) -> Handle:
        """Record that it will be sent, send it, record its ID. Until it is sent, nothing can be lost."""
        self._check_fits(job)
        try:
            function = self._connection.function(self.app, function_name(job.gpu))
            self._check_time(job, function)
            start_by = self._now() + self._start_within_s
            payload = self._payload(job, function, start_by)
            self._crash_point("intent")
            made = self._intend(job, start_by)
        except CallFailed as trouble:
            raise self._not_sent(trouble) from None
        if isinstance(made, str):
            return Handle(made)
        self._crash_point("placed")
        call = self._spawn(job, function, payload)
        self._crash_point("spawned")
        try:
            self._connection.write(self._dict(), job.name, made.text(call=call))
        except CallFailed:
            pass  # the caller has the ID now, and its database row is the better place for it
        self._crash_point("started")
        return Handle(call)

    def find(self, name: JobName) -> Sighting:
        try:
            entry = _Entry.read(self._connection.entry(self._dict(), name))
            if entry is None:
                return Sighting(seen=Seen.ABSENT)
            if not entry.call:
                return self._lost(entry)
            outcome = self._connection.outcomes([entry.call])[entry.call]
        except CallFailed as trouble:
            raise self._trouble(trouble) from None
        return self._seen(entry.call, outcome)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """Each call is queried, several at a time: Modal has no batch query."""
        found: dict[JobName, Sighting] = {}
        calls: dict[str, OpenAttempt] = {}
        for attempt in attempts:
            call = _call_of(attempt)
            if call:
                calls[call] = attempt
            else:
                found[attempt.name] = self.find(attempt.name)
        if not calls:
            return found
        try:
            outcomes = self._connection.outcomes(list(calls))
        except CallFailed as trouble:
            raise self._trouble(trouble) from None
        troubles = [outcome for outcome in outcomes.values() if isinstance(outcome, CallFailed)]
        if len(troubles) == len(outcomes) and not any(one.status == "NOT_FOUND" for one in troubles):
            raise self._trouble(troubles[0])
        for call, outcome in outcomes.items():
            attempt = calls[call]
            if isinstance(outcome, Outcome) and _was_started_again(attempt, outcome.task):
                found[attempt.name] = self._started_again(attempt, call, outcome)
            else:
                found[attempt.name] = self._seen(call, outcome)
        return found

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        envelope = self._envelope_of(attempt)
        return None if envelope is None else envelope.report

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        envelope = self._envelope_of(attempt)
        brought = {} if envelope is None else envelope.artifacts
        return {name: brought[name] for name in names if name in brought}

    def cancel(self, attempt: OpenAttempt) -> None:
        """Cancel the call if its ID is known. Else set a mark: if it isn't sent yet, it never will be."""
        try:
            call = _call_of(attempt)
            if not call:
                entry = _Entry.read(self._connection.entry(self._dict(), attempt.name))
                if entry is None and self._connection.write(
                    self._dict(), attempt.name, _Entry().text(cancelled=True), new=True
                ):
                    return
                entry = entry or _Entry.read(self._connection.entry(self._dict(), attempt.name)) or _Entry()
                if not entry.call:
                    self._connection.write(self._dict(), attempt.name, entry.text(cancelled=True))
                    return
                call = entry.call
            self._connection.cancel(call)
        except CallFailed as trouble:
            if trouble.status == "NOT_FOUND":
                return
            raise self._trouble(trouble) from None

    def close(self) -> None:
        """Close the connection. Running jobs keep running."""
        self._connection.close()

    # --------------------------------------------------------------------------------------------- submitting

    def _check_fits(self, job: JobSpec) -> None:
        gpu = self._gpus.get(job.gpu)
        if gpu is None:
            raise self._refused(f"there is no {job.gpu} here", f"This backend serves {', '.join(self._gpus)}.")
        if job.memory_bytes > gpu.memory_bytes:
            raise self._refused(
                f"the problem may use {job.memory_bytes >> 20} MiB, {job.gpu} functions {gpu.memory_bytes >> 20} MiB",
                f"Raise modal.gpus.{job.gpu}.memory_gb, and run kbslurm modal deploy.",
            )
        self._check_limit(job, gpu.timeout_s)

    def _check_time(self, job: JobSpec, function: Deployed) -> None:
        if function.timeout_s:
            self._check_limit(job, function.timeout_s)

    def _check_limit(self, job: JobSpec, timeout_s: float) -> None:
        if job.time_limit_s + STARTING_S > timeout_s:
            raise self._refused(
                f"the job may take {job.time_limit_s:g} s, but the {job.gpu} function is limited to {timeout_s:g} s",
                f"Raise modal.gpus.{job.gpu}.timeout_s, and run kbslurm modal deploy.",
            )

    def _payload(self, job: JobSpec, function: Deployed, start_by: float) -> bytes:
        """All that the container needs; Refused if it can't be given that much."""
        cap = function.object_cap - WRAPPING
        told = {
            "version": PAYLOAD_VERSION,
            "name": job.name,
            "manifest": job.manifest,
            "key": job.key.hex(),
            "time_limit_s": job.time_limit_s,
            "start_by": start_by,
            "min_isolation": self._min_isolation,
            "harness_digest": self._harness_digest,
            "result_cap": cap,
        }
        payload = zlib.compress(json.dumps(told, sort_keys=True).encode())
        if len(payload) > cap:
            raise self._refused(
                f"problem and submission are {len(payload) / (1 << 20):.1f} MiB, and a container without a network "
                f"gets at most {function.object_cap / (1 << 20):.1f} MiB",
                "Let the problem's files make their data instead of bringing it, or run it elsewhere.",
            )
        return payload

    def _intend(self, job: JobSpec, start_by: float) -> _Entry | str:
        """Our entry, now written down; or what the handle is of a job that was sent, or forbidden, before."""
        intent = _Entry(by=secrets.token_hex(16), gone_at=start_by + job.time_limit_s + self._margin_s)
        attempts = self._dict()
        for _ in range(2):
            if self._connection.write(attempts, job.name, intent.text(), new=True):
                return intent
            there = _Entry.read(self._connection.entry(attempts, job.name))
            if there is None:
                continue
            if there.by == intent.by and not there.call and not there.cancelled:
                return intent  # our own write, repeated after its answer was lost
            if there.call:
                return there.call
            if there.cancelled and self._now() > there.gone_at:
                return str(job.name)
            if self._now() <= there.gone_at:
                break
            self._connection.remove(
                attempts, job.name
            )  # so that of two processes that see it gone, only one can write the next
        raise BackendUnclear(self.name, "it may have been sent before, and its ID was lost")

    def _spawn(self, job: JobSpec, function: Deployed, payload: bytes) -> str:
        try:
            return self._connection.spawn(function, payload)
        except CallFailed as trouble:
            if not trouble.definite:
                raise BackendUnclear(self.name, f"it may have been started: {trouble.said}") from None
            try:
                self._connection.remove(self._dict(), job.name)
            except CallFailed:
                pass  # it stays an intent, and is checked again once it can't run any more
            raise self._not_sent(trouble) from None

    def _not_sent(self, trouble: CallFailed) -> BackendTrouble:
        """The meaning of a refusal, or no answer, before anything was sent."""
        match trouble.status:
            case "NOT_FOUND":
                why = f"the app {self.app} isn't of this kbslurm or lacks the GPU type: run kbslurm modal deploy"
                return self._refused(why, DEPLOY)
            case "UNAUTHENTICATED" | "PERMISSION_DENIED":
                hint = "Set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET to a token that can use the app."
                said = f"the token was rejected: {trouble.said}"
                return BackendRefused(self.name, said, permanent=False, away=True, hint=hint)
            case _:
                return BackendRefused(self.name, f"nothing was sent: {trouble.said}", permanent=False, away=True)

    # ------------------------------------------------------------------------------------------------ looking

    def _lost(self, entry: _Entry) -> Sighting:
        if self._now() <= entry.gone_at:
            until = (
                "" if math.isinf(entry.gone_at) else f" until {datetime.fromtimestamp(entry.gone_at, UTC):%H:%M} UTC"
            )
            return Sighting(seen=Seen.UNKNOWN, reason=f"it may have been sent, and may run{until}")
        if entry.cancelled:
            return Sighting(seen=Seen.ENDED, ending=Ending.CANCELLED, reason="cancelled before it started")
        return Sighting(seen=Seen.ABSENT, reason="even if it was sent, it can't run any more")

    def _seen(self, call: str, outcome: Outcome | CallFailed) -> Sighting:
        if isinstance(outcome, CallFailed):
            gone = outcome.status == "NOT_FOUND"
            return Sighting(seen=Seen.ABSENT if gone else Seen.UNKNOWN, handle=Handle(call), reason=outcome.said)
        return self._sighting(call, outcome)

    def _started_again(self, attempt: OpenAttempt, call: str, outcome: Outcome) -> Sighting:
        """Modal restarted it: an attempt runs only once, so this one ends. The row keeps the first run's container and
        start."""
        if not outcome.status:
            try:
                self._connection.cancel(call)
            except CallFailed:
                pass  # it is requested at the next poll
            why = "Modal took its container away and restarted it: it is being cancelled"
            return Sighting(seen=Seen.RUNNING, handle=Handle(call), node=attempt.node, reason=why)
        return Sighting(
            seen=Seen.ENDED,
            handle=Handle(call),
            node=attempt.node,
            ending=Ending.PREEMPTED,
            reason="Modal took its container away; an attempt runs once, so the restarted one doesn't count",
            ended_at=_moment(outcome.ended_at),
        )

    def _sighting(self, call: str, outcome: Outcome) -> Sighting:
        handle, node = Handle(call), outcome.task or None
        if outcome.expired:
            why = "its result has expired on Modal"
            return Sighting(seen=Seen.ENDED, handle=handle, ending=Ending.NO_REPORT, reason=why)
        if not outcome.status:
            if not outcome.began:
                return Sighting(seen=Seen.WAITING, handle=handle, reason="waiting for a GPU on Modal")
            began = datetime.fromtimestamp(
                self._now(), UTC
            )  # at the latest: the exact time is reported once it has ended
            return Sighting(seen=Seen.RUNNING, handle=handle, node=node, started_at=began)
        code, reason = outcome.exit_code, ""
        if outcome.status == "SUCCESS":
            try:
                envelope = self._opened(call, outcome)
                ending, code, reason = envelope.ending, envelope.exit_code, envelope.reason
            except NoResult as error:
                ending, reason = Ending.BAD_REPORT, f"what the function returned isn't an envelope: {error}"
        else:
            ending, reason = ENDINGS.get(outcome.status, (Ending.NO_REPORT, f"it ended as {outcome.status}"))
        return Sighting(
            seen=Seen.ENDED,
            handle=handle,
            node=node,
            ending=ending,
            exit_code=code,
            reason=reason,
            started_at=_moment(outcome.started_at),
            ended_at=_moment(outcome.ended_at),
        )

    def _envelope_of(self, attempt: OpenAttempt) -> Envelope | None:
        try:
            call = _call_of(attempt)
            if not call:
                entry = _Entry.read(self._connection.entry(self._dict(), attempt.name))
                call = "" if entry is None else entry.call
            if not call:
                return None
            if call in self._envelopes:
                task, known = self._envelopes[call]
                return None if isinstance(known, NoResult) or _was_started_again(attempt, task) else known
            outcome = self._connection.outcomes([call])[call]
            if isinstance(outcome, CallFailed):
                if outcome.status == "NOT_FOUND":
                    return None
                raise outcome
            if _was_started_again(attempt, outcome.task):
                return None
            return self._opened(call, outcome) if outcome.status == "SUCCESS" else None
        except NoResult:
            return None
        except CallFailed as trouble:
            raise self._trouble(trouble) from None

    def _opened(self, call: str, outcome: Outcome) -> Envelope:
        """The envelope of a finished call. The last few are cached, so that a large one is fetched once."""
        known: Envelope | NoResult
        if call in self._envelopes:
            _, known = self._envelopes[call]
        else:
            try:
                data = self._connection.blob(outcome.blob) if outcome.blob else outcome.data
                known = envelope_of(data or b"", outcome.shape)
            except NoResult as error:
                known = error
            except CallFailed as trouble:
                raise self._trouble(trouble) from None
            self._envelopes[call] = outcome.task, known
            size = sum(_size(one) for _, one in self._envelopes.values())
            while len(self._envelopes) > 1 and (len(self._envelopes) > REMEMBERED or size > REMEMBERED_BYTES):
                size -= _size(self._envelopes.popitem(last=False)[1][1])
        if isinstance(known, NoResult):
            raise known
        return known

    def _dict(self) -> str:
        if not self._dict_id:
            self._dict_id = self._connection.dict_id(f"{self.app}-attempts")
        return self._dict_id

    # ------------------------------------------------------------------------------------------------ troubles

    def _refused(self, why: str, hint: str) -> BackendRefused:
        return BackendRefused(self.name, why, permanent=True, hint=hint)

    def _trouble(self, trouble: CallFailed) -> BackendTrouble:
        return BackendTrouble(self.name, f"Modal couldn't be reached: {trouble.said}")


def function_name(gpu: str) -> str:
    """The name of this GPU type's function in the app. It names the payload's version: a function that can't read what
    we send isn't found, so nothing is sent to it."""
    return f"judge-v{PAYLOAD_VERSION}-" + "".join(one if one.isalnum() or one in "-_" else "-" for one in gpu)


def _call_of(attempt: OpenAttempt) -> str:
    """The ID of the attempt's call, if its row has one."""
    return attempt.handle if attempt.handle is not None and attempt.handle.startswith(CALL_PREFIX) else ""


def _was_started_again(attempt: OpenAttempt, task: str) -> bool:
    """Whether the call is in a different container than the one in which the attempt was first seen."""
    first = attempt.node or ""
    return first.startswith(TASK_PREFIX) and task.startswith(TASK_PREFIX) and task != first


def _size(envelope: Envelope | NoResult) -> int:
    if isinstance(envelope, NoResult):
        return 0
    return len(envelope.report or b"") + sum(map(len, envelope.artifacts.values()))


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
