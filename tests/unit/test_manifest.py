"""The manifest says what is judged, and nothing of who asked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbslurm.domain.manifest import job_s, manifest_for, manifest_text, time_limit_s
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm_eval.shared.wire import MANIFEST_CAP, PHASES, Limits, Manifest, Mode, read_manifest

PROBLEM = Problem(
    name="p",
    files={"reference.py": "x", "task.py": "y"},
    runner_files=("task.py",),
    tests=({"n": 1, "scale": 0.5, "shape": [1, 2], "on": True, "kind": "a"},),
    benchmarks=({"n": 2},),
    hidden=({"n": 3},),
    limits=Limits(test_s=1, benchmark_s=2, ranked_s=4, total_s=1000),
)


def made(problem: Problem = PROBLEM, mode: Mode = "leaderboard", source: str = "s") -> Manifest:
    return manifest_for(
        problem, token="t", attempt=2, nonce="n", mode=mode, gpu="H100", source=source, secret_seed="00ff"
    )


def test_what_the_harness_reads_is_what_was_written() -> None:
    manifest = made()
    assert read_manifest(manifest_text(manifest)) == manifest
    assert manifest.problem_digest == PROBLEM.digest
    assert (manifest.tests, manifest.hidden) == (list(PROBLEM.tests), list(PROBLEM.hidden))
    told = json.loads(manifest_text(manifest))
    assert not {"key", "person", "board", "description"} & set(told)


def test_the_recorded_digest_wins() -> None:
    manifest = manifest_for(
        PROBLEM, token="t", attempt=1, nonce="n", mode="test", gpu="g", source="s", secret_seed="0", problem_digest="d"
    )
    assert manifest.problem_digest == "d"


def test_a_mode_that_the_problem_lacks_is_refused() -> None:
    with pytest.raises(Invalid, match="problem p has no leaderboard mode"):
        made(replace(PROBLEM, modes=("test",)))


def test_what_the_harness_would_refuse_for_its_size_is_refused_here() -> None:
    with pytest.raises(Invalid, match="over the limit of 16000000"):
        manifest_text(made(source="x" * MANIFEST_CAP))


@pytest.mark.parametrize("mode", list(PHASES))
def test_the_harness_ends_before_it_is_ended(mode: Mode) -> None:
    inside = made(mode=mode).limits.total_s
    phases = {"test": 1, "benchmark": 2, "ranked": 4, "hidden": 4}
    assert sum(phases[name] for name in PHASES[mode]) < inside == job_s(PROBLEM.limits, mode)
    assert inside < time_limit_s(PROBLEM.limits, mode)
    assert job_s(replace(PROBLEM.limits, total_s=3), mode) == 3
