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

from kbslurm.backends.slurm.doctor import login_node
from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.transport import commands_of
from kbslurm.config import shared_folders
from kbslurm.domain.finding import Finding
from kbslurm.domain.run import Ending, Handle, Seen
from kbslurm.domain.site import Site
from kbslurm_eval.cage.processes import descendants_of
from tests.cluster.inside import control
from tests.cluster.inside.site import REST, SlurmCase, site_at
from tests.cluster.inside.walk import GOOD, PATIENCE_S, place_of, sleeping, submission, walk_at
from tests.contract.backend_suite import (
    attempt_of,
    executions,
    make_eval,
    make_job,
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


def killed_without_a_word(folder: Path) -> None:
    """End this attempt's judge and its script, so that neither can say anything any more, and what the script has
    started: its runner would wait for its judge, turning on a core, for as long as this cluster is there."""
    (shm,) = (
        file.parent
        for file in Path("/dev/shm").glob("kb-*/script")
        if os.readlink(f"/proc/{file.read_text().strip()}/cwd") == str(folder)
    )
    script, judge = (int((shm / pid).read_text()) for pid in ("script", "judge.pid"))
    for pid in (script, judge, *descendants_of(script)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_jobs_that_vanished_before_anybody_looked_are_known_by_their_files_or_go_on(database_url: str) -> None:
    """While no daemon is there one job ends well, another is killed with all that could tell of it, and Slurm forgets
    both: the first is judged once, the second is absent, never finished, and its run goes on."""
    with walk_at(database_url, Path("/shared/forgetful/walk"), accounting=False) as walk:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
        try:
            walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
            walk.stage.submit(sleeping(10), by="bob", gpus=["H100"])
            with walk.daemon():
                walk.stage.wait_until(lambda: [row["state"] for row in walk.attempts()] == ["submitted"] * 2)
        finally:
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
        ada, bob = (Path(walk.site.paths.shared_root) / "attempts" / row["name"] for row in walk.attempts())
        walk.stage.wait_until((bob / "out" / "heartbeat.json").exists, patience_s=PATIENCE_S)
        killed_without_a_word(bob)
        walk.stage.wait_until((ada / "exit.json").exists, patience_s=PATIENCE_S)
        handles = [Handle(str(row["handle"])) for row in walk.attempts()]
        walk.stage.wait_until(lambda: all(map(is_forgotten, handles)), patience_s=PATIENCE_S)
        _, backend = place_of(walk.site)
        known, gone = walk.stage.store.attempts.open()
        found = backend.poll([known, gone])
        assert (found[known.name].seen, found[known.name].ending) == (Seen.ENDED, Ending.REPORTED)
        assert backend.find(known.name).ending is Ending.REPORTED
        assert found[gone.name].seen is Seen.ABSENT and backend.collect(gone) is None
        with walk.daemon() as following:
            runs = walk.wait_ended(2)
        assert "sacct" not in {**backend.calls(), **following.calls()}
        assert [(run["verdict"], run["attempts"]) for run in runs] == [("passed", 1), ("passed", 2)], runs
        _, lost, _ = walk.attempts()
        assert (lost["ending"], lost["reason"]) == (
            "vanished",
            "the cluster doesn't know its job any more, and it left no result",
        )
        assert (walk.verdicts(), walk.claims()) == (2, 3)


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
        assert "it left no final status in its folder, as when the shared root is full" in ended.reason
        assert backend.collect(attempt) is None
        assert executions(case, job) == 0


def test_slurmrestd_without_accounting_serves_as_well(case: SlurmCase) -> None:
    """Started with -s slurmctld: else it would end at once here."""
    site = site_at(case.folder.parent / "rest", runtime="none", accounting=False, more=REST)
    case.site = site
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1

    def found(asked: Site) -> dict[str, Finding]:
        checkup = Checkup(
            site=asked,
            commands=commands_of(asked),
            templates=shared_folders.path("sbatch_templates"),
            eval_dir=case.eval_dir,
        )
        return {one.name: one for one in login_node.login_findings(checkup)}

    seen = found(site)
    assert "FAIL" not in {one.grade for one in seen.values()}, seen
    assert "is off" in seen["accounting"].text
    # A file that expects accounting is told so, and one without a server how such a server must be started
    expecting = found(dataclasses.replace(site, slurm=dataclasses.replace(site.slurm, accounting=True)))
    assert expecting["accounting"].grade == "FAIL"
    assert "runs without slurmdbd" in expecting["sacct"].text
    away = found(dataclasses.replace(site, submit=dataclasses.replace(site.submit, url="http://127.0.0.1:1")))
    assert "started with -s slurmctld" in away["slurmrestd"].remedy
