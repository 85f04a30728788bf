"""The contract of ports.Backend as tests. Every adapter passes it: subclass BackendContract, give it a `case` fixture.

The jobs are real: they run `local_fake_eval.py` as a harness (`make_eval` lays it out) and leave real traces. Nothing
here asks how long something took; `case.wait_s` only says when to stop waiting and call it broken.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.domain.run import (
    AttemptId,
    AttemptState,
    Ending,
    Handle,
    JobName,
    OpenAttempt,
    RunId,
    Seen,
    Sighting,
    new_job_name,
)
from kbslurm.errors import BackendRefused, BackendUnclear
from kbslurm.flow.script import KEEPER, SUPERVISOR
from kbslurm.ports import Backend, JobSpec
from kbslurm_eval.shared import wire
from tests.services import pointless

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "kb-test-secret-4711"
POLL_AFTER_S, POLL_EVERY_S = 0.02, 0.2  # at first, and at the most


class BackendCase(Protocol):
    """What the suite needs to know of an adapter, and do to it.

    name, gpu          the backend's name and a GPU type that it serves
    folder             a folder that the jobs see, too: they count their executions there
    wait_s             when waiting for a job's next state is given up; generous
    time_limit_s       the shortest time limit that the backend can enforce
    enforces_memory    whether a job over its memory is ended by the backend
    steps              the names of the places in submit() at which it can be killed
    lost_at            those of them after which a job that was started can't be found again, ever
    """

    name: str
    gpu: str
    folder: Path
    wait_s: float
    time_limit_s: float
    enforces_memory: bool
    steps: Sequence[str]
    lost_at: Sequence[str]

    def backend(self) -> Backend:
        """A new one, as a new process would make it: what it knows, it has from outside."""

    def finished(self, job: JobSpec) -> JobSpec:
        """The job with what the room `render` adds for this backend (directory, script)."""

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        """Submit in another process, which is killed (SIGKILL) at this step."""

    def submit_unstarted(self, job: JobSpec) -> None:
        """Submit so that it doesn't start before `let_start`."""

    def let_start(self, job: JobSpec) -> None: ...

    def wait_out(self, job: JobSpec) -> None:
        """Until a job that was perhaps started, and can't be found, can't run any more."""

    def paths(self, name: JobName) -> AttemptPaths | None:
        """Where the attempt's folder is, if the backend has one on this disk."""


def make_eval(folder: Path) -> Path:
    """A harness folder with the stand-in for a program and the real wire."""
    for file in ("__init__.py", "shared/__init__.py", "shared/wire.py"):
        placed = folder / "kbslurm_eval" / file
        placed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "eval" / "kbslurm_eval" / file, placed)
    shutil.copy(Path(__file__).with_name("local_fake_eval.py"), folder / "__main__.py")
    for file in (SUPERVISOR, KEEPER):
        shutil.copy(REPOSITORY / "eval" / file, folder / file)
    return folder


def key_of(name: JobName) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def make_job(
    case: BackendCase, do: str, *, time_limit_s: float = 600.0, memory_bytes: int = 1 << 30, **config: Any
) -> JobSpec:
    """A job that does this (see local_fake_eval.py) and counts its executions."""
    name = new_job_name()
    manifest = wire.Manifest(
        version=wire.WIRE_VERSION,
        token=name,
        attempt=1,
        nonce="nonce",
        mode="test",
        problem="stand-in",
        problem_digest="digest",
        lang="py",
        gpu=case.gpu,
        files={},
        runner_files=[],
        source="",
        tests=[],
        benchmarks=[],
        hidden=[],
        secret_seed="1",
        config={"do": do, "count": str(count_file(case, name)), **config},
    )
    job = JobSpec(
        name=name,
        gpu=case.gpu,
        manifest=wire.dumps(manifest),
        key=key_of(name),
        time_limit_s=time_limit_s,
        memory_bytes=memory_bytes,
    )
    return case.finished(job)


