"""Faults of a cluster at the default pace, in real time: one verdict per run, and every face says what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kbslurm.config import sites
from tests.cluster.inside import control
from tests.cluster.inside.faces import Faces, faces
from tests.cluster.inside.test_full import disk
from tests.cluster.inside.walk import GOOD, PATIENCE_S, Walk, sleeping, submission, walk_at
from tests.contract.backend_suite import REPOSITORY

pytestmark = pytest.mark.faults

# An sbatch whose first calls misbehave, each in a way of its own; it writes down which. Everything after is real.
SBATCH = """#!/bin/sh
n=$(cat {folder}/calls 2>/dev/null || echo 0)
case "$*" in *--parsable*) n=$((n + 1)); echo $n >{folder}/calls ;; *) exec /usr/bin/sbatch "$@" ;; esac
case $n in
    1) /usr/bin/sbatch "$@" >/dev/null; echo 'sbatch: error: Socket timed out' >&2; exit 1 ;;
    2) exit 0 ;;
    3) exit 1 ;;
    4) /usr/bin/sbatch "$@" >/dev/null; echo submitted; exit 0 ;;
    5) /usr/bin/sbatch "$@" >/dev/null; sleep 1000 ;;
    6) sleep 1000 ;;
esac
exec /usr/bin/sbatch "$@"
"""
MISBEHAVED = 6
TOOLS = ("squeue", "sacct", "scancel", "scontrol", "sinfo")


@pytest.fixture
def walk(database_url: str, request: pytest.FixtureRequest) -> Iterator[Walk]:
    with walk_at(database_url, Path("/shared/told") / request.node.name.removeprefix("test_")[:40]) as found:
        yield found


def one_verdict_each(walk: Walk, runs: int, *, verdict: str = "passed", attempts: int = 1) -> None:
    """Every run ended so, after so many attempts, and none was judged or begun twice."""
    found = walk.wait_ended(runs)
    assert {(run["verdict"], run["attempts"]) for run in found} == {(verdict, attempts)}, found
    assert (walk.verdicts(), walk.claims()) == (runs, runs * attempts)
    scored = walk.stage.rows("SELECT subject, count(*) AS n FROM event WHERE kind = 'run.scored' GROUP BY 1")
    assert [row["n"] for row in scored] == [1] * runs


def rewritten(walk: Walk, old: str, new: str) -> None:
    """The site's file with this instead, for the walk and for the commands."""
    file = Path(walk.site.paths.shared_root) / "site.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    walk.site = sites.load(file)


def test_a_node_that_loses_power_is_noticed_by_slurm(walk: Walk) -> None:
    walk.stage.submit(sleeping(30), gpus=["H100"])
    with faces(walk) as told, walk.daemon():
        node = walk.wait_began()["node"]
        control.daemon("kill", f"node:{node}")
        try:
            assert walk.wait_attempt("dead")["ending"] == "node_failure"
            seen = told.look()
            walk.is_well(attempts=2)
            told.look()
        finally:
            control.daemon("start", f"slurmd:{node}")
            control.resume(node)
            control.settle()
    assert f"NODE_FAIL on {node}" in walk.gave_up()
    assert all(f"NODE_FAIL on {node}" in seen[name] for name in ("why", "page")), seen


