"""What a cluster does to a run: no run is lost, none runs twice, none gets a second verdict, and the reason is true."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared.wire import unseal
from tests import databases
from tests.cluster.inside import control
from tests.cluster.inside.lending import lending_at
from tests.cluster.inside.walk import GOOD, Walk, sleeping, submission, walk_at

# More than the job of TIGHT has, less than the problem lets a submission use: the judge has nothing against it.
HUNGRY = "import time\nheld = bytearray(700 << 20)\ntime.sleep(60)\n" + submission(GOOD)
LOW = """
[gpus.TIGHT]
request = "--gres=gpu:h100:1"
partition = "gpu-h100"
vendor = "none"
image = "cpu"
memory = "500M"
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


@pytest.fixture
def walk(database_url: str, request: pytest.FixtureRequest) -> Iterator[Walk]:
    folder = Path("/shared/faults") / request.node.name.replace("[", "-").rstrip("]")
    gpus = ("H100", "LOW", "LOST", "BROKEN", "NOWHERE", "TIGHT")
    with walk_at(database_url, folder, gpus=gpus, more=LOW, start="30s") as found:
        yield found


@pytest.fixture
def second_url(postgres_server: databases.Server, template_database: str) -> Iterator[str]:
    """A database of another service."""
    url = postgres_server.create(template_database)
    yield url
    postgres_server.drop(url)


def job_of(row: dict[str, Any]) -> str:
    assert row["handle"], row
    return str(row["handle"])


def test_a_controller_that_hangs_while_sbatch_speaks_to_it(walk: Walk) -> None:
    control.daemon("freeze", "slurmctld")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            assert "Socket timed out" in walk.wait_attempt("ambiguous")["reason"]
            control.daemon("thaw", "slurmctld")
            walk.is_well()
    finally:
        control.daemon("thaw", "slurmctld")


def test_a_controller_that_is_down_for_a_minute_and_comes_back(walk: Walk, second_url: str) -> None:
    """Of two services that use it one has nowhere else to go, and waits. The other's queue drains elsewhere, and what
    is new stays home again afterwards."""
    control.daemon("stop", "slurmctld")
    over_at = time.monotonic() + 60
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon(), lending_at(second_url, Path("/shared/faults/lending")) as lending:
            meanwhile = lending.submit(4)
            assert "Unable to contact slurm controller" in walk.wait_attempt("ambiguous")["reason"]
            (told,) = [one.text for one in walk.stage.store.overview.attention() if one.kind == "ambiguous"]
            assert "may or may not have been started" in told and "Unable to contact" in told
            lending.drained(meanwhile)
            walk.stage.wait_until(lambda: time.monotonic() > over_at, patience_s=90)
            assert [(row["number"], row["state"]) for row in walk.attempts()] == [(1, "ambiguous")]
            left = lending.perhaps_sent()
            control.daemon("start", "slurmctld")
            walk.is_well()
            assert lending.ended(meanwhile) == {"test": left, "github": 4 - left}
            lending.works_again()
            assert lending.ended(lending.submit(2)) == {"test": 2}
            lending.every_run_once()
    finally:
        control.daemon("start", "slurmctld")
        control.settle()


def test_a_run_that_ends_while_the_controller_is_down_is_scored_by_its_report(walk: Walk) -> None:
    walk.stage.submit(sleeping(5), gpus=["H100"])
    with walk.daemon():
        walk.wait_began()
        control.daemon("stop", "slurmctld")
        try:
            walk.is_well()
        finally:
            control.daemon("start", "slurmctld")
            control.settle()


def test_accounting_that_is_down_delays_nothing(walk: Walk) -> None:
    control.daemon("stop", "slurmdbd")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            walk.is_well()
    finally:
        control.bring_back_accounting()


