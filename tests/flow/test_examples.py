"""Every submission of the examples gets the verdict that its folder says, from the real harness."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kbslurm.config.shared_folders import eval_dir
from kbslurm.problems.loading import load
from kbslurm.trial.run import run_trial
from kbslurm.trial.verifying import verify
from kbslurm_eval.shared.wire import Budget

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["transpose", "rowsoftmax", "allreduce", "one_file/running_sum.py"])
def test_every_submission_gets_its_verdict(name: str, tmp_path: Path) -> None:
    # How much is measured has no part in a verdict; the demo measures one of them at its whole budget.
    problem = dataclasses.replace(load(EXAMPLES / name), budget=Budget(launches=2, calls=5, max_calls=5))
    found = list(verify(EXAMPLES / name, work=tmp_path / "work", eval_dir=eval_dir(), problem=problem))
    wrong = [f"{v.file.name}: {v.expected} expected, {v.got}: {v.reason}" for v in found if not v.ok]
    assert wrong == []
    for verification in found:
        assert (verification.score_s is not None) == (verification.got == "passed")
        assert bool(verification.reason) or verification.got == "passed"
    assert list((tmp_path / "work").iterdir()) == []


def test_the_fast_one_is_faster(tmp_path: Path) -> None:
    problem = load(EXAMPLES / "transpose")
    scores = []
    for name in ("slices", "loops"):
        text = (EXAMPLES / f"transpose/submissions/accepted/{name}.py").read_text(encoding="utf-8")
        report = run_trial(problem, f"{name}.py", text, "benchmark", work=tmp_path, eval_dir=eval_dir()).report
        assert report.verdict == "passed", report.reason
        assert report.score_s is not None
        scores.append(report.score_s)
    assert scores[0] < scores[1], "thirty times the work on a busy machine is still more work"


def test_one_of_them_shows_what_a_baseline_does(tmp_path: Path) -> None:
    problem = load(EXAMPLES / "rowsoftmax")
    text = (EXAMPLES / "rowsoftmax/submissions/accepted/by_row.py").read_text(encoding="utf-8")
    report = run_trial(problem, "by_row.py", text, "benchmark", work=tmp_path, eval_dir=eval_dir()).report
    assert report.verdict == "passed" and report.paired, report.reason
    assert all(row.baseline_ns for row in report.benchmarks), "timed beside it, call by call"


@pytest.mark.gpu
def test_the_torch_example(tmp_path: Path) -> None:
    found = list(verify(EXAMPLES / "torch_gemm", work=tmp_path, eval_dir=eval_dir(), mode="test"))
    assert [v.file.name for v in found if not v.ok] == []
