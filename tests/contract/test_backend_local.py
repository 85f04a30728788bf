"""The local backend: the Backend contract, and what only it promises."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.local import backend as local_backend
from kbslurm.backends.local import supervise
from kbslurm.backends.local.backend import MARK, LocalBackend
from kbslurm.backends.local.evidence import Owner, bears, boot_id, pids, process_start
from kbslurm.backends.paths import AttemptPaths, is_there
from kbslurm.domain.run import Ending, JobName, OpenAttempt, Seen
from kbslurm.errors import BackendRefused, BackendTrouble, Invalid, Misconfigured
from kbslurm.ports import JobSpec
from kbslurm_eval.shared import remove_tree, wire
from tests.contract import ordinary, submitter
from tests.contract.backend_suite import (
    BackendContract,
    attempt_of,
    executions,
    is_alive,
    make_eval,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)

GPU = "T4"


@dataclass
class LocalCase:
    """The local backend as the suite wants it."""

    folder: Path
    root: Path
    eval_dir: Path
    python: Path = field(default_factory=lambda: Path(sys.executable))
    name: str = "local"
    gpu: str = GPU
    wait_s: float = 120.0
    time_limit_s: float = 1.0
    enforces_memory: bool = True
    steps: Sequence[str] = ("folder", "placed", "held", "forked", "started")
    lost_at: Sequence[str] = ()
    made: list[LocalBackend] = field(default_factory=list)

    def backend(self) -> LocalBackend:
        made = LocalBackend(self.root, {GPU: 2}, self.eval_dir, self.python)
        self.made.append(made)
        return made

    def finished(self, job: JobSpec) -> JobSpec:
        return job

    def submitter(self, job: JobSpec, step: str) -> subprocess.Popen[str]:
        told = {
            "root": str(self.root),
            "eval_dir": str(self.eval_dir),
            "name": self.name,
        }
        return submitter.started("tests.contract.local_submitter", told, job, step)

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        assert self.submitter(job, step).wait(timeout=self.wait_s) == -signal.SIGKILL

    def submit_unstarted(self, job: JobSpec) -> None:
        self.submit_and_die(job, "placed")

    def let_start(self, job: JobSpec) -> None:
        self.backend().submit(job)

    def wait_out(self, job: JobSpec) -> None:
        raise AssertionError("every job of this machine is found")

    def paths(self, name: JobName) -> AttemptPaths:
        return AttemptPaths(root=self.root, name=name)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[LocalCase]:
    found = LocalCase(folder=tmp_path, root=tmp_path / "state", eval_dir=make_eval(tmp_path / "eval"))
    yield found
    for backend in found.made:
        backend.close()
    end_all(found)


def end_all(case: LocalCase) -> None:
    """No test leaves a process behind, a failing one neither."""
    if not case.root.is_dir():
        return
    backend = LocalBackend(case.root, {GPU: 1}, case.eval_dir, case.python)
    for folder in case.root.glob("kb-*"):
        name = JobName(folder.name)
        if backend.find(name).seen in (Seen.WAITING, Seen.RUNNING):
            attempt = attempt_of(
                case, JobSpec(name=name, gpu=GPU, manifest="", key=b"", time_limit_s=1, memory_bytes=1)
            )
            backend.cancel(attempt)
            wait_seen(case, backend, attempt, Seen.ENDED)


def started(case: LocalCase, do: str = "sleep", **config: Any) -> tuple[JobSpec, OpenAttempt]:
    """A job that has really begun."""
    job = make_job(case, do, **config)
    attempt = attempt_of(case, job, case.backend().submit(job))
    wait_counted(case, job)
    return job, attempt


def owner_of(case: LocalCase, job: JobSpec) -> dict[str, object]:
    found: dict[str, object] = json.loads(case.paths(job.name).owner.read_bytes())
    return found


class TestTheContract(BackendContract):
    """The suite that every backend passes."""


def test_racing_submitters_start_one_job(case: LocalCase) -> None:
    job = make_job(case, "report")
    racers = [case.submitter(job, "") for _ in range(4)]
    assert [racer.wait(timeout=case.wait_s) for racer in racers] == [0] * 4
    assert wait_seen(case, case.backend(), attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


def test_a_killed_supervisor_is_seen_and_what_it_left_is_killed(case: LocalCase) -> None:
    pids = case.folder / "pids"
    job, attempt = started(case, "tree", pids=str(pids), stay=1)
    wait_until(case, "the tree stands", lambda: pids.exists() and len(pids.read_text().split()) == 3)
    os.kill(int(str(owner_of(case, job)["pid"])), signal.SIGKILL)
    ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
    assert ended.ending is Ending.NO_REPORT
    assert "killed from outside" in ended.reason
    assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []
    assert case.backend().find(job.name) == ended


def test_processes_that_hop_from_pid_to_pid_are_caught(case: LocalCase) -> None:
    backend = case.backend()
    job = make_job(case, "hop", hops=str(case.folder / "hops"))
    attempt = attempt_of(case, job, backend.submit(job))
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert (ended.ending, ended.reason) == (Ending.REPORTED, "")
    # The supervisor bears the mark as well, and may need a moment to leave.
    supervisor = owner_of(case, job)["pid"]
    assert [pid for pid in pids() if pid != supervisor and bears(pid, f"{MARK}={job.name}".encode())] == []


def test_a_supervisor_that_the_machine_stops_says_so(case: LocalCase) -> None:
    job, attempt = started(case)
    os.kill(int(str(owner_of(case, job)["pid"])), signal.SIGTERM)
    ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
    assert (ended.ending, ended.reason) == (Ending.NO_REPORT, "this machine told its supervisor to stop")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [("start", "killed from outside"), ("boot", "restarted")],
    ids=["the pid is another process's now", "the machine was booted since"],
)
def test_a_pid_alone_is_no_proof_of_life(case: LocalCase, changed: str, reason: str) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    case.submit_unstarted(job)
    start = process_start(os.getpid())
    assert start is not None
    note = {"pid": os.getpid(), "start": start, "boot": boot_id(), "at": 1.0, "supervises": True}
    paths = case.paths(job.name)
    assert paths.take_claim(json.dumps(note).encode())
    assert backend.find(job.name).seen is Seen.RUNNING
    # A start that is yet to come: nothing of this process's own session can be taken for the attempt's.
    others = {"start": start + (1 << 40), "boot": "another"}
    paths.owner.write_text(json.dumps({**note, changed: others[changed]}))
    ended = backend.find(job.name)
    assert (ended.seen, ended.ending) == (Seen.ENDED, Ending.NO_REPORT)
    assert reason in ended.reason


def test_a_report_that_is_there_counts_although_the_job_hung_on(case: LocalCase) -> None:
    job, attempt = started(case, "report_then_sleep")
    backend = case.backend()
    wait_until(case, "the report is there", lambda: backend.collect(attempt) is not None)
    assert backend.find(job.name).seen is Seen.RUNNING
    os.kill(int(str(owner_of(case, job)["pid"])), signal.SIGTERM)
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED


def test_the_doorbell_rings_when_a_job_starts_and_ends(case: LocalCase) -> None:
    backend = case.backend()
    bell = backend.doorbell()
    assert bell is not None
    attempt = attempt_of(case, make_job(case, "report"))
    backend.poll([attempt])
    assert select.select([bell], [], [], 0)[0] == []
    job = make_job(case, "sleep")
    attempt = attempt_of(case, job, backend.submit(job))
    assert select.select([bell], [], [], case.wait_s)[0] == [bell]
    assert backend.poll([attempt])[job.name].seen is Seen.RUNNING
    assert select.select([bell], [], [], 0)[0] == []
    case.backend().cancel(attempt)
    assert select.select([bell], [], [], case.wait_s)[0] == [bell]
    assert backend.poll([attempt])[job.name].seen is Seen.ENDED


def test_every_listener_hears_and_a_dead_one_is_forgotten(case: LocalCase) -> None:
    leader, standby, dead = (case.backend() for _ in range(3))
    bells = [bell for bell in (leader.doorbell(), standby.doorbell()) if bell is not None]
    assert len(bells) == 2
    bell = dead.doorbell()
    assert bell is not None
    # As its death would: the descriptor goes, the name stays.
    os.close(bell)
    dead._bell = None
    assert len(list((case.root / "doorbells").iterdir())) == 3
    leader.submit(make_job(case, "report"))
    for heard in bells:
        assert select.select([heard], [], [], case.wait_s)[0] == [heard]
    wait_until(case, "the dead one's bell is gone", lambda: len(list((case.root / "doorbells").iterdir())) == 2)
    leader.close()
    standby.close()
    assert list((case.root / "doorbells").iterdir()) == []


def test_progress_is_what_the_harness_says(case: LocalCase) -> None:
    _, attempt = started(case)
    backend = case.backend()
    wait_until(case, "the heartbeat is there", lambda: backend.progress(attempt) is not None)
    assert backend.progress(attempt) == {"phase": "test", "done": 1}
    assert backend.progress(attempt_of(case, make_job(case, "sleep"))) is None


def test_what_a_job_prints_is_capped(case: LocalCase) -> None:
    backend = case.backend()
    job = make_job(case, "print")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert case.paths(job.name).log.stat().st_size == 1 << 20


def test_a_job_is_born_with_no_descriptor_of_ours_and_an_empty_folder_of_its_own(case: LocalCase) -> None:
    with (case.folder / "leak").open("w") as leak:
        os.set_inheritable(leak.fileno(), True)
        backend = case.backend()
        job = make_job(case, "report")
        attempt = attempt_of(case, job, backend.submit(job))
        wait_seen(case, backend, attempt, Seen.ENDED)
    sealed = backend.collect(attempt)
    assert sealed is not None
    host = wire.unseal(sealed, job.key).host
    assert host["fds"] == []
    assert host["folder"] == host["environment"]["HOME"] == host["environment"]["TMPDIR"]
    assert Path(host["folder"]) == case.paths(job.name).scratch


def test_what_a_job_leaves_is_no_lesson_for_another(case: LocalCase) -> None:
    for do, kill in (("report", None), ("sleep", "harness"), ("sleep", "supervisor")):
        backend = case.backend()
        job = make_job(case, do)
        attempt = attempt_of(case, job, backend.submit(job))
        paths = case.paths(job.name)
        wait_counted(case, job)
        if kill == "harness":
            os.kill(int((case.folder / f"{job.name}.count").read_text()), signal.SIGKILL)
        elif kill == "supervisor":
            os.kill(int(str(owner_of(case, job)["pid"])), signal.SIGKILL)
        wait_seen(case, backend, attempt, Seen.ENDED)
        assert not paths.manifest.exists() and not paths.key.exists(), kill


def test_a_cancel_that_comes_first_keeps_the_job_from_ever_starting(case: LocalCase) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job)
    backend.cancel(attempt)
    backend.submit(job)
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.CANCELLED
    assert executions(case, job) == 0


def test_a_python_that_cant_run_is_one_sentence(case: LocalCase) -> None:
    python = case.folder / "python"
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    backend = LocalBackend(case.root, {GPU: 1}, case.eval_dir, python)
    job = make_job(case, "report")
    with pytest.raises(BackendRefused) as refusal:
        backend.submit(job)
    assert "exit code 7" in refusal.value.message
    assert backend.find(job.name).seen is Seen.ABSENT
    case.backend().submit(job)
    assert wait_seen(case, case.backend(), attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED


def test_a_look_costs_a_few_opens_however_many_there_are(case: LocalCase) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    first = attempt_of(case, job, backend.submit(job))
    wait_seen(case, backend, first, Seen.ENDED)
    ended = case.paths(job.name).exit.read_bytes()
    attempts = [attempt_of(case, make_job(case, "report")) for _ in range(500)]
    for attempt in attempts:
        case.paths(attempt.name).dir.mkdir()
        case.paths(attempt.name).exit.write_bytes(ended)
    opened = 0
    counting = True

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal opened
        # An int is a descriptor that Python wraps, no open of its own.
        if counting and event in ("open", "os.listdir", "os.scandir") and not isinstance(arguments[0], int):
            opened += 1

    sys.addaudithook(count)
    answer = backend.poll(attempts)
    counting = False
    assert {answer[a.name].ending for a in attempts} == {Ending.REPORTED}
    assert opened <= len(attempts) + 5


def test_a_full_disk_is_one_sentence_and_leaves_nothing(case: LocalCase) -> None:
    """Not a disk but this process may write no more: the kernel says it in the same place."""
    backend = case.backend()
    job = make_job(case, "report", filler="x" * 100_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(BackendRefused) as refusal:
            backend.submit(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert "is full" in refusal.value.message
    assert refusal.value.hint
    assert not refusal.value.permanent
    assert [entry.name for entry in case.root.iterdir()] == ["doorbells"]
    assert backend.find(job.name).seen is Seen.ABSENT


def test_a_state_folder_that_cant_be_is_one_sentence(case: LocalCase) -> None:
    (case.folder / "file").write_text("")
    for root in (case.folder / "file" / "state", Path("/proc/kbslurm")):
        with pytest.raises(Misconfigured) as trouble:
            LocalBackend(root, {GPU: 1}, case.eval_dir, Path(sys.executable))
        assert str(root) in trouble.value.message
        assert trouble.value.hint


def test_another_system_is_told_so(case: LocalCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Misconfigured, match="needs Linux") as trouble:
        case.backend()
    assert trouble.value.hint


@pytest.mark.parametrize("which", ["eval", "python"])
def test_a_missing_program_is_one_sentence(case: LocalCase, which: str) -> None:
    nowhere = case.folder / "nowhere"
    with pytest.raises(Misconfigured) as trouble:
        LocalBackend(
            case.root,
            {GPU: 1},
            nowhere if which == "eval" else case.eval_dir,
            nowhere if which == "python" else Path(sys.executable),
        )
    assert str(nowhere) in trouble.value.message


@pytest.fixture
def anyone(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCase]:
    """The case of an ordinary user."""

    def prepared(folder: Path) -> LocalCase:
        shutil.copy(local_backend.SUPERVISE, folder / "supervise.py")
        return LocalCase(folder=folder, root=folder / "state", eval_dir=make_eval(folder / "eval"))

    with ordinary.user(prepared) as found:
        monkeypatch.setattr(local_backend, "SUPERVISE", found.folder / "supervise.py")
        found.python = ordinary.python()
        yield found
        end_all(found)
        for folder in found.root.glob("kb-*"):
            remove_tree.remove(local_backend._work_folder(found.paths(JobName(folder.name))))


def left_behind(case: LocalCase) -> tuple[OpenAttempt, AttemptPaths]:
    """An attempt whose supervisor is dead and whose report is there."""
    job = make_job(case, "report")
    paths = case.paths(job.name)
    paths.create(manifest=job.manifest, key=job.key)
    gone = subprocess.Popen(["true"])
    gone.wait()  # never a session of living processes: what a dead supervisor left in its own is killed
    dead = {"pid": gone.pid, "start": 1, "boot": boot_id(), "at": 1.0, "supervises": True}
    assert paths.take_claim(json.dumps(dead).encode())
    paths.report.write_bytes(b"sealed")
    return attempt_of(case, job), paths


@pytest.mark.parametrize("locked", ["", "out", "claim"])
def test_a_job_that_locks_its_folder_is_settled_all_the_same(anyone: LocalCase, locked: str) -> None:
    backend = anyone.backend()
    attempt, paths = left_behind(anyone)
    (paths.dir / locked).chmod(0)
    assert backend.poll([attempt])[paths.name].ending is Ending.REPORTED
    (paths.dir / locked).chmod(0)
    assert backend.find(paths.name).seen is Seen.ENDED
    (paths.dir / locked).chmod(0)
    assert backend.collect(attempt) == b"sealed"


@pytest.mark.parametrize("locked", ["", "out", "claim", "scratch", "out/artifacts"])
def test_a_folder_that_was_locked_is_pruned_and_holds_up_no_other(anyone: LocalCase, locked: str) -> None:
    backend = anyone.backend()
    ended = [left_behind(anyone)[1] for _ in range(3)]
    for paths in ended:
        assert backend.find(paths.name).seen is Seen.ENDED
        paths.artifacts.mkdir()
    shut = sorted(ended, key=lambda paths: paths.name)[1]
    (shut.dir / locked).chmod(0)
    assert backend.prune(datetime.now(UTC) + timedelta(days=1), keep=[]) == 3
    assert [entry.name for entry in anyone.root.iterdir()] == ["doorbells"]


def test_memory_that_an_attempt_shared_goes_with_its_folder(anyone: LocalCase) -> None:
    """Its supervisor, out of time, may have left it."""
    backend = anyone.backend()
    _, paths = left_behind(anyone)
    assert backend.find(paths.name).seen is Seen.ENDED
    shared = local_backend._work_folder(paths)
    (shared / "shut").mkdir(parents=True)
    shared.chmod(0)
    try:
        assert backend.prune(datetime.now(UTC) + timedelta(days=1), keep=[]) == 1
        assert not shared.exists()
    finally:
        remove_tree.remove(shared)


@pytest.mark.parametrize("locked", ["", "out/artifacts"])
def test_what_a_profile_left_in_a_locked_folder_is_read(anyone: LocalCase, locked: str) -> None:
    backend = anyone.backend()
    attempt, paths = left_behind(anyone)
    paths.artifacts.mkdir()
    (paths.artifacts / "trace.json").write_text("{}")
    (paths.dir / locked).chmod(0)
    assert backend.artifacts(attempt, ["trace.json"]) == {"trace.json": b"{}"}


def test_a_job_that_locks_its_folder_can_be_cancelled(anyone: LocalCase) -> None:
    _, attempt = started(anyone)
    anyone.paths(attempt.name).dir.chmod(0)
    anyone.backend().cancel(attempt)
    assert wait_seen(anyone, anyone.backend(), attempt, Seen.ENDED).ending is Ending.CANCELLED


@pytest.mark.parametrize(("how", "ending"), [({"report": 1}, Ending.REPORTED), ({"time_limit_s": 3}, Ending.TIMEOUT)])
def test_the_supervisor_of_a_job_that_locks_all_its_folders_says_how_it_ended_and_leaves_nothing(
    anyone: LocalCase, how: dict[str, int], ending: Ending
) -> None:
    job, _ = started(anyone, "lock", go=str(anyone.folder / "go"), **how)
    paths, owner = anyone.paths(job.name), Owner.read(owner_of(anyone, job))
    assert owner is not None
    (anyone.folder / "go").touch()
    wait_until(anyone, "its supervisor has ended", lambda: not owner.lives())  # and nobody has looked before it did
    assert anyone.backend().find(job.name).ending is ending
    assert list(paths.scratch.iterdir()) == []
    assert not local_backend._work_folder(paths).exists()


@pytest.mark.parametrize(("depth", "letters"), [(1500, 1), (60, 200)], ids=["deep", "beyond a path's length"])
def test_the_supervisor_of_a_job_that_nests_folders_says_how_it_ended_and_leaves_nothing(
    anyone: LocalCase, depth: int, letters: int
) -> None:
    job, attempt = started(anyone, "nest", depth=depth, letters=letters)
    paths, owner, backend = anyone.paths(job.name), Owner.read(owner_of(anyone, job)), anyone.backend()
    assert owner is not None
    wait_until(anyone, "its folders are there", lambda: (backend.progress(attempt) or {}).get("done") == 2)
    backend.cancel(attempt)
    wait_until(anyone, "its supervisor has ended", lambda: not owner.lives())
    assert json.loads(paths.exit.read_bytes())["ending"] == "cancelled", "by its own word"
    assert list(paths.scratch.iterdir()) == []
    assert not local_backend._work_folder(paths).exists()


def test_what_takes_long_to_remove_goes_after_it_was_said_how_the_job_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whatever goes wrong with it, that is said."""
    monkeypatch.setattr(supervise, "CLEARING_S", 0.0)
    order: dict[str, Any] = {name: str(tmp_path / name) for name in ("work", "scratch", "checking")}
    order |= {
        "secrets": [],
        "exit": str(tmp_path / "exit.json"),
        "report": str(tmp_path / "report.json"),
        "report_cap": 1,
    }
    for place in ("work", "scratch"):
        (tmp_path / place / "in" / "it").mkdir(parents=True)
    watch = supervise.Watch(0.0)
    watch.status = 1
    supervise.settle(order, watch)
    assert json.loads((tmp_path / "exit.json").read_bytes())["ending"] == "no_report"
    assert (tmp_path / "work" / "in").exists(), "there was no time"
    supervise.clear(order, supervise.REST_S)
    assert not (tmp_path / "work").exists() and list((tmp_path / "scratch").iterdir()) == []
    (tmp_path / "exit.json").unlink()
    monkeypatch.setattr(supervise, "empty", lambda _place, _give_up: 1 / 0)
    supervise.settle(order, watch)
    assert (tmp_path / "exit.json").exists()