def test_a_node_that_slurm_calls_dead_lives_on_and_its_late_report_never_scores(walk: Walk) -> None:
    walk.stage.submit(sleeping(12), gpus=["H100"])
    with walk.daemon(late_s=0.5):
        first = walk.wait_began()
        node = first["node"]
        control.daemon("kill", f"slurmd:{node}")
        control.as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        try:
            dead = walk.wait_attempt("dead")
            walk.is_well(attempts=2)
            walk.stage.wait_until(lambda: bool(walk.stage.rows("SELECT 1 FROM stale_report")))
        finally:
            control.daemon("start", f"slurmd:{node}")
            control.resume(node)
            control.settle()
    assert (dead["ending"], dead["reason"]) == ("node_failure", f"Slurm: NODE_FAIL on {node} (its node went down)")
    assert walk.gave_up() == dead["reason"]
    late, (verdict,) = walk.stage.rows("SELECT * FROM stale_report"), walk.stage.rows("SELECT * FROM verdict")
    second = walk.attempts()[1]
    # Then what came late was a whole report that its own key opens and that would have scored
    assert [(row["attempt_id"], unseal(bytes(row["report"]), bytes(first["key"])).verdict) for row in late] == [
        (first["id"], "passed")
    ]
    assert (verdict["attempt_id"], second["state"], second["node"] == node) == (second["id"], "reported", False)
    # And nothing was begun again before it was given up
    told = walk.stage.rows(
        "SELECT kind, (data ->> 'attempt')::int AS n FROM event WHERE subject LIKE 'run:%%' ORDER BY id"
    )
    order = [(row["kind"], row["n"]) for row in told if row["kind"] in ("run.launching", "run.requeued", "run.scored")]
    assert order == [("run.launching", 1), ("run.requeued", 1), ("run.launching", 2), ("run.scored", 2)]


def test_a_slurmd_that_dies_and_comes_back_costs_nothing(walk: Walk) -> None:
    walk.stage.submit(sleeping(4), gpus=["H100"])
    with walk.daemon():
        node = walk.wait_began()["node"]
        control.daemon("kill", f"slurmd:{node}")
        control.daemon("start", f"slurmd:{node}")
        walk.is_well()


def test_jobs_that_are_held_or_whose_nodes_are_drained_or_whose_partition_is_down_wait(walk: Walk) -> None:
    def waits_for(reason: str) -> None:
        walk.stage.wait_until(lambda: walk.attempts()[0]["telemetry"].get("waits") == reason)
        assert walk.stage.open_runs() == 1

    control.as_root("scontrol", "update", "nodename=h1,h2", "state=drain", "reason=test")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            job = job_of(walk.wait_attempt("submitted"))
            waits_for("every node that fits is reserved, drained or down")
            subprocess.run(["scontrol", "hold", job], check=True)
            waits_for("held by the service's own account; a host can release it")
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
            control.as_root("scontrol", "update", "nodename=h1,h2", "state=resume")
            subprocess.run(["scontrol", "release", job], check=True)
            waits_for("the cluster's partition is down")
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            walk.is_well()
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
        control.resume("h1,h2")


def test_a_job_that_somebody_ends_from_outside_is_tried_again(walk: Walk) -> None:
    walk.stage.submit(sleeping(6), gpus=["H100"])
    with walk.daemon():
        subprocess.run(["scancel", job_of(walk.wait_began())], check=True)
        walk.is_well(attempts=2)
    first = walk.attempts()[0]
    told = f"Slurm: CANCELLED on {first['node']} (its job was cancelled at the cluster)"
    assert (first["ending"], first["reason"]) == ("cancelled", told)
    assert walk.gave_up() == first["reason"]


def test_a_job_that_is_requeued_from_outside_is_told_so(walk: Walk) -> None:
    walk.stage.submit(sleeping(6), gpus=["H100"])
    with walk.daemon():
        job = job_of(walk.wait_began())
        control.as_root("scontrol", "update", f"jobid={job}", "requeue=1")  # against our --no-requeue
        control.as_root("scontrol", "requeue", job)
        walk.is_well(attempts=2)
    assert walk.gave_up().startswith("it was requeued from outside")


def test_a_run_that_slurm_ends_before_its_own_limit_is_tried_again(walk: Walk) -> None:
    """Its own watchdog comes first where a run has had its time."""
    walk.stage.submit(sleeping(45), gpus=["H100"])
    with walk.daemon():
        job = job_of(walk.wait_began())
        control.as_root("scontrol", "update", f"jobid={job}", "EndTime=now")
        walk.is_well(attempts=2)
    assert walk.attempts()[0]["ending"] == "boot_failure"
    assert "Slurm: TIMEOUT" in walk.gave_up() and "before the run's own" in walk.gave_up()


def test_a_node_that_loses_power_takes_its_containers_with_it(walk: Walk) -> None:
    def alive() -> list[str]:
        return [line for line in control.as_root("ps", "-eo", "pid,args").splitlines() if " /eval" in line]

    walk.stage.submit(sleeping(15), gpus=["H100"])
    with walk.daemon():
        node = walk.wait_began()["node"]
        assert alive(), "judge and runner are in containers"
        control.daemon("kill", f"node:{node}")
        try:
            assert alive() == []
            control.as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
            assert walk.wait_attempt("dead")["ending"] == "node_failure"
            walk.is_well(attempts=2)
        finally:
            control.daemon("start", f"slurmd:{node}")
            control.resume(node)
            control.settle()


