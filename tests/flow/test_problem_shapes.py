"""One problem for each shape that public problem sets have, judged with its submissions by the real harness."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kbslurm.problems import load
from kbslurm.share import eval_dir
from kbslurm.trial import run_trial, verify
from tests.services import command

SHAPES = Path(__file__).resolve().parents[1] / "problems"
COMPILED = ("cu_header", "cu_python", "cu_one_file/reference.cu")


@pytest.mark.parametrize("name", ["typed", "two_entries", *COMPILED])
def test_every_submission_gets_its_verdict(name: str, tmp_path: Path) -> None:
    if name in COMPILED:
        command("g++")
    problem = load(SHAPES / name, root=SHAPES)
    assert problem.modes == ("test", "benchmark", "leaderboard", "profile")
    found = list(verify(SHAPES / name, problem=problem, work=tmp_path, eval_dir=eval_dir(), mode="test"))
    assert [f"{v.file.name}: {v.expected} expected, {v.got}: {v.reason}" for v in found if not v.ok] == []
    assert {v.got for v in found} >= {"passed", "wrong"}


def test_a_compiled_problem_is_ranked(tmp_path: Path) -> None:
    command("g++")
    problem = load(SHAPES / "cu_header", root=SHAPES)
    source = (SHAPES / "cu_header/submissions/accepted/host.cpp").read_text()
    report = run_trial(problem, "host.cpp", source, "leaderboard", work=tmp_path, eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
    assert report.host["build"]["files"] == 1


def test_what_torch_compiles_inline_is_compiled_once(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch isn't installed")
    command("g++")
    command("ninja")
    problem = load(SHAPES / "torch_inline", root=SHAPES)
    source = (SHAPES / "torch_inline/submissions/accepted/load_inline.py").read_text()
    report = run_trial(problem, "load_inline.py", source, "benchmark", work=tmp_path, eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
    ready = [float(line.split()[2]) for line in report.log.splitlines() if line.startswith("ready after")]
    assert len(ready) == 1 + 1 + problem.budget.launches
    assert max(ready[1:]) < ready[0], "a runner compiled again"
