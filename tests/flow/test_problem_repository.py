"""`make test-problems`: what a checkout is taken as, and by which Python it is tried."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import GIT, MAKE, needs

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / "tests" / "collections"
TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
lang: py
tests: [{vocab_size: 8, seed: 1}]
benchmarks: [{vocab_size: 8, seed: 2}]
"""
TWO_FUNCTIONS = """
def generate_inputs(batch, vocab, seed): ...
def reference_forward(logits, targets): ...
def reference_backward(logits, targets, grad): ...
"""


def tried(repository: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.problem_repository", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "KBSLURM_TORCH_PYTHON": "", "KBSLURM_PROBLEM_REPO": str(repository), **env},
    )  # fmt: skip


@pytest.fixture
def reference_kernels(tmp_path: Path) -> Path:
    """Two problems of its format. The judge finds one's functions only as what the import makes of it."""
    root = Path(shutil.copytree(COLLECTIONS / "reference_kernels", tmp_path / "checkout"))
    place = root / "problems/princeton/cross_entropy_py"
    place.mkdir(parents=True)
    (place / "task.yml").write_text(TASK)
    (place / "reference.py").write_text(TWO_FUNCTIONS)
    return root


@needs(GIT)
@pytest.mark.parametrize("by", ["its sets", "its remote"])
def test_reference_kernels_are_recognised_and_imported(reference_kernels: Path, by: str) -> None:
    loads = json.loads(tried(reference_kernels, "--load-only", "--json").stdout)
    assert (loads["collection"], loads["sums"]["problems"], loads["sums"]["load"]) == ("", 2, 1)
    if by == "its sets":
        for name in ("pmpp_v2", "princeton2026"):
            told = "name: Some\nproblems: [{directory: princeton/cross_entropy_py, name: entropy, gpus: [A100]}]\n"
            (reference_kernels / "problems" / f"{name}.yaml").write_text(told)
    else:
        for words in (["init", "-q"], ["remote", "add", "mine", "https://github.com/ada/reference-kernels.git"]):
            subprocess.run(["git", "-C", str(reference_kernels), *words], check=True)
    loads = json.loads(tried(reference_kernels, "--load-only", "--json").stdout)
    assert (loads["collection"], loads["sums"]["load"]) == ("reference-kernels", 2)
    assert [found["set"] for found in loads["sets"]] == ["pmpp_v2.yaml", "princeton2026.yaml"] * (by == "its sets")
    assert "imported as reference-kernels (--collection none" in tried(reference_kernels, "--load-only").stdout
    as_it_is = tried(reference_kernels, "--load-only", "--collection", "none").stdout
    assert "each task.yml as it is" in as_it_is
    assert "problems 2  load 1" in as_it_is


@pytest.mark.parametrize(
    ("folder", "collection", "load"), [("kernelbench", "kernelbench", 3), ("flashinfer", "flashinfer-bench", 2)]
)
def test_other_formats_are_recognised_by_their_files(folder: str, collection: str, load: int) -> None:
    told = json.loads(tried(COLLECTIONS / folder, "--load-only", "--json").stdout)
    assert (told["collection"], told["sums"]["load"], told["sets"]) == (collection, load, [])
    nothing = tried(COLLECTIONS / folder, "--load-only", "--only", "nothing-like-it")
    assert (nothing.returncode, "matches 'nothing-like-it'" in nothing.stderr) == (2, True)


def test_a_python_with_torch_does_it_with_our_libraries(tmp_path: Path) -> None:
    """Those that it is given are asked for: what it is, and then all of the work."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$PYTHONPATH $*"\n')
    python.chmod(0o755)
    done = tried(COLLECTIONS / "kernelbench", "--cases", "1", KBSLURM_TORCH_PYTHON=str(python))
    path, *words = done.stdout.split()
    assert words == ["-m", "tests.problem_repository", "--cases", "1"]
    assert path.split(os.pathsep)[:2] == [str(ROOT), str(ROOT / "eval")]
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    without = tried(COLLECTIONS / "kernelbench", KBSLURM_TORCH_PYTHON=str(python))
    assert without.returncode == 2
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"{python} must have torch and be a Python {version} like the one in .venv" in without.stderr
    assert "No module named 'torch'" in without.stderr
    gone = tried(COLLECTIONS / "kernelbench", KBSLURM_TORCH_PYTHON="/nonexistent/python")
    assert (gone.returncode, gone.stderr) == (2, "TORCH_PYTHON: there is no /nonexistent/python.\n")


def test_whoever_lacks_a_library_reads_how_to_give_it(tmp_path: Path) -> None:
    (tmp_path / "task.yml").write_text(TASK)
    (tmp_path / "reference.py").write_text(
        "import nothing_like_it\nATOL = 0\n"
        "def generate_input(vocab_size, seed): return 1\ndef ref_kernel(data): return 1\n"
    )
    told = tried(tmp_path, "--cases", "1").stdout
    assert "needs the library nothing_like_it: 1" in told
    assert "make test-problems TORCH_PYTHON=/path/to/a/python" in told


@needs(MAKE)
def test_make_passes_the_python_on_and_says_so() -> None:
    for words, wanted in (
        (["-n", "test-problems", "READY=", "TORCH_PYTHON=/there/python"], 'KBSLURM_TORCH_PYTHON="/there/python" '),
        (["-s", "help"], "KBSLURM_PROBLEM_REPO=DIR TORCH_PYTHON=/path/to/a/python"),
    ):
        done = subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        assert wanted in done.stdout
