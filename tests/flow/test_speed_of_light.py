"""`kbslurm problem verify` holds a problem's formulas to what its own submissions take."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbslurm.config import shared_folders
from tests.command_line import CommandLine


def problem(folder: Path, work: str) -> Path:
    """The transposition with one right submission and this much work."""
    shutil.copytree(shared_folders.path("examples") / "transpose", folder)
    for kind in (folder / "submissions").iterdir():
        if kind.name != "accepted":
            shutil.rmtree(kind)
    for file in (folder / "submissions/accepted").iterdir():
        if file.name != "columns.py":
            file.unlink()
    task = folder / "task.yml"
    task.write_text(task.read_text().replace("kbslurm:\n", f"kbslurm:\n  {work}\n"))
    return folder


def test_an_accepted_submission_that_beats_the_formulas_refuses_them(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path)
    words = ("problem", "verify", str(problem(tmp_path / "shapes", "bytes: shapes")), "--mode", "benchmark")
    fine = kbslurm(*words, "--no-mutate", "--peak-tbytes", "1000", "--json")
    assert fine.code == 0, fine.err
    assert [row["beyond"] for row in fine.json()["submissions"]] == [[]]
    beyond = kbslurm(
        *words, "--no-mutate", "--peak-tbytes", "1e-9"
    )  # 384 × 336 bytes at 1000 a second, and text has no length
    assert beyond.code == 3
    assert "NO accepted/columns.py  passed, faster than its work allows" in beyond.out
    assert "bytes allow no less than 129 s" in beyond.out


PRODUCT = """
import numpy as np


def generate_input(n, seed):
    draw = np.random.default_rng(seed)
    return draw.random((n, n + 1)), draw.random((n + 1, n))


def ref_kernel(data):
    return data[0] @ data[1]


def check_implementation(data, output):
    return "" if np.allclose(output, ref_kernel(data)) else "wrong"
"""
TASK = """
files:
  - {{name: submission.py, source: "@SUBMISSION@"}}
  - {{name: reference.py, source: reference.py}}
lang: py
tests: [{{n: 5, seed: 1}}]
benchmarks: [{{n: 300, seed: 2}}]
kbslurm: {{flops: {flops}, bytes: shapes, launches: 3, calls: 5}}
"""


def product(folder: Path, flops: str) -> Path:
    (folder / "submissions/accepted").mkdir(parents=True)
    (folder / "task.yml").write_text(TASK.format(flops=flops))
    (folder / "reference.py").write_text(PRODUCT)
    mine = "def custom_kernel(data):\n    return data[0] @ data[1]\n"
    (folder / "submissions/accepted/plain.py").write_text(mine)
    return folder


def test_operations_are_counted_from_shapes_by_name(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path)
    words = ("problem", "verify", str(product(tmp_path / "product", "shapes(matmul)")), "--mode", "benchmark")
    beyond = kbslurm(*words, "--no-mutate", "--peak-tflops", "1e-9", "--json")
    assert beyond.code == 3
    (said,) = beyond.json()["submissions"][0]["beyond"]
    assert f"no less than {2 * 300 * 301 * 300 / 1000:.3g} s" in said
    fine = kbslurm(*words, "--no-mutate", "--peak-tflops", "1e6", "--json")
    assert fine.code == 0, fine.out


def test_what_is_counted_from_shapes_holds_for_a_ranked_run_too(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path)
    words = ("problem", "verify", str(product(tmp_path / "product", "shapes(matmul)")), "--no-mutate")
    for peak in (("--peak-tflops", "1e-9"), ("--peak-tbytes", "1e-9")):
        beyond = kbslurm(*words, *peak, "--json")
        assert (beyond.code, len(beyond.json()["submissions"][0]["beyond"])) == (3, 1), beyond.out


def test_shapes_that_arent_of_the_operation_are_the_problems_fault(tmp_path: Path) -> None:
    folder = product(tmp_path / "product", "shapes(attention)")
    done = CommandLine(cwd=tmp_path)("problem", "verify", str(folder), "--mode", "benchmark", "--no-mutate", "--json")
    (row,) = done.json()["submissions"]
    assert (done.code, row["got"]) == (3, "infrastructure")
    assert "arrays of 300×301 301×300 to 300×300 aren't those of attention" in row["reason"]
    for flops, said in (("shapes(gemm)", "with one of matmul,"), ("shapes", "there is no parameter shapes")):
        (folder / "task.yml").write_text(TASK.format(flops=flops))
        refused = CommandLine(cwd=tmp_path)("problem", "verify", str(folder))
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_operations_arent_counted_without_a_reference_whose_answer_has_a_shape(tmp_path: Path) -> None:
    folder = product(tmp_path / "product", "shapes(matmul), outputs: check")
    text = PRODUCT.replace("ref_kernel(data)", "data[0] @ data[1]").replace(
        "def data[0] @ data[1]:", "def unused(data):"
    )
    (folder / "reference.py").write_text(text)
    refused = CommandLine(cwd=tmp_path)("problem", "verify", str(folder))
    assert (refused.code, "kbslurm.flops" in refused.err, "no ref_kernel" in refused.err) == (2, True, True), (
        refused.err
    )


def test_a_peak_without_formulas_is_a_mistake(tmp_path: Path) -> None:
    said = CommandLine(cwd=tmp_path)(
        "problem", "verify", str(problem(tmp_path / "none", "ignored_key: 1")), "--peak-tflops", "1"
    )
    assert said.code == 2 and "has neither flops nor bytes" in said.err