def count_file(case: BackendCase, name: JobName) -> Path:
    return case.folder / f"{name}.count"


def executions(case: BackendCase, job: JobSpec) -> int:
    """How often the job's harness was really started."""
    file = count_file(case, job.name)
    return len(file.read_text().splitlines()) if file.exists() else 0


def attempt_of(case: BackendCase, job: JobSpec, handle: Handle | None = None) -> OpenAttempt:
    return OpenAttempt(
        id=AttemptId(1),
        run_id=RunId(1),
        number=1,
        name=job.name,
        backend=case.name,
        gpu=job.gpu,
        state=AttemptState.SUBMITTED,
        handle=handle,
        opened_at=datetime.now(UTC),
        deadline_at=None,
    )


def wait_until(case: BackendCase, what: str, holds: Callable[[], bool]) -> None:
    """Look until it holds; a state that never comes is a failure."""
    give_up, pause_s = time.monotonic() + case.wait_s, POLL_AFTER_S
    while not holds():
        assert time.monotonic() < give_up, f"waited {case.wait_s:g} s in vain until {what}"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, POLL_EVERY_S)


def wait_seen(case: BackendCase, backend: Backend, attempt: OpenAttempt, *wanted: Seen) -> Sighting:
    """Poll, as the daemon does, until the attempt is seen so. It must never be called absent on the way."""
    last: list[Sighting] = []

    def holds() -> bool:
        found = backend.poll([attempt]).get(attempt.name)
        if found is None:
            return False
        assert found.seen is not Seen.ABSENT or Seen.ABSENT in wanted, f"{attempt.name} was lost: {found}"
        assert found.seen is not Seen.ENDED or Seen.ENDED in wanted, f"{attempt.name} ended too early: {found}"
        last[:] = [found]
        return found.seen in wanted

    wait_until(case, f"{attempt.name} is {' or '.join(wanted)}, last seen {last}", holds)
    return last[0]


def wait_counted(case: BackendCase, job: JobSpec) -> None:
    wait_until(case, f"{job.name} has begun", lambda: executions(case, job) > 0)