def test_what_cant_be_seen_isnt_missing(anyone: LocalCase) -> None:
    """Path.exists says so from Python 3.14 on."""
    place = anyone.folder
    (place / "shut").mkdir()
    (place / "shut" / "in").touch()
    (place / "loop").symlink_to("loop")
    assert is_there(place / "shut" / "in")
    assert not any(is_there(place / name) for name in ("none", "none/below", "shut/in/below", "loop"))
    (place / "shut").chmod(0)
    with pytest.raises(PermissionError):
        is_there(place / "shut" / "in")


def test_a_state_folder_that_went_away_says_nothing_about_its_attempts(case: LocalCase) -> None:
    backend = case.backend()
    job, attempt = started(case)
    away = case.root.rename(case.folder / "away")
    case.root.mkdir()
    for look in (lambda: backend.find(job.name), lambda: backend.poll([attempt]), lambda: backend.collect(attempt)):
        with pytest.raises(BackendTrouble):
            look()
    case.root.rmdir()
    away.rename(case.root)
    assert backend.find(job.name).seen is Seen.RUNNING


def test_a_name_that_leads_out_of_the_root_is_refused(case: LocalCase) -> None:
    for name in ("../kb-a", "kb-a/../../b", "kb-", "", "kb-a\n"):
        with pytest.raises(Invalid):
            case.paths(JobName(name))


