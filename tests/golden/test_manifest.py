"""What render makes of a run, byte for byte: the text that crosses the trust line doesn't change by accident.

After a change that is meant: KBSLURM_TEST_GOLDEN=write python -m pytest tests/golden/test_manifest.py, then read the
difference.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from kbslurm.domain.problem import Problem
from kbslurm.domain.run import (
    AttemptId,
    AttemptState,
    JobName,
    OpenAttempt,
    RunId,
    SubmissionId,
    Work,
)
from kbslurm.flow import render
from kbslurm.flow.place import Place
from kbslurm_eval.shared.wire import Mode, read_manifest
from tests.flow.puppet import Puppet

DATA = Path(__file__).with_name("data")
PROBLEM = Problem(
    name="sum",
    description="Not for the harness.",
    files={"reference.py": "def check(data, out): ...\n", "task.py": "type = object\n"},
    runner_files=("task.py",),
    config={"main": "reference.py"},
    tests=({"size": 8, "seed": 1},),
    benchmarks=({"size": 1024, "seed": 2},),
    hidden=({"size": 77, "shape": [7, 11]},),
    seed=3,
    ranking_by="geom",
)


def work(mode: Mode) -> Work:
    return Work(
        attempt=OpenAttempt(
            id=AttemptId(11),
            run_id=RunId(7),
            number=2,
            name=JobName("kb-abcdefghijklmnopqrstuvwxyz"),
            backend="puppet",
            gpu="A100",
            state=AttemptState.INTENT,
            handle=None,
            opened_at=datetime(2026, 5, 1, tzinfo=UTC),
            deadline_at=None,
        ),
        submission_id=SubmissionId(5),
        person="zuzanna",
        by_staff=False,
        board="the-board",
        mode=mode,
        file_name="kernel.py",
        source="def custom_kernel(data):\n    return sum(data)\n",
        problem=PROBLEM,
        problem_digest="d" * 64,
        nonce="n" * 32,
        key=b"k" * 32,
        secret_seed="5" * 32,
    )


@pytest.mark.parametrize("mode", ["test", "leaderboard"])
def test_the_job_of_a_run_is_what_it_was(mode: str) -> None:
    given = work(cast("Mode", mode))
    job = render.job(given, Place(backend=Puppet()))
    text = json.dumps(json.loads(job.manifest), indent=1, sort_keys=True) + "\n"
    file = DATA / f"manifest-{mode}.json"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        DATA.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
    assert read_manifest(job.manifest).token == given.attempt.name
    assert (job.name, job.gpu, job.key, job.directory, job.script) == (
        given.attempt.name,
        "A100",
        given.key,
        None,
        None,
    )
    for secret in (given.person, given.board, given.key.decode(), PROBLEM.description):
        assert secret not in job.manifest


def test_a_place_with_a_root_gets_a_directory_and_a_script_of_it(tmp_path: Path) -> None:
    def script(work: Work, directory: Path, limit_s: float) -> str:
        return f"{work.attempt.name} in {directory} for {limit_s > 0}"

    given = work("test")
    job = render.job(given, Place(backend=Puppet(), root=tmp_path, script=script))
    assert job.directory == tmp_path / given.attempt.name
    assert job.script == f"{given.attempt.name} in {tmp_path / given.attempt.name} for True"
