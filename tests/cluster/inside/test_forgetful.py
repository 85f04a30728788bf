"""A site without accounting whose controller forgets a job two seconds after its end: files and names must do."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest

from kbslurm.domain.run import Ending, Handle, Seen
from tests.cluster.inside.site import SlurmCase, site_at
from tests.contract.backend_suite import (
    attempt_of,
    executions,
    make_eval,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)

pytestmark = pytest.mark.cluster_options("--no-accounting", "--min-job-age", "2")


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SlurmCase:
    folder = Path("/shared/forgetful") / request.node.name
    (folder / "traces").mkdir(parents=True)
    site = site_at(folder / "root", runtime="none", accounting=False)
    return SlurmCase(folder=folder / "traces", eval_dir=make_eval(folder / "eval"), site=site)


def is_forgotten(handle: Handle) -> bool:
    done = subprocess.run(
        ["squeue", "-h", "-t", "all", "-o", "%A"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.returncode == 0 and str(handle) not in done.stdout.split()


def test_a_job_that_vanished_before_anybody_looked_is_known_by_its_files(case: SlurmCase) -> None:
    job = make_job(case, "report")
    handle = case.backend().submit(job)
    wait_counted(case, job)
    wait_until(case, "Slurm has forgotten it", lambda: is_forgotten(handle))
    ended = case.backend().poll([attempt_of(case, job, handle)])[job.name]
    assert (ended.seen, ended.ending) == (Seen.ENDED, Ending.REPORTED)
    assert case.backend().find(job.name).ending is Ending.REPORTED
    assert "sacct" not in case.backend().calls()


def test_a_job_that_was_killed_and_forgotten_is_absent_never_finished(case: SlurmCase) -> None:
    job = make_job(case, "sleep")
    handle = case.backend().submit(job)
    wait_counted(case, job)
    for pid in ("script", "judge.pid"):
        for file in Path("/dev/shm").glob(f"kb-*/{pid}"):
            os.kill(int(file.read_text()), signal.SIGKILL)
    wait_until(case, "Slurm has forgotten it", lambda: is_forgotten(handle))
    found = case.backend().poll([attempt_of(case, job, handle)])[job.name]
    assert found.seen is Seen.ABSENT
    assert case.backend().collect(attempt_of(case, job, handle)) is None


def test_two_jobs_of_one_attempt_run_once_whoever_comes_first(case: SlurmCase) -> None:
    """sbatch said nothing though it had submitted: the attempt is sent again, and the claim lets one of the two run."""
    job = make_job(case, "report")
    held = dataclasses.replace(
        job, script=(job.script or "").replace("#SBATCH --no-requeue", "#SBATCH --no-requeue\n#SBATCH --hold")
    )
    backend = case.backend()
    paths = case.paths(job.name)
    first = backend.submit(held)
    (paths.dir / "job_id").unlink()
    second = backend.submit(job)
    assert first != second
    wait_seen(case, backend, attempt_of(case, job, second), Seen.ENDED)
    subprocess.run(["scontrol", "release", str(first)], check=True)
    wait_until(case, "the loser has ended", lambda: (paths.dir / f"duplicate-{first}").exists())
    assert executions(case, job) == 1
    assert backend.find(job.name).handle == second


@contextmanager
def nothing_left() -> Iterator[None]:
    """The node's disk of 64 MiB is full to its last page."""
    filling = Path("/scratch/fill")
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filling.unlink()


def why_it_ended(case: SlurmCase, **paths: object) -> str:
    """What is told of a job that this node can't prepare, its paths being these."""
    case.site = dataclasses.replace(case.site, paths=dataclasses.replace(case.site.paths, **paths))  # type: ignore[arg-type]
    job, backend = make_job(case, "report"), case.backend()
    ended = wait_seen(case, backend, attempt_of(case, job, backend.submit(job)), Seen.ENDED)
    assert ended.ending is Ending.BOOT_FAILURE
    assert executions(case, job) == 0
    return ended.reason.rpartition(" on ")[0]


def test_a_node_without_room_is_the_nodes_fault_and_the_room_is_named(case: SlurmCase) -> None:
    shm, blocked = Path("/scratch/shm"), Path("/scratch/none")
    shm.mkdir()
    blocked.write_text("a file where a folder must be")
    cannot = "the node couldn't prepare the job"
    try:
        assert why_it_ended(case, node_scratch=f"{blocked}/$SLURM_JOB_ID") == f"{cannot}: no scratch can be made"
        with nothing_left():
            assert why_it_ended(case, node_scratch="/scratch/mine") == f"{cannot}: the disk for scratch is full"
            assert why_it_ended(case, node_scratch="", shm=PurePosixPath(shm)) == f"{cannot}: shared memory is full"
    finally:
        blocked.unlink()
        shutil.rmtree(shm)


def test_a_full_shared_disk_or_node_leaves_no_half_report(case: SlurmCase) -> None:
    """The shared root on the 64 MiB disk, filled up while the job is held: it can't claim, and says so by its end."""
    root = Path("/scratch/root")
    case.site = site_at(root, runtime="none", accounting=False)
    job = make_job(case, "report")
    case.submit_unstarted(job)
    with nothing_left():
        backend = case.backend()
        case.let_start(job)
        attempt = attempt_of(case, job, Handle(case.held[job.name]))
        ended = wait_seen(case, backend, attempt, Seen.ENDED)
        assert ended.ending in (Ending.BOOT_FAILURE, Ending.NO_REPORT)
        assert "it left no last word in its folder, as when the shared root is full" in ended.reason
        assert backend.collect(attempt) is None
        assert executions(case, job) == 0