def test_pruning_takes_what_ended_long_ago_and_nothing_else(case: LocalCase) -> None:
    backend = case.backend()
    running, attempt = started(case)
    done, uncollected = make_job(case, "report"), make_job(case, "report")
    for job in (done, uncollected):
        wait_seen(case, backend, attempt_of(case, job, backend.submit(job)), Seen.ENDED)
    half_made = case.root / ".new-kb-a-1"
    half_made.mkdir()
    unstarted = make_job(case, "report")
    case.submit_unstarted(unstarted)
    backend.cancel(attempt_of(case, make_job(case, "report")))
    day, now = timedelta(days=1), datetime.now(UTC)
    assert backend.prune(now - day, keep=[uncollected.name]) == 0
    assert case.paths(done.name).dir.exists()
    assert half_made.exists()
    assert backend.prune(now + day, keep=[uncollected.name]) == 2
    # The one that was cancelled before it came had its end written down by that look.
    assert backend.prune(now + day, keep=[uncollected.name]) == 1
    assert {entry.name for entry in case.root.iterdir()} == {"doorbells", running.name, uncollected.name}
    assert backend.find(done.name).seen is Seen.ABSENT
    assert backend.find(uncollected.name).ending is Ending.REPORTED
    assert backend.poll([attempt])[running.name].seen is Seen.RUNNING
