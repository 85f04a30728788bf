"""One problem for each shape that public problem sets have, judged with its submissions by the real harness."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbslurm.config.shared_folders import eval_dir
from kbslurm.errors import Invalid
from kbslurm.problems.loading import load
from kbslurm.trial.run import run_trial
from kbslurm.trial.verifying import verify
from tests.services import GXX, NINJA, needs, pointless

SHAPES = Path(__file__).resolve().parents[1] / "problems"
PYTHON, COMPILED = ("typed", "two_entries"), ("cu_header", "cu_python", "cu_one_file/reference.cu")


@pytest.mark.parametrize("name", [*PYTHON, *COMPILED])
def test_every_shape_has_all_modes(name: str) -> None:
    assert load(SHAPES / name, root=SHAPES).modes == ("test", "benchmark", "leaderboard", "profile")


@pytest.mark.parametrize("name", [*PYTHON, *(pytest.param(one, marks=needs(GXX)) for one in COMPILED)])
def test_every_submission_gets_its_verdict(name: str, tmp_path: Path) -> None:
    problem = load(SHAPES / name, root=SHAPES)
    found = list(verify(SHAPES / name, problem=problem, work=tmp_path, eval_dir=eval_dir(), mode="test"))
    assert [f"{v.file.name}: {v.expected} expected, {v.got}: {v.reason}" for v in found if not v.ok] == []
    assert {v.got for v in found} >= {"passed", "wrong"}


@needs(GXX)
def test_a_compiled_problem_is_ranked(tmp_path: Path) -> None:
    problem = load(SHAPES / "cu_header", root=SHAPES)
    source = (SHAPES / "cu_header/submissions/accepted/host.cpp").read_text()
    report = run_trial(problem, "host.cpp", source, "leaderboard", work=tmp_path, eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
    assert report.host["build"]["files"] == 1


@needs(GXX)
@pytest.mark.parametrize("keys", ["", "  judge_files: [secret.h]\n"])
def test_a_header_of_the_judges_is_nowhere_for_a_compiled_submission(tmp_path: Path, keys: str) -> None:
    folder = shutil.copytree(SHAPES / "cu_header", tmp_path / "problem")
    (folder / "secret.h").write_text("#pragma once\ninline float halved(float x) { return x / 2; }\n")
    (folder / "reference.cuh").write_text('#include "secret.h"\n' + (folder / "reference.cuh").read_text())
    text = (folder / "task.yml").read_text()
    text = text.replace("files:\n", "files:\n  - {name: secret.h, source: secret.h}\n")
    (folder / "task.yml").write_text(
        text.replace("kbslurm: {launches: 2, calls: 5}\n", f"kbslurm:\n  launches: 2\n{keys}")
    )
    honest = (folder / "submissions/accepted/host.cpp").read_text()
    problem, got = load(folder), {}
    for name, source in (("honest.cpp", honest), ("thief.cpp", f'#include "secret.h"\n{honest}')):
        report = run_trial(problem, name, source, "test", work=tmp_path, eval_dir=eval_dir()).report
        got[name] = (report.verdict, "secret.h" in f"{report.reason}{report.log}")
    assert got == {"honest.cpp": ("passed", False), "thief.cpp": ("error", True)}


@needs(GXX)
@pytest.mark.parametrize("baseline", ['"reference"', '"submissions/accepted/product.cu"'])
def test_a_compiled_problem_in_one_file_has_a_baseline(tmp_path: Path, baseline: str) -> None:
    shutil.copytree(SHAPES / "cu_one_file", tmp_path / "product")
    file = tmp_path / "product/reference.cu"
    file.write_text(file.read_text().replace('BASELINE = "reference"', f"BASELINE = {baseline}"))
    source = (SHAPES / "cu_one_file/submissions/accepted/product.cu").read_text()
    report = run_trial(load(file), "product.cu", source, "benchmark", work=tmp_path, eval_dir=eval_dir()).report
    assert (report.verdict, report.paired) == ("passed", True), report.reason


@pytest.mark.parametrize("baseline", ["generate_input", "nobody", "../nobody.cu", "2"])
def test_a_baseline_that_is_none_is_told_with_its_line(tmp_path: Path, baseline: str) -> None:
    file = tmp_path / "reference.cu"
    text = (SHAPES / "cu_one_file/reference.cu").read_text()
    file.write_text(text.replace('BASELINE = "reference"', f"BASELINE = {baseline}"))
    with pytest.raises(Invalid) as told:
        load(file)
    assert told.value.line == 4
    assert "BASELINE" in str(told.value)


@needs(GXX, NINJA)
@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_what_torch_compiles_inline_is_compiled_once(tmp_path: Path) -> None:
    problem = load(SHAPES / "torch_inline", root=SHAPES)
    source = (SHAPES / "torch_inline/submissions/accepted/load_inline.py").read_text()
    report = run_trial(problem, "load_inline.py", source, "benchmark", work=tmp_path, eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
    ready = [float(line.split()[2]) for line in report.log.splitlines() if line.startswith("ready after")]
    assert len(ready) == 1 + 1 + problem.budget.launches
    assert max(ready[1:]) < ready[0], "a runner compiled again"


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_triton_is_interpreted_on_a_cpu(tmp_path: Path) -> None:
    folder = SHAPES / "triton_axpy"
    found = list(verify(folder, problem=load(folder), work=tmp_path, eval_dir=eval_dir(), mode="test"))
    assert {(v.file.name, v.got) for v in found} == {
        ("blocks.py", "passed"),
        ("tuned.py", "passed"),
        ("no_last_block.py", "wrong"),
    }


# Triton's own code, with a driver that compiles and times nothing. What it prints: how often a kernel was timed.
TUNED = """
import sys

