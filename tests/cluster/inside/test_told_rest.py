"""Faults of slurmrestd at the default pace, in real time: one verdict per run, and every face says what happens."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cluster.inside import control
from tests.cluster.inside.faces import faces
from tests.cluster.inside.site import REST, rest_with_token
from tests.cluster.inside.test_rest import between
from tests.cluster.inside.test_told import one_verdict_each
from tests.cluster.inside.walk import GOOD, sleeping, submission, walk_at

pytestmark = pytest.mark.faults

AWAY_S = 90.0


def test_slurmrestd_that_is_away_for_ninety_seconds(database_url: str) -> None:
    folder = Path("/shared/told/rest-away")
    with walk_at(database_url, folder, more=rest_with_token(folder)) as walk, faces(walk) as told, walk.daemon():
        walk.stage.submit(sleeping(30), gpus=["H100"])
        walk.wait_began()
        control.daemon("kill", "slurmrestd")
        over_at = time.monotonic() + AWAY_S
        try:
            walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
            told.wait_said("slurmrestd at unix:/run/slurmrestd/slurmrestd.sock can't be reached: Connection refused", 2)
            walk.stage.wait_until(lambda: time.monotonic() > over_at, patience_s=2 * AWAY_S)
        finally:
            control.daemon("start", "slurmrestd")
        one_verdict_each(walk, 2)


def test_a_token_that_ends_in_mid_run(database_url: str) -> None:
    folder = Path("/shared/told/rest-token")
    with walk_at(database_url, folder, more=rest_with_token(folder, 30)) as walk, faces(walk) as told, walk.daemon():
        walk.stage.submit(sleeping(60), gpus=["H100"])
        walk.wait_began()
        over_at = time.monotonic() + 31
        walk.stage.wait_until(lambda: time.monotonic() > over_at, patience_s=60)
        walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
        told.wait_said(f"the token from {folder}/token expired at ", 2)
        fresh = subprocess.run(["scontrol", "token", "lifespan=7200"], capture_output=True, text=True, check=True)
        (folder / "token").write_text(fresh.stdout)
        one_verdict_each(walk, 2)


def test_a_controller_that_is_away_behind_a_living_slurmrestd(database_url: str) -> None:
    """It makes no tokens meanwhile, either."""
    folder = Path("/shared/told/rest-controller")
    ours = REST.replace("lifespan=3600", "lifespan=20")
    with walk_at(database_url, folder, more=ours) as walk, faces(walk) as told, walk.daemon():
        walk.stage.submit(sleeping(30), gpus=["H100"])
        walk.wait_began()
        control.daemon("stop", "slurmctld")
        over_at = time.monotonic() + AWAY_S
        try:
            walk.stage.wait_until(lambda: time.monotonic() > over_at - AWAY_S + 25, patience_s=60)
            walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
            told.wait_said("the cluster's controller, which makes the tokens, doesn't answer", 2)
            walk.stage.wait_until(lambda: time.monotonic() > over_at, patience_s=2 * AWAY_S)
        finally:
            control.daemon("start", "slurmctld")
            control.settle()
        one_verdict_each(walk, 2)


def test_an_answer_that_is_lost_on_the_way(database_url: str) -> None:
    """The job is submitted, and nobody says so: it is found by its name, and runs once. It waits until it was seen that
    this is told: by its own files it would be found at once."""
    folder, answers = Path("/shared/told/rest-lost"), threading.Event()
    control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=down")
    try:
        with between(answers) as port:
            way = rest_with_token(folder).replace("unix:/run/slurmrestd/slurmrestd.sock", f"http://127.0.0.1:{port}")
            with walk_at(database_url, folder, more=way) as walk, faces(walk) as told, walk.daemon():
                walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
                told.wait_said("it isn't clear whether its job was submitted: ")
                assert len(subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout.splitlines()) == 1
                answers.set()
                told.wait_said("the cluster's partition is down")
                control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")
                one_verdict_each(walk, 1)
    finally:
        control.as_root("scontrol", "update", "partitionname=gpu-h100", "state=up")


def test_a_job_that_is_ended_from_outside(database_url: str) -> None:
    folder = Path("/shared/told/rest-scancel")
    with walk_at(database_url, folder, more=rest_with_token(folder)) as walk, faces(walk) as told, walk.daemon():
        walk.stage.submit(sleeping(20), by="ada", gpus=["H100"])
        handle = walk.wait_began()["handle"]
        subprocess.run(["scancel", str(handle)], check=True)
        walk.wait_attempt("dead")
        seen = told.look()
        walk.is_well(attempts=2)
    first = walk.attempts()[0]
    told_why = f"Slurm: CANCELLED on {first['node']} (its job was cancelled at the cluster)"
    assert (first["ending"], first["reason"]) == ("cancelled", told_why)
    assert all(first["reason"] in " ".join(seen[name].split()) for name in ("watch", "why", "page")), seen