def test_the_jobs_own_time_limit(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/told/limit"), test_s=20.0) as walk:
        walk.stage.submit(sleeping(600), gpus=["H100"])
        with faces(walk) as told, walk.daemon():
            one_verdict_each(walk, 1, verdict="timeout")
            seen = told.look()
    reason = walk.stage.rows("SELECT reason FROM verdict")[0]["reason"]
    assert reason and all(reason in " ".join(seen[name].split()) for name in ("watch", "why", "page")), (reason, seen)


def test_an_sbatch_that_misbehaves_in_six_ways(walk: Walk) -> None:
    """It submits and then complains; is silent with either status; gives no ID; hangs after and before submitting."""
    folder = Path(walk.site.paths.shared_root) / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(SBATCH.format(folder=folder))
    for tool in TOOLS:
        (folder / tool).write_text(f'#!/bin/sh\nexec /usr/bin/{tool} "$@"\n')
    for file in folder.iterdir():
        file.chmod(0o755)
    rewritten(walk, "submit_timeout = 60\n", f'submit_timeout = 20\nbin_dir = "{folder}"\n')
    for number in range(MISBEHAVED):
        walk.stage.submit(submission(GOOD), by="ada" if not number else f"p{number}", gpus=["H100"])
    with faces(walk) as told, walk.daemon():
        told.wait_said("it isn't clear whether its job was submitted: ")
        one_verdict_each(walk, MISBEHAVED)
    assert int((folder / "calls").read_text()) == MISBEHAVED + 3, "three were really not submitted, and sent once more"


def test_a_shared_root_that_is_full_and_one_that_is_read_only(database_url: str) -> None:
    with (
        disk("/scratch/told", "24m") as root,
        walk_at(database_url, root.path / "root") as walk,
        faces(walk) as told,
    ):
        root.fill()
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            told.wait_said("is full")
            root.empty()
            one_verdict_each(walk, 1)
            control.as_root("mount", "-o", "remount,ro", str(root.path))
            try:
                walk.stage.submit(submission(GOOD), gpus=["H100"], file_name="again.py")
                told.wait_said("can't be written", 2)
            finally:
                control.as_root("mount", "-o", "remount,rw", str(root.path))
            one_verdict_each(walk, 2)


@contextmanager
def at_most(jobs: int) -> Iterator[None]:
    """The account's limit on submitted jobs."""
    where = ("where", "name=kb", "account=contest", "cluster=kbtest")
    control.as_root("sacctmgr", "-i", "modify", "user", *where, "set", f"MaxSubmitJobs={jobs}")
    try:
        yield
    finally:
        control.as_root("sacctmgr", "-i", "modify", "user", *where, "set", "MaxSubmitJobs=-1")


def test_a_limit_on_submitted_jobs(walk: Walk) -> None:
    with at_most(1), faces(walk) as told, walk.daemon():
        walk.stage.submit(sleeping(25), by="first", gpus=["H100"])
        walk.wait_began()
        for name in ("ada", "bob", "cyd"):
            walk.stage.submit(submission(GOOD), by=name, gpus=["H100"])
        told.wait_said("the limit on our jobs there is reached", 2)
        one_verdict_each(walk, 4)


class Leaders:
    """Two daemons as processes of their own, of which one leads."""

    def __init__(self, told: Faces) -> None:
        self._told, self._log = told, told.folder / "daemons.log"
        self.ours = [self._started(), self._started()]

    def _started(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "kbslurm", "up", "--no-api", "--no-bot"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                words, env=dict(self._told.environment), cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True
            )

    def leader(self) -> subprocess.Popen[bytes] | None:
        rows = self._told.walk.stage.rows("SELECT holder FROM lease WHERE name = 'daemon' AND expires_at > now()")
        for row in rows:
            with suppress(ProcessLookupError):
                session = os.getsid(int(row["holder"].split(":")[1]))
                return next((one for one in self.ours if one.pid == session), None)
        return None

    def kill(self) -> None:
        """The leader dies at once; the other takes over, and a new one stands by."""
        self._told.walk.stage.wait_until(lambda: self.leader() is not None, patience_s=PATIENCE_S)
        gone = self.leader()
        assert gone is not None
        os.killpg(gone.pid, signal.SIGKILL)
        gone.wait()
        self.ours = [one for one in self.ours if one is not gone]
        self._told.walk.stage.wait_until(lambda: self.leader() is not None, patience_s=PATIENCE_S)
        self.ours.append(self._started())

    def close(self) -> None:
        for one in self.ours:
            one.terminate()
        for one in self.ours:
            one.wait(timeout=PATIENCE_S)


def test_a_leader_that_is_killed_twice_during_a_burst_of_twenty(walk: Walk) -> None:
    for number in range(20):
        walk.stage.submit(sleeping(30), by="ada" if not number else f"p{number}", gpus=["H100"])
    with faces(walk) as told:
        leaders = Leaders(told)
        try:
            for _ in range(2):
                walk.stage.wait_until(lambda: any(row["state"] == "running" for row in walk.stage.runs()))
                leaders.kill()
                told.look(1)
            one_verdict_each(walk, 20)
        finally:
            leaders.close()


def test_an_outsiders_scancel_and_requeue(walk: Walk) -> None:
    """Our own scancel and an administrator's `scontrol requeue` look alike to Slurm's history; each has its words."""
    said = []
    with faces(walk) as told, walk.daemon():
        for number, by_requeue in enumerate((False, True), start=1):
            walk.stage.submit(sleeping(20), by="ada", gpus=["H100"], file_name=f"{number}.py")
            walk.stage.wait_until(lambda n=number: len(running(walk)) == 1 and len(walk.stage.runs()) == n)  # type: ignore[misc]
            (attempt,) = running(walk)
            job = str(attempt["handle"])
            if by_requeue:
                control.as_root("scontrol", "update", f"jobid={job}", "requeue=1")  # against our --no-requeue
                control.as_root("scontrol", "requeue", job)
            else:
                subprocess.run(["scancel", job], check=True)
            walk.stage.wait_until(
                lambda one=attempt: walk.attempts()[one["id"] - 1]["state"] == "dead",  # type: ignore[misc]
                patience_s=PATIENCE_S,
            )
            reason = walk.attempts()[attempt["id"] - 1]["reason"]
            seen = told.look(number)
            assert all(reason in " ".join(seen[name].split()) for name in ("watch", "why", "page")), (reason, seen)
            said.append(reason)
            walk.stage.wait_until(lambda: walk.stage.open_runs() == 0, patience_s=PATIENCE_S)
    assert said[0].endswith(" (its job was cancelled at the cluster)")
    assert said[1] == "it was requeued from outside; an attempt runs only once, so it isn't restarted"
    one_verdict_each(walk, 2, attempts=2)


def running(walk: Walk) -> list[dict[str, Any]]:
    """The attempts whose judges have begun."""
    root = Path(walk.site.paths.shared_root) / "attempts"
    return [
        row
        for row in walk.attempts()
        if row["state"] == "running" and (root / row["name"] / "out" / "heartbeat.json").exists()
    ]


def test_a_job_that_slurm_holds_back(walk: Walk) -> None:
    """Its nodes are drained, then somebody holds it, then its partition is down."""
    control.as_root("scontrol", "update", "nodename=h1,h2", "state=drain", "reason=test")
    try:
        walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
        with faces(walk) as told, walk.daemon():
            job = str(walk.wait_attempt("submitted")["handle"])
            told.wait_said("every node that fits is reserved, drained or down")
            control.as_root("scontrol", "hold", job)
            told.wait_said("held by the cluster's administrators")
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
            control.as_root("scontrol", "update", "nodename=h1,h2", "state=resume")
            control.as_root("scontrol", "release", job)
            told.wait_said("the cluster's partition is down")
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            one_verdict_each(walk, 1)
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
        control.resume("h1,h2")


def test_slurms_own_time_limit(walk: Walk) -> None:
    """Slurm ends the job before we would, with a warning of KillWait's seconds."""
    walk.stage.submit(sleeping(45), by="ada", gpus=["H100"])
    with faces(walk) as told, walk.daemon():
        job = str(walk.wait_began()["handle"])
        control.as_root("scontrol", "update", f"jobid={job}", "EndTime=now")
        assert walk.wait_attempt("dead")["ending"] == "boot_failure"
        seen = told.look()
        walk.is_well(attempts=2)
    reason = walk.gave_up()
    assert "before the run's own" in reason
    assert all(reason in " ".join(seen[name].split()) for name in ("why", "page")), (reason, seen)


def test_a_controller_and_then_the_accounting_that_are_off(walk: Walk) -> None:
    """130 seconds without slurmctld, while one run goes on and another comes; then a run without slurmdbd."""
    walk.stage.submit(sleeping(20), by="ada", gpus=["H100"])
    with faces(walk) as told, walk.daemon():
        walk.wait_began()
        control.daemon("stop", "slurmctld")
        over_at = time.monotonic() + 130
        try:
            walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"], file_name="meanwhile.py")
            told.wait_said("Unable to contact slurm controller", 2)
            walk.stage.wait_until(lambda: walk.verdicts() == 1, patience_s=PATIENCE_S)  # by its report alone
            walk.stage.wait_until(lambda: time.monotonic() > over_at, patience_s=PATIENCE_S)
        finally:
            control.daemon("start", "slurmctld")
            control.settle()
        one_verdict_each(walk, 2)
        control.daemon("stop", "slurmdbd")
        try:
            walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"], file_name="unaccounted.py")
            one_verdict_each(walk, 3)
            told.look(3)
        finally:
            control.bring_back_accounting()