from kbslurm_eval.build import built_files

built_files.furnish({"place": "built", "cache": sys.argv[1]}, sys.argv[1] + "-none")
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

timed = []


class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self):
        return lambda call, quantiles: timed.append(call) or [1.0 / len(timed)] * 3


driver.set_active(Driver())


@triton.autotune(configs=[triton.Config({"block": size}) for size in (128, 256)], key=["n"])
@triton.jit
def kernel(n, block: tl.constexpr):
    pass


kernel.fn.run = lambda *args, **chosen: None
kernel.run(5, grid=(1,), warmup=False)
print(len(timed), kernel.best_config.kwargs["block"])
"""


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_triton_keeps_what_it_tuned_with_what_was_built(tmp_path: Path) -> None:
    file = tmp_path / "tuned.py"
    file.write_text(TUNED)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(eval_dir())}
    told = [
        subprocess.run([sys.executable, file, tmp_path / "cache"], env=env, text=True, capture_output=True, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.split() for one in told] == [["2", "256"], ["0", "256"]]


# A problem's own file of that name: what matters here is who calls it, where, and with which environment.
TRITON = """
import os


def said(n):
    print("interpreted" if os.environ.get("TRITON_INTERPRET") == "1" else "compiled", os.environ["TRITON_CACHE_DIR"])
    with open(os.path.join(os.environ["TRITON_CACHE_DIR"], "kernel"), "a") as file:
        file.write("x")
    return n + 1
"""
PLUS_ONE = """
def generate_input(n, seed):
    return n


def ref_kernel(data):
    return data + 1


def check_implementation(data, output):
    return output == data + 1, ""
"""


def test_a_triton_submission_is_warmed_up_by_a_builder_and_told_to_interpret(tmp_path: Path) -> None:
    folder = tmp_path / "plus"
    folder.mkdir()
    listed = ", ".join(f"{{name: {name}, source: {name}}}" for name in ("reference.py", "triton.py"))
    (folder / "task.yml").write_text(
        f'files: [{{name: submission.py, source: "@SUBMISSION@"}}, {listed}]\nlang: py\n'
        "tests: [{n: 3, seed: 1}]\nkbslurm: {runner_files: [triton.py]}\n"
    )
    (folder / "reference.py").write_text(PLUS_ONE)
    (folder / "triton.py").write_text(TRITON)
    source = "import triton\n\n\ndef custom_kernel(data):\n    return triton.said(data)\n"
    report = run_trial(load(folder), "plus.py", source, "test", work=tmp_path / "w", eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
    assert "compiled" not in report.log
    assert report.log.count("interpreted") == 3, "by the builder once, and the first test is asked twice"
    assert report.host["build"]["files"] == 1


def test_a_machine_without_triton_says_so_in_one_sentence(tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is not None:
        pointless("this machine has triton")
    file = tmp_path / "plus.py"
    file.write_text(f"TESTS = [{{'n': 3, 'seed': 1}}]\n{PLUS_ONE}")
    source = "import triton\n\n\ndef custom_kernel(data):\n    return data + 1\n"
    report = run_trial(load(file), "mine.py", source, "test", work=tmp_path / "w", eval_dir=eval_dir()).report
    assert report.verdict == "error"
    assert report.reason.endswith("triton isn't installed where this is judged, and submission.py imports it")
    assert load(SHAPES / "triton_axpy").templates.keys() == {"Triton"}
