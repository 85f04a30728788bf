"""The manifest says what is judged, and nothing of who asked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbslurm.config.sections.modal import ModalGpuSection
from kbslurm.domain.manifest import job_s, manifest_for, manifest_text, time_limit_s
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm.problems.fields import limits_of
from kbslurm_eval.shared.time_limits import STARTS_APART
from kbslurm_eval.shared.wire import MANIFEST_CAP, PHASES, Build, Limits, Manifest, Mode, read_manifest

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


@pytest.mark.parametrize(
    "line",
    [
        '// HIDDEN = [{"n": 971353}]',
        '\ufeff//HIDDEN=[{"n": 971353}]',
        '// HIDDEN =\n[{"n": 971353}]',
        '#if 0\n\ufeff// HIDDEN = [{"n": 971353}]\n#endif',
    ],
)
def test_what_submissions_see_lists_no_hidden_case(line: str) -> None:
    text = f"{line}\nint x;\n"
    problem = replace(PROBLEM, files={"reference.cu": text, "check.cu": text}, runner_files=("reference.cu",))
    told = made(problem).files
    assert "971353" not in told["reference.cu"] and told["reference.cu"].endswith("int x;\n")
    assert told["reference.cu"].count("\n") == text.count("\n"), "places in messages stay what they are"
    assert told["check.cu"] == text, "the judge's own"


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
    assert sum(phases[name] for name in PHASES[mode]) < inside == job_s(PROBLEM, mode)
    assert inside < time_limit_s(PROBLEM, mode)


@pytest.mark.parametrize("mode", list(PHASES))
@pytest.mark.parametrize(
    ("problem", "built"),
    [
        (PROBLEM, 1),
        (replace(PROBLEM, config={"baseline": "b"}), 2),
        (replace(PROBLEM, build=Build(when="never")), 0),
        (
            replace(PROBLEM, lang="cu", build=Build(when="never", adapter={"reference": {}}), config={"baseline": "b"}),
            3,
        ),
    ],
)
def test_a_job_may_take_as_long_as_all_its_limits_together(mode: Mode, problem: Problem, built: int) -> None:
    told = made(problem, mode)
    if mode == "test":
        built -= "baseline" in problem.config  # it is timed beside others, and only there
    phases = {"test": 1.0, "benchmark": 2.0, "ranked": 4.0, "hidden": 4.0}
    apart = sum(name in STARTS_APART for name in PHASES[mode])
    least_s = 1.5 * sum(phases[name] for name in PHASES[mode]) + (built + apart) * told.build.limit_s
    assert told.limits.total_s >= least_s
    assert job_s(replace(problem, limits=replace(problem.limits, total_s=3)), mode) == 3 + (
        (built + apart) * told.build.limit_s
    )


def test_a_problem_that_says_nothing_has_time_for_builds_and_starts_on_modal() -> None:
    problem = replace(PROBLEM, limits=limits_of({}, {}), config={"baseline": "b"})
    assert time_limit_s(problem, "leaderboard") < ModalGpuSection().timeout_s