def test_a_job_that_was_given_less_memory_than_its_problem_needs_isnt_its_submissions_fault(walk: Walk) -> None:
    walk.stage.submit(HUNGRY, gpus=["TIGHT"])
    with walk.daemon():
        (run,) = walk.wait_ended()
    assert (run["state"], run["verdict"], run["attempts"]) == ("failed", "infrastructure", 1), run
    assert "had given it 500 MB where its problem needs" in run["verdict_reason"]
    assert walk.attempts()[0]["ending"] == "misconfigured"
    assert (walk.verdicts(), walk.claims()) == (1, 1)


def test_a_judge_that_is_killed_leaves_no_report_and_the_run_goes_on(walk: Walk) -> None:
    walk.stage.submit(sleeping(4), gpus=["H100"])
    with walk.daemon():
        node = walk.wait_began()["node"]
        (judge,) = Path("/dev/shm").glob("kb-*/judge.pid")
        os.kill(int(judge.read_text()), signal.SIGKILL)
        walk.is_well(attempts=2)
    first = walk.attempts()[0]
    assert first["ending"] == "no_report"
    assert first["reason"].startswith(
        "the judge was killed by a signal (status 137) and left no report; Slurm: FAILED on "
    )
    assert node in first["reason"] and walk.gave_up() == first["reason"]


def test_a_judge_that_fails_without_a_report_is_told_with_its_status(walk: Walk) -> None:
    """The first attempt's manifest is spoilt while its job waits: the judge can't read it, and ends by itself."""
    control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            first = walk.wait_attempt("submitted")
            manifest = Path(walk.site.paths.shared_root) / "attempts" / first["name"] / "manifest.json"
            manifest.chmod(0o600)
            manifest.write_text("{}")
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            walk.is_well(attempts=2)
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
    first = walk.attempts()[0]
    assert first["ending"] == "no_report"
    assert first["reason"].startswith("the judge ended with status "), first["reason"]
    assert walk.gave_up() == first["reason"]


def test_of_two_jobs_of_one_attempt_one_runs_though_it_isnt_the_one_that_was_noted(walk: Walk) -> None:
    control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            first = walk.wait_attempt("submitted")
            noted, folder = job_of(first), Path(walk.site.paths.shared_root) / "attempts" / first["name"]
            subprocess.run(["scontrol", "hold", noted], check=True)
            sbatch = ["sbatch", "--parsable", str(folder / f"{noted}_submission.sh")]
            twin = subprocess.run(sbatch, check=True, capture_output=True, text=True).stdout.strip()
            control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
            walk.is_well()
            subprocess.run(["scontrol", "release", noted], check=True)
            walk.stage.wait_until((folder / f"duplicate-{noted}").exists)
            walk.is_well()
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
    assert (folder / "claim" / "job").read_text().strip() == twin != noted
    assert not walk.stage.rows("SELECT 1 FROM stale_report")


def test_a_preempted_job_is_tried_again(walk: Walk) -> None:
    walk.stage.submit(sleeping(6), gpus=["LOW"])
    with walk.daemon():
        node = walk.wait_began()["node"]
        sbatch = ["sbatch", "--parsable", "-p", "high", "-w", node, "--gres=gpu:3", "--mem=100M", "-o", "/dev/null"]
        subprocess.run([*sbatch, "--wrap", "sleep 3"], check=True, stdout=subprocess.DEVNULL)
        walk.is_well(attempts=2)
    first = walk.attempts()[0]
    told = f"Slurm: PREEMPTED on {node} (the cluster needed its GPU for a job with a higher priority)"
    assert (first["ending"], first["reason"]) == ("preempted", told)
    assert walk.gave_up() == first["reason"]


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
    assert "container wouldn't start: there is no image there-is-none.sif on h" in runs["LOST"]["verdict_reason"]
    assert "container wouldn't start" in runs["BROKEN"]["verdict_reason"]
    assert "partition" in runs["NOWHERE"]["verdict_reason"].lower()


def test_a_folder_that_cant_be_written_keeps_the_run_waiting(walk: Walk) -> None:
    root = Path(walk.site.paths.shared_root)
    root.chmod(0o500)
    try:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        with walk.daemon():
            walk.wait_attempt("intent")
            walk.stage.store.events.wait(1.0)
            assert walk.stage.open_runs() == 1
            root.chmod(0o700)
            walk.is_well()
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
            walk.is_well(attempts=2, claims=1)
            assert walk.attempts()[0]["ending"] == "boot_failure"
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
