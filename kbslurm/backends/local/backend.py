"""The local backend: real processes on this machine, each attempt with its own folder and supervisor.

Nothing is kept in memory. Any process that opens the same root finds every attempt by its folder: a claim shows that it
was started, the claim's owner (pid, start time and boot, so that a reused pid isn't mistaken for it) whether it is
still running, exit.json how it ended, and a lock that dies with its holders whether it is just being started.

Linux only: the supervisor lives by /proc, subreapers and parent-death signals. The memory limit is for what the
harness starts, not for the harness; it is enforced by checking the process tree four times a second, and the harness's
own limits stop what grows faster. Manifest, key and working folder are removed when a job has ended. A slot is a
permission, not a device: with more slots of one GPU type than one, jobs share what CUDA_VISIBLE_DEVICES shows.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.backends.local.evidence import Owner, boot_id, kill_what_is_left, process_start
from kbslurm.backends.paths import (
    FOLDER_MODE,
    AttemptPaths,
    in_spite_of_locks,
    is_there,
    read_artifacts,
    read_capped,
    said,
    write_once,
)
from kbslurm.backends.supervisor_exit import blamed
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, Misconfigured
from kbslurm.ports import JobSpec
from kbslurm_eval.shared import remove_tree
from kbslurm_eval.shared.wire import ARTIFACT_CAP, REPORT_CAP

SUPERVISE = Path(__file__).with_name("supervise.py")
# A sealed report contains the report as a JSON string, so every quotation mark in it takes two bytes.
SEALED_CAP = 2 * REPORT_CAP
NOTE_CAP = 65_536
LOG_BYTES = 1 << 20
LOOK_EVERY_S = 0.25
HANDED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
MARK = "KBSLURM_ATTEMPT"
DOORBELLS = "doorbells"
NOT_STARTED = "cancelled before it started"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of the attempt's own in it


def pass_by(_step: str) -> None:
    """A crash point's action outside tests: nothing."""