class BackendContract:
    """The law, article by article. The subclass has the fixture `case`."""

    def test_a_job_is_submitted_found_polled_and_collected(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "report")
        assert backend.find(job.name).seen is Seen.ABSENT
        attempt = attempt_of(case, job, backend.submit(job))
        ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
        assert ended.ending is Ending.REPORTED, ended
        assert ended.started_at is not None and ended.ended_at is not None
        assert ended.started_at <= ended.ended_at
        assert ended.node
        found = case.backend().find(job.name)
        assert (found.seen, found.ending) == (Seen.ENDED, Ending.REPORTED)
        sealed = case.backend().collect(attempt)
        assert sealed is not None
        assert wire.unseal(sealed, job.key).token == job.name
        assert executions(case, job) == 1

    def test_the_same_job_sent_again_runs_once(self, case: BackendCase) -> None:
        job = make_job(case, "report")
        handles = [case.backend().submit(job) for _ in range(3)]
        attempt = attempt_of(case, job, handles[0])
        wait_seen(case, case.backend(), attempt, Seen.ENDED)
        case.backend().submit(job)
        assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.REPORTED
        assert executions(case, job) == 1

    def test_many_are_polled_at_once_and_an_unknown_one_is_absent_or_left_out(self, case: BackendCase) -> None:
        backend = case.backend()
        jobs = [make_job(case, "report") for _ in range(3)]
        unknown = attempt_of(case, make_job(case, "report"))
        attempts = [attempt_of(case, job, backend.submit(job)) for job in jobs]
        for attempt in attempts:
            wait_seen(case, backend, attempt, Seen.ENDED)
        answer = backend.poll([*attempts, unknown])
        assert {answer[a.name].ending for a in attempts} == {Ending.REPORTED}
        assert unknown.name not in answer or answer[unknown.name].seen in (Seen.ABSENT, Seen.UNKNOWN)
        assert backend.collect(unknown) is None
        assert backend.poll([]) == {}

    def test_capacity_is_configuration(self, case: BackendCase) -> None:
        capacity = case.backend().capacity()
        assert capacity[case.gpu] >= 1
        assert all(slots >= 0 for slots in capacity.values())

    def test_a_gpu_that_it_lacks_is_refused_for_good(self, case: BackendCase) -> None:
        job = make_job(case, "report")
        strange = JobSpec(**{**vars_of(job), "gpu": "no-such-gpu"})
        with pytest.raises(BackendRefused) as refusal:
            case.backend().submit(strange)
        assert refusal.value.permanent
        assert case.backend().find(job.name).seen is Seen.ABSENT

    def test_a_running_job_is_cancelled_and_twice_is_fine(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "sleep")
        attempt = attempt_of(case, job, backend.submit(job))
        wait_counted(case, job)
        backend.cancel(attempt)
        backend.cancel(attempt)
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.CANCELLED
        backend.cancel(attempt)
        assert backend.find(job.name).ending is Ending.CANCELLED
        assert backend.collect(attempt) is None

    def test_a_job_cancelled_before_it_started_never_does(self, case: BackendCase) -> None:
        job = make_job(case, "report")
        attempt = attempt_of(case, job)
        case.submit_unstarted(job)
        case.backend().cancel(attempt)
        case.let_start(job)
        ended = wait_seen(case, case.backend(), attempt, Seen.ENDED, Seen.ABSENT)
        assert ended.ending in (Ending.CANCELLED, None)
        assert executions(case, job) == 0

    def test_a_cancel_after_the_end_changes_nothing(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "report")
        attempt = attempt_of(case, job, backend.submit(job))
        wait_seen(case, backend, attempt, Seen.ENDED)
        backend.cancel(attempt)
        assert case.backend().find(job.name).ending is Ending.REPORTED
        assert backend.collect(attempt) is not None

    def test_the_time_limit_is_kept(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "sleep", time_limit_s=case.time_limit_s)
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.TIMEOUT

    def test_the_memory_limit_is_kept(self, case: BackendCase) -> None:
        if not case.enforces_memory:
            pointless(f"{case.name} doesn't enforce memory")
        backend = case.backend()
        job = make_job(case, "eat", memory_bytes=96 << 20, bites=400)
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.MEMORY

    def test_an_end_without_a_report_is_told(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "fail")
        attempt = attempt_of(case, job, backend.submit(job))
        ended = wait_seen(case, backend, attempt, Seen.ENDED)
        assert (ended.ending, ended.exit_code) == (Ending.NO_REPORT, 3)
        assert backend.collect(attempt) is None

    def test_a_judge_that_its_check_brings_down_is_the_answers_fault(self, case: BackendCase) -> None:
        """And no other: not one that was killed from outside, nor one that was looking at no answer."""
        died = {(11, 1): Ending.CHECK_DIED, (6, 1): Ending.CHECK_DIED, (11, 0): Ending.NO_REPORT}
        for (die_by, mark), ending in {**died, (9, 1): Ending.NO_REPORT}.items():
            backend = case.backend()
            job = make_job(case, "die_checking", die_by=die_by, mark=mark)
            attempt = attempt_of(case, job, backend.submit(job))
            assert wait_seen(case, backend, attempt, Seen.ENDED).ending is ending, (die_by, mark)
            assert backend.collect(attempt) is None

    def test_a_report_over_the_cap_is_never_read(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "too_big")
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending in (Ending.BAD_REPORT, Ending.NO_REPORT)
        assert backend.collect(attempt) is None

    def test_a_link_instead_of_a_report_is_never_followed(self, case: BackendCase) -> None:
        target = case.folder / "target"
        target.write_text(SECRET)
        backend = case.backend()
        job = make_job(case, "link", target=str(target))
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending in (Ending.BAD_REPORT, Ending.NO_REPORT)
        assert backend.collect(attempt) is None

    def test_the_whole_tree_is_gone_when_it_is_said_to_have_ended(self, case: BackendCase) -> None:
        for die_by, ending in ((0, Ending.REPORTED), (9, Ending.NO_REPORT)):
            backend = case.backend()
            pids = case.folder / f"pids-{die_by}"
            job = make_job(case, "tree", pids=str(pids), die_by=die_by)
            attempt = attempt_of(case, job, backend.submit(job))
            assert wait_seen(case, backend, attempt, Seen.ENDED).ending is ending
            assert len(pids.read_text().split()) == 3
            assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []

    def test_a_submitter_killed_anywhere_leaves_the_truth_behind(self, case: BackendCase) -> None:
        """Law 2: after the death, find tells; what it calls absent is sent again; it ran exactly once in the end.

        Where an id can be lost for ever, a run may have been wasted before that, but not beside it.
        """
        for step in case.steps:
            job = make_job(case, "report")
            attempt = attempt_of(case, job)
            case.submit_and_die(job, step)
            if case.backend().find(job.name).seen is Seen.UNKNOWN:
                with pytest.raises(BackendUnclear):
                    case.backend().submit(job)
                case.wait_out(job)
            lost = executions(case, job)
            if case.backend().find(job.name).seen is Seen.ABSENT:
                assert lost == 0 or step in case.lost_at, f"killed at {step}: it ran, and was called absent"
                case.backend().submit(job)
            else:
                lost = 0
            ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
            assert ended.ending is Ending.REPORTED, f"killed at {step}: {ended}"
            case.backend().submit(job)
            assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.REPORTED
            assert executions(case, job) == 1 + lost, f"killed at {step}"

    def test_a_job_outlives_its_submitter(self, case: BackendCase) -> None:
        job = make_job(case, "sleep")
        attempt = attempt_of(case, job)
        case.submit_and_die(job, case.steps[-1])
        wait_counted(case, job)
        assert wait_seen(case, case.backend(), attempt, Seen.RUNNING).started_at is not None
        case.backend().cancel(attempt)
        assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.CANCELLED

    def test_a_job_sees_neither_our_secrets_nor_our_files(
        self, case: BackendCase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("DATABASE_URL", "DISCORD_TOKEN", "KBSLURM_ANYTHING"):
            monkeypatch.setenv(variable, SECRET)
        backend = case.backend()
        job = make_job(case, "report")
        attempt = attempt_of(case, job, backend.submit(job))
        wait_seen(case, backend, attempt, Seen.ENDED)
        sealed = backend.collect(attempt)
        assert sealed is not None
        host = wire.unseal(sealed, job.key).host
        assert SECRET not in str(host)
        assert job.key.hex() not in str(host)
        assert "DATABASE_URL" not in host["environment"]

    def test_only_the_owner_can_look_into_the_folder(self, case: BackendCase) -> None:
        backend = case.backend()
        job = make_job(case, "sleep")
        paths = case.paths(job.name)
        if paths is None:
            pointless(f"{case.name} has no folder on this disk")
        attempt = attempt_of(case, job, backend.submit(job))
        wait_counted(case, job)
        assert paths.dir.stat().st_mode & 0o777 == 0o700
        assert paths.key.stat().st_mode & 0o777 == 0o400
        assert paths.manifest.stat().st_mode & 0o777 == 0o400
        backend.cancel(attempt)
        wait_seen(case, backend, attempt, Seen.ENDED)


def vars_of(job: JobSpec) -> dict[str, Any]:
    return {field: getattr(job, field) for field in job.__dataclass_fields__}


def is_alive(pid: int) -> bool:
    """A process that is there and no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in (b"Z", b"X")
