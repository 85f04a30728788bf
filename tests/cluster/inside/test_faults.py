"""What a cluster does to a run: no run is lost, none runs twice, none gets a second verdict, and the reason is true."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.inside import control
from tests.cluster.inside.walk import Walk, sleeping, submission, walk_at

GOOD = "accepted/by_row.py"
LOW = """
[gpus.LOW]
request = "--gres=gpu:h100:1"
partition = "low"
vendor = "none"
image = "cpu"
memory = "2G"
[gpus.LOST]
request = "--gres=gpu:h100:1"
partition = "gpu-h100"
vendor = "none"
image = "there-is-none.sif"
memory = "2G"
[gpus.BROKEN]
request = "--gres=gpu:h100:1"
partition = "gpu-h100"
vendor = "none"
image = "/shared/broken.sif"
memory = "2G"
[gpus.NOWHERE]
request = "--gres=gpu:h100:1"
partition = "no-such-partition"
vendor = "none"
image = "cpu"
memory = "2G"
"""
# Every place on the way of an attempt where a daemon can die, the backend's own among them.
PROBES = (
    "queue.after_claim",
    "launch.before_submit",
    "slurm.folder",
    "slurm.sent",
    "slurm.submitted",
    "launch.after_submit",
    "launch.after_note",
    "collect.after_poll",
    "collect.after_read",
    "score.before_commit",
    "score.after_commit",
)


@pytest.fixture
def walk(database_url: str, request: pytest.FixtureRequest) -> Iterator[Walk]:
    folder = Path("/shared/faults") / request.node.name.replace("[", "-").rstrip("]")
    gpus = ("H100", "LOW", "LOST", "BROKEN", "NOWHERE")
    with walk_at(database_url, folder, gpus=gpus, more=LOW, start="30s") as found:
        yield found


def is_well(walk: Walk, *, attempts: int = 1, claims: int | None = None) -> dict[str, Any]:
    """The one run passed, after so many attempts, claimed as often as jobs were really started; one verdict."""
    (run,) = walk.wait_ended()
    assert (run["state"], run["verdict"]) == ("scored", "passed"), run
    assert run["attempts"] == attempts, walk.attempts()
    assert walk.verdicts() == 1
    assert walk.claims() == (attempts if claims is None else claims)
    return run


def job_of(row: dict[str, Any]) -> str:
    assert row["handle"], row
    return str(row["handle"])


def test_a_controller_that_hangs_while_sbatch_speaks_to_it(walk: Walk) -> None:
    control.daemon("freeze", "slurmctld")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            walk.wait_attempt("ambiguous")
            control.daemon("thaw", "slurmctld")
            is_well(walk)
    finally:
        control.daemon("thaw", "slurmctld")


def test_a_controller_that_is_down_and_comes_back(walk: Walk) -> None:
    control.daemon("stop", "slurmctld")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            walk.wait_attempt("ambiguous")
            control.daemon("start", "slurmctld")
            is_well(walk)
    finally:
        control.daemon("start", "slurmctld")
        control.settle()


def test_accounting_that_is_down_delays_nothing(walk: Walk) -> None:
    control.daemon("stop", "slurmdbd")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            is_well(walk)
    finally:
        control.bring_back_accounting()


def test_a_node_that_slurm_calls_dead_lives_on_and_its_late_report_never_scores(walk: Walk) -> None:
    walk.stage.submit(sleeping(12), gpus=["H100"])
    with walk.daemon():
        first = walk.wait_began()
        node = first["node"]
        control.daemon("kill", f"slurmd:{node}")
        control.as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        try:
            walk.wait_attempt("dead")
            run = is_well(walk, attempts=2)
            late = Path(walk.site.paths.shared_root) / "attempts" / first["name"] / "out" / "report.json"
            walk.stage.wait_until(late.exists)  # the dead node's job has ended, too
            assert walk.verdicts() == 1
            assert walk.stage.run()["attempt_id" if "attempt_id" in run else "id"] == run.get("attempt_id", run["id"])
            (dead,) = [row for row in walk.attempts() if row["number"] == 1]
            assert dead["ending"] == "node_failure", dead
        finally:
            control.daemon("start", f"slurmd:{node}")
            control.resume(node)
            control.settle()


def test_jobs_that_are_held_or_whose_nodes_are_drained_or_whose_partition_is_down_wait(walk: Walk) -> None:
    control.as_root("scontrol", "update", "nodename=h1,h2", "state=drain", "reason=test")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            job = job_of(walk.wait_attempt("submitted"))
            subprocess.run(["scontrol", "hold", job], check=True)
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
            control.as_root("scontrol", "update", "nodename=h1,h2", "state=resume")
            assert walk.stage.open_runs() == 1
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            assert walk.stage.open_runs() == 1
            subprocess.run(["scontrol", "release", job], check=True)
            is_well(walk)
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
        control.resume("h1,h2")


def test_a_job_that_somebody_ends_from_outside_is_tried_again(walk: Walk) -> None:
    walk.stage.submit(sleeping(6), gpus=["H100"])
    with walk.daemon():
        subprocess.run(["scancel", job_of(walk.wait_began())], check=True)
        is_well(walk, attempts=2)
    assert walk.attempts()[0]["ending"] == "cancelled"


def test_slurms_own_time_limit_is_a_timeout_and_isnt_tried_again(walk: Walk) -> None:
    walk.stage.submit(sleeping(100), gpus=["H100"])
    with walk.daemon():
        job = job_of(walk.wait_began())
        control.as_root("scontrol", "update", f"jobid={job}", "EndTime=now")
        (run,) = walk.wait_ended()
    assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "timeout", 1), run
    assert walk.attempts()[0]["ending"] == "timeout"


def test_a_preempted_job_is_tried_again(walk: Walk) -> None:
    walk.stage.submit(sleeping(6), gpus=["LOW"])
    with walk.daemon():
        node = walk.wait_began()["node"]
        sbatch = ["sbatch", "--parsable", "-p", "high", "-w", node, "--gres=gpu:3", "--mem=100M", "-o", "/dev/null"]
        subprocess.run([*sbatch, "--wrap", "sleep 3"], check=True, stdout=subprocess.DEVNULL)
        is_well(walk, attempts=2)
    assert walk.attempts()[0]["ending"] == "preempted"


def test_an_image_that_is_missing_or_broken_and_a_partition_that_isnt_there_are_told(walk: Walk) -> None:
    Path("/shared/broken.sif").write_bytes(b"this is no image" * 4096)
    for gpu in ("LOST", "BROKEN", "NOWHERE"):
        walk.stage.submit(submission(GOOD), by=gpu.lower(), gpus=[gpu])
    with walk.daemon():
        runs = {run["gpu"]: run for run in walk.wait_ended(3)}
    for run in runs.values():
        assert (run["state"], run["verdict"]) == ("failed", "infrastructure"), run
    assert runs["LOST"]["attempts"] == runs["BROKEN"]["attempts"] == 3
    assert runs["NOWHERE"]["attempts"] == 1
    assert "container wouldn't start" in runs["LOST"]["verdict_reason"]
    assert "container wouldn't start" in runs["BROKEN"]["verdict_reason"]
    assert "partition" in runs["NOWHERE"]["verdict_reason"].lower()


def test_a_folder_that_cant_be_written_keeps_the_run_waiting(walk: Walk) -> None:
    root = Path(walk.site.paths.shared_root)
    root.chmod(0o500)
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            walk.wait_attempt("intent")
            walk.stage.store.wait_for_news(1.0)
            assert walk.stage.open_runs() == 1
            root.chmod(0o700)
            is_well(walk)
    finally:
        root.chmod(0o700)


def test_an_attempts_folder_that_the_node_cant_write_starts_nothing(walk: Walk) -> None:
    control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            first = walk.wait_attempt("submitted")
            folder = Path(walk.site.paths.shared_root) / "attempts" / first["name"]
            folder.chmod(0o500)
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            is_well(walk, attempts=2, claims=1)
            assert walk.attempts()[0]["ending"] == "boot_failure"
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")


def test_a_daemon_killed_at_every_step_loses_nothing_and_repeats_nothing(walk: Walk) -> None:
    for number, place in enumerate(PROBES, 1):
        walk.stage.submit(submission(GOOD), by=f"p{number}", gpus=["H100"])
        daemon = walk.daemon_process(place)
        assert daemon.wait(timeout=180) == -signal.SIGKILL, place
    with walk.daemon():
        runs = walk.wait_ended(len(PROBES))
    for run, place in zip(runs, PROBES, strict=True):
        assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 1), (place, run)
    assert walk.verdicts() == walk.claims() == len(PROBES)
    left = subprocess.run(["squeue", "--me", "-h"], capture_output=True, text=True, check=True)
    assert left.stdout == ""
    assert os.listdir(Path(walk.site.paths.shared_root) / "attempts")