class LocalBackend:
    """Runs jobs as processes of this machine. A ports.Backend; all state is in `root`, so several instances can
    coexist.

    `slots` is how many attempts may be open per GPU type, `eval_dir` the harness's folder, `python` what runs it.
    `crash_point` is called with a name between any two steps of submitting: folder, placed, held, forked, started.
    `profiler`: what may run around a runner for a profile.
    Raises Misconfigured if this machine or these folders can't be used.
    """

    def __init__(
        self,
        root: Path,
        slots: Mapping[str, int],
        eval_dir: Path,
        python: Path,
        name: str = "local",
        *,
        crash_point: Callable[[str], None] = pass_by,
        profiler: str = "none",
    ) -> None:
        self.name = name
        self.root = root.absolute()
        self.slots = dict(slots)
        self.eval_dir = eval_dir.absolute()
        self.python = python.absolute()
        self.crash_point = crash_point
        self.profiler = profiler
        self._bell: int | None = None
        self._bell_file: Path | None = None
        self._check()

    def capacity(self) -> Mapping[str, int]:
        return self.slots

    def submit(self, job: JobSpec) -> Handle:
        """Make the folder and start the supervisor. `job.directory` and `job.script` are ignored."""
        paths = self.paths(job.name)
        if job.gpu not in self.slots:
            raise BackendRefused(
                self.name,
                f"there is no {job.gpu} here",
                permanent=True,
                hint=f"This backend serves {', '.join(self.slots)}.",
            )
        try:
            self.crash_point("folder")
            paths.create(manifest=job.manifest, key=job.key, order=self._order(job, paths))
            self.crash_point("placed")
            if not is_there(paths.claim):
                self._start_supervisor(paths)
        except OSError as error:
            # Whatever failed, no supervisor of ours is alive: starting it is the last step, and it either forks or not.
            sentence, hint = said(error, self.root)
            raise BackendRefused(self.name, sentence, permanent=False, hint=hint) from error
        self.crash_point("started")
        return Handle(job.name)

    def find(self, name: JobName) -> Sighting:
        paths = self.paths(name)
        with self._looking():
            return in_spite_of_locks(paths, lambda: self._look(paths))

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        """As `find`, for many. Empties the doorbell first, so that the next wait notices any later ring."""
        self._empty_doorbell()
        found: dict[JobName, Sighting] = {}
        with self._looking():
            for attempt in attempts:
                paths = self.paths(attempt.name)
                try:
                    found[attempt.name] = in_spite_of_locks(paths, partial(self._look, paths))
                except OSError as error:
                    found[attempt.name] = Sighting(seen=Seen.UNKNOWN, reason=said(error, self.root)[0])
        return found

    def collect(self, attempt: OpenAttempt) -> bytes | None:
        paths = self.paths(attempt.name)
        with self._looking():
            return in_spite_of_locks(paths, lambda: read_capped(paths.report, SEALED_CAP))

    def artifacts(self, attempt: OpenAttempt, names: Sequence[str]) -> Mapping[str, bytes]:
        paths = self.paths(attempt.name)
        with self._looking():
            return in_spite_of_locks(paths, lambda: read_artifacts(paths.artifacts, names, ARTIFACT_CAP))

    def cancel(self, attempt: OpenAttempt) -> None:
        """Set the cancel mark, then take the claim if it is free (then the job never runs), else signal its owner."""
        paths = self.paths(attempt.name)
        with self._looking():
            in_spite_of_locks(paths, lambda: self._cancel(paths))

    def _cancel(self, paths: AttemptPaths) -> None:
        if paths.forbid(self._own_note()) or is_there(paths.exit):
            return
        write_once(paths.cancelled, b"")
        if paths.take_claim(self._own_note()):
            # The next check settles it: nothing will ever start under this claim.
            return
        owner = self._owner(paths)
        if owner is not None and owner.supervises:
            owner.send(signal.SIGTERM)

    def progress(self, attempt: OpenAttempt) -> Mapping[str, Any] | None:
        """The harness's latest progress report, unchecked and only for display. None if there is none."""
        try:
            return _json(read_capped(self.paths(attempt.name).heartbeat, NOTE_CAP))
        except OSError:
            return None

    def doorbell(self) -> int | None:
        """A descriptor that becomes readable when a job here starts or ends; `poll` empties it. Only a hint.

        Every process that asks gets its own bell and every ring, so a standby doesn't take any from the leader.
        """
        if self._bell is None:
            place = self.root / DOORBELLS / secrets.token_hex(8)
            # Ringing removes bells without a listener, so ours gets its name once we listen.
            unheard = place.with_name(f".{place.name}")
            try:
                os.mkfifo(unheard, 0o600)
                self._bell = os.open(unheard, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                unheard.rename(place)
                self._bell_file = place
            except OSError:
                self.close()
        return self._bell

    def close(self) -> None:
        """Close the doorbell. Running jobs keep running."""
        if self._bell is not None:
            os.close(self._bell)
            self._bell = None
        if self._bell_file is not None:
            with suppress(OSError):
                self._bell_file.unlink()
            self._bell_file = None

    def prune(self, before: datetime, *, keep: Collection[JobName]) -> int:
        """Remove the folders of attempts that ended before this moment, and half-made ones of killed submitters.

        `keep`: attempts that are still open in the database; however old, their reports still have to be collected.
        Nothing that is running or may still start is touched. Returns how many were removed.
        """
        kept = frozenset(keep)
        gone = 0
        with self._looking():
            for entry in list(os.scandir(self.root)):
                if (
                    not entry.is_dir(follow_symlinks=False)
                    or entry.stat(follow_symlinks=False).st_mtime > before.timestamp()
                ):
                    continue
                if entry.name.startswith((".new-", ".old-")):
                    remove_tree.remove(entry.path)
                elif entry.name.startswith("kb-") and entry.name not in kept:
                    paths = self.paths(JobName(entry.name))
                    gone += in_spite_of_locks(paths, partial(self._prune_one, paths, before))
        return gone

    def paths(self, name: JobName) -> AttemptPaths:
        """The paths of this attempt."""
        return AttemptPaths(root=self.root, name=name)

    # ---------------------------------------------------------------------------------------------- looking

    def _look(self, paths: AttemptPaths) -> Sighting:
        """What the folder shows. Each sign is read again after any that could have changed it."""
        if (ended := self._ended(paths)) is not None:
            return ended
        owner = self._owner(paths)
        if owner is None and not is_there(paths.claim):
            waits = paths.may_still_start()
            if not is_there(paths.claim):
                return self._unclaimed(paths, waits)
            owner = self._owner(paths)
        if owner is None:
            return Sighting(seen=Seen.UNKNOWN, reason="the record of its owner can't be read")
        if not owner.supervises:
            return self._settle(paths, Ending.CANCELLED, NOT_STARTED, started_at=None)
        if owner.lives():
            return self._sighting(Seen.RUNNING, started_at=owner.at)
        return self._ended(paths) or self._bury(paths, owner)

    def _unclaimed(self, paths: AttemptPaths, waits: bool) -> Sighting:
        if is_there(paths.cancelled):
            return self._sighting(Seen.ENDED, ending=Ending.CANCELLED, reason=NOT_STARTED)
        return self._sighting(Seen.WAITING) if waits else Sighting(seen=Seen.ABSENT)

    def _ended(self, paths: AttemptPaths) -> Sighting | None:
        facts = _json(read_capped(paths.spelled(paths.EXIT), NOTE_CAP))
        if facts is None:
            return None
        try:
            return self._sighting(
                Seen.ENDED,
                ending=blamed(Ending(facts["ending"]), facts.get("exit_code"), checking=facts.get("checking") is True),
                exit_code=facts.get("exit_code"),
                reason=str(facts.get("reason", "")),
                started_at=_moment(facts.get("started_at")),
                ended_at=_moment(facts.get("ended_at")),
            )
        except (KeyError, ValueError, TypeError):
            return None

    def _bury(self, paths: AttemptPaths, owner: Owner) -> Sighting:
        """Its supervisor died without a result: kill what it left, and record what can still be known."""
        left = kill_what_is_left(owner, f"{MARK}={paths.name}")
        if read_capped(paths.report, SEALED_CAP) is not None:
            ending, reason = Ending.REPORTED, ""
        elif is_there(paths.cancelled):
            ending, reason = Ending.CANCELLED, "cancelled"
        elif owner.boot != boot_id():
            ending, reason = Ending.NO_REPORT, "the machine was restarted while it ran"
        else:
            ending, reason = Ending.NO_REPORT, "it was killed from outside together with its supervisor"
        if left:
            reason = f"{reason}; {left} of its processes had to be killed".lstrip("; ")
        return self._settle(paths, ending, reason, started_at=owner.at)

    def _settle(self, paths: AttemptPaths, ending: Ending, reason: str, *, started_at: datetime | None) -> Sighting:
        """Record how it ended, unless that has been recorded; returns the record."""
        paths.forget_secrets()
        remove_tree.remove(_work_folder(paths))
        facts = {
            "ending": ending.value,
            "exit_code": None,
            "reason": reason,
            "started_at": started_at.timestamp() if started_at else None,
            "ended_at": datetime.now(UTC).timestamp(),
            "peak_bytes": 0,
        }
        write_once(paths.exit, json.dumps(facts, sort_keys=True).encode())
        return self._ended(paths) or self._sighting(Seen.ENDED, ending=ending, reason=reason, started_at=started_at)

    def _owner(self, paths: AttemptPaths) -> Owner | None:
        return Owner.read(_json(read_capped(paths.spelled(paths.OWNER), NOTE_CAP)))

    def _sighting(
        self,
        seen: Seen,
        *,
        ending: Ending | None = None,
        exit_code: int | None = None,
        reason: str = "",
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
    ) -> Sighting:
        return Sighting(
            seen=seen,
            node=platform.node(),
            ending=ending,
            exit_code=exit_code,
            reason=reason,
            started_at=started_at,
            ended_at=ended_at,
        )

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """A missing root says nothing about its attempts: a disk may be unmounted. Missing isn't finished."""
        try:
            (self.root / DOORBELLS).stat()
            yield
        except OSError as error:
            sentence, hint = said(error, self.root)
            raise BackendTrouble(self.name, sentence, hint=hint) from error

    # --------------------------------------------------------------------------------------------- starting

    def _start_supervisor(self, paths: AttemptPaths) -> None:
        """Start it and wait until it has detached, a few milliseconds. It takes the claim itself, or loses and
        exits."""
        with paths.about_to_start() as sign:
            self.crash_point("held")
            log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                leaving = subprocess.Popen(
                    [self.python, "-I", "-S", SUPERVISE, paths.order, str(sign)],
                    cwd=paths.dir,
                    env=self._environment(paths),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(sign,),
                )
            except OSError as error:
                raise self._not_started(paths, error.strerror or str(error)) from error
            finally:
                os.close(log)
            self.crash_point("forked")
            code = leaving.wait()
        if code > 0:
            raise self._not_started(paths, f"exit code {code}")
        if code < 0:
            raise BackendUnclear(self.name, f"something killed {self.python} (signal {-code}) while it started a job")

    def _not_started(self, paths: AttemptPaths, why: str) -> BackendRefused:
        return BackendRefused(
            self.name,
            f"{self.python} couldn't start a job's supervisor: {why}",
            permanent=False,
            hint=f"Its output, if any, is in {paths.log}.",
        )

    def _order(self, job: JobSpec, paths: AttemptPaths) -> bytes:
        order = {
            "argv": [
                *("-I", str(self.eval_dir), str(paths.manifest)),
                *("--key", str(paths.key), "--out", str(paths.out), "--work", str(_work_folder(paths))),
            ],
            "environment": self._environment(paths),
            "time_limit_s": job.time_limit_s,
            "memory_bytes": job.memory_bytes,
            "look_every_s": LOOK_EVERY_S,
            "log_bytes": LOG_BYTES,
            "report_cap": SEALED_CAP,
            "boot": boot_id(),
            "claim": str(paths.claim),
            "owner": str(paths.owner),
            "cancelled": str(paths.cancelled),
            "scratch": str(paths.scratch),
            "work": str(_work_folder(paths)),
            "secrets": [str(path) for path in paths.secrets],
            "report": str(paths.report),
            "checking": str(paths.checking),
            "exit": str(paths.exit),
            "log": str(paths.log),
            "doorbells": str(self.root / DOORBELLS),
        }
        return json.dumps(order, sort_keys=True).encode()

    def _environment(self, paths: AttemptPaths) -> dict[str, str]:
        """A short list, never our own environment, which contains secrets."""
        handed_on = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
        handed_on |= {} if self.profiler == "none" else {"KBSLURM_PROFILER": self.profiler}
        own = {MARK: paths.name, "HOME": str(paths.scratch), "TMPDIR": str(paths.scratch)}
        return {"PATH": os.defpath, **handed_on, **own}

    def _own_note(self) -> bytes:
        """The owner record of a claim that is taken only so that nobody else can."""
        pid = os.getpid()
        owner = {
            "pid": pid,
            "start": process_start(pid),
            "boot": boot_id(),
            "at": datetime.now(UTC).timestamp(),
            "supervises": False,
        }
        return json.dumps(owner, sort_keys=True).encode()

    # ---------------------------------------------------------------------------------------------- the rest

    def _prune_one(self, paths: AttemptPaths, before: datetime) -> bool:
        if not is_there(paths.exit):
            # Never started, and our claim keeps it so. Everything else is alive or was just settled by this check.
            if self._look(paths).seen is not Seen.ABSENT or not paths.take_claim(self._own_note()):
                return False
        elif paths.exit.stat().st_mtime > before.timestamp():
            return False
        remove_tree.remove(_work_folder(paths))
        leaving = self.root / f".old-{paths.name}-{secrets.token_hex(4)}"
        paths.dir.rename(leaving)
        remove_tree.remove(leaving)
        return True

    def _empty_doorbell(self) -> None:
        if self._bell is None:
            return
        try:
            while os.read(self._bell, 65536):
                pass
        except BlockingIOError:
            pass

    def _check(self) -> None:
        if sys.platform != "linux":
            raise Misconfigured(
                f"the local backend needs Linux, but this is {platform.system()}",
                fix="Run the daemon on a Linux machine, or configure another backend.",
            )
        if not (self.eval_dir / "__main__.py").is_file():
            raise Misconfigured(
                f"the harness isn't at {self.eval_dir}", fix="Set it to the folder that contains __main__.py."
            )
        if not os.access(self.python, os.X_OK):
            raise Misconfigured(f"there is no Python at {self.python}", fix="Set it to a Python 3.11 or newer.")
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(FOLDER_MODE, exist_ok=True)
            (self.root / DOORBELLS).mkdir(FOLDER_MODE, exist_ok=True)
        except OSError as error:
            sentence, hint = said(error, self.root)
            raise Misconfigured(sentence, fix=hint) from error


def _work_folder(paths: AttemptPaths) -> Path:
    """The shared memory folder of harness and runners, named after the attempt so that we can clean up after a killed
    one."""
    return (SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else paths.scratch) / paths.name


def _json(data: bytes | None) -> dict[str, Any] | None:
    """The JSON object in one of our files; None if it is missing or invalid (a job may have modified it)."""
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
