"""Through the real harness: a wrapper for another shape of submissions, sizes by GPU type, recorded tensors, and
submissions of several files."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kbslurm.config import shared_folders
from kbslurm.errors import Invalid
from kbslurm.problems.loading import load
from kbslurm.trial.inputs import with_checked_inputs
from tests.command_line import CommandLine, Said
from tests.services import GIT, needs

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
  - {name: wrapper.py, source: wrapper.py}
  - {name: numbers.safetensors, source: numbers.safetensors}
lang: py
tests: [{n: 1000000000, seed: 1}]
benchmarks: [{n: 1000000000, seed: 2}]
kbslurm:
  wrapper: wrapper.py
  launches: 2
  calls: 5
  sizes:
    cpu: {tests: [{n: 3, seed: 1}], benchmarks: [{n: 4, seed: 2}]}
"""
REFERENCE = """
import random


def generate_input(n, seed, recorded):
    known = [int(one) for one in recorded("numbers.safetensors")["numbers"]]
    return [random.Random(seed).choice(known) for _ in range(n)]


def ref_kernel(data):
    return [2 * one for one in data]


def check_implementation(data, output):
    return "" if output == ref_kernel(data) else f"{output} is wrong"
"""
WRAPPER = """
def entry_point(submission):
    if not hasattr(submission, "Doubler"):
        raise LookupError("defines no class Doubler")
    doubler = submission.Doubler(2)
    return lambda data: doubler.forward(*[data])
"""
RIGHT = "from parts.twice import times\n\nclass Doubler:\n    def __init__(self, by):\n        self.by = by\n\n"
RIGHT += "    def forward(self, data):\n        return [times(one, self.by) for one in data]\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    place = tmp_path / "doubled"
    place.mkdir()
    (place / "task.yml").write_text(TASK)
    (place / "reference.py").write_text(REFERENCE)
    (place / "wrapper.py").write_text(WRAPPER)
    head = json.dumps({"numbers": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}}).encode()
    data = struct.pack("<Q", len(head)) + head + struct.pack("<3q", 5, 7, 11)
    (place / "numbers.safetensors").write_bytes(data)
    return place


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    place = tmp_path / "mine"
    (place / "parts").mkdir(parents=True)
    (place / "main.py").write_text(RIGHT)
    (place / "parts/twice.py").write_text("def times(one, by):\n    return by * one\n")
    return place


def test_a_folder_in_another_shape_is_judged_with_the_sizes_of_this_gpu_type(problem: Path, submission: Path) -> None:
    done = CommandLine(cwd=problem)("try", str(problem), str(submission), "--json")
    told = done.json()
    assert (done.code, told["verdict"]) == (0, "passed"), told["reason"]
    assert told["tests"][0]["spec"] == "n: 3; seed: 1"


def test_what_the_wrapper_misses_is_the_submissions_error(problem: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("def custom_kernel(data):\n    return data\n")
    told = CommandLine(cwd=tmp_path)("try", str(problem), str(file), "--mode", "test", "--json").json()
    assert told["verdict"] == "error"
    assert told["reason"].endswith("while loading: submission.py defines no class Doubler")


def test_inputs_of_recorded_tensors_are_tried_when_the_problem_is_added(problem: Path) -> None:
    loaded = load(problem)
    assert with_checked_inputs(loaded, eval_dir=shared_folders.eval_dir()).inputs == "checked"
    assert "numbers.safetensors" not in loaded.runner_files


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("wrapper: wrapper.py\n", "wrapper: gone.py\n", "gone.py isn't a .py file that submissions see"),
        ("wrapper: wrapper.py\n", "wrapper: wrapper.py\n  call: run\n", "`call` has no meaning"),
        ("cpu: {tests", "cpu: {trials", "isn't one of tests, benchmarks, hidden"),
        ("n: 3,", "m: 3,", "generate_input has no parameter m"),
        ("cpu: {", "'no gpu': {", "'no gpu'"),
    ],
)
def test_a_faulty_key_is_told_with_its_place(problem: Path, old: str, new: str, says: str) -> None:
    file = problem / "task.yml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(Invalid, match=says):
        load(problem)


def test_a_faulty_file_of_tensors_is_told(problem: Path) -> None:
    (problem / "numbers.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(Invalid, match="Git LFS pointer"):
        load(problem)
    (problem / "numbers.safetensors").write_bytes(b"nothing")
    with pytest.raises(Invalid, match="shorter than a header"):
        load(problem)


def test_the_command_imports_and_says_what_it_couldnt_take(tmp_path: Path) -> None:
    collection = Path(__file__).parents[1] / "collections/kernelbench"
    words = ("problem", "import", "kernelbench", str(collection), "--out", str(tmp_path / "out"), "--json")
    kbslurm = CommandLine(cwd=tmp_path)
    seen = kbslurm(*words, "--preview")
    assert (seen.code, seen.json()["counts"]) == (3, {"failed": 1, "new": 3})
    assert not (tmp_path / "out").exists()
    assert kbslurm(*words).code == 3
    again = kbslurm(*words, "--only", "level1")
    assert (again.code, again.json()["counts"]) == (0, {"unchanged": 3})


def test_an_imported_problem_runs_with_the_classes_that_its_inputs_need(tmp_path: Path) -> None:
    collection = Path(__file__).parents[1] / "collections/reference_kernels"
    kbslurm = CommandLine(cwd=tmp_path)
    assert kbslurm("problem", "import", "reference-kernels", str(collection), "--out", "made").code == 0
    assert kbslurm("try", "made/toys-double", "made/toys-double/submission.py", "--mode", "test").code == 0


def test_the_file_that_is_called_may_be_in_a_folder(problem: Path, submission: Path) -> None:
    """It finds what lies beside it both ways, and what lies in other folders."""
    inner = submission / "kernels"
    inner.mkdir()
    text = RIGHT.replace(
        "from parts.twice import times", "import near\nfrom . import near as also\nfrom parts.twice import times"
    )
    (inner / "doubler.py").write_text(text + "\nassert near.ONE == also.ONE == 1\n")
    (inner / "near.py").write_text("ONE = 1\n")
    (submission / "main.py").unlink()
    words = ("try", str(problem), str(submission), "--entry", "kernels/doubler.py", "--mode", "test", "--json")
    told = CommandLine(cwd=problem)(*words).json()
    assert told["verdict"] == "passed", told["reason"]


def test_whoever_forgot_a_file_reads_which_ones_are_there(problem: Path, submission: Path) -> None:
    """It was a library that pip should bring, and nothing else."""
    (submission / "main.py").write_text(RIGHT.replace("parts.twice", "prats.twice"))
    done = CommandLine(cwd=problem)("try", str(problem), str(submission), "--mode", "test", "--json")
    told = done.json()["error"]
    assert (done.code, told["message"].partition(",")[0]) == (2, "main.py needs prats")
    assert "A file of yours must be in the submission, which has main.py, parts/twice.py." in told["hint"]


SOLUTION = {
    "name": "doubled by hand",
    "definition": "double",
    "author": "ada",
    "spec": {
        "language": "python",
        "target_hardware": ["cpu"],
        "entry_point": "kernels/main.py::twice",
        "destination_passing_style": True,
    },
    "sources": [
        {
            "path": "kernels/main.py",
            "content": "from .near import by\n\n\ndef twice(data, out):\n    out += by(data)\n",
        },
        {"path": "kernels/near.py", "content": "def by(data):\n    return [2 * one for one in data]\n"},
    ],
}


def test_a_solution_of_flashinfer_bench_is_a_submission(problem: Path, tmp_path: Path) -> None:
    (problem / "wrapper.py").write_text(
        "def entry_point(submission):\n"
        "    assert submission.DESTINATION_PASSING is True and submission.DEFINITION == 'double'\n\n"
        "    def call(data):\n"
        "        out = []\n"
        "        submission.run(data, out)\n"
        "        return out\n\n"
        "    return call\n"
    )
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(SOLUTION))
    told = CommandLine(cwd=tmp_path)("try", str(problem), str(file), "--mode", "test", "--json").json()
    assert told["verdict"] == "passed", told["reason"]


def test_a_repository_that_is_neither_here_nor_named_is_told_so(tmp_path: Path) -> None:
    done = CommandLine(cwd=tmp_path)("problem", "import", "kernelbench", "/nonexistent", "--json")
    assert done.code == 2
    assert done.json()["error"]["message"] == "there is no directory /nonexistent"
    assert "server" not in done.out


def test_whoever_imports_reads_which_problems_a_cpu_runs_in_full_size(tmp_path: Path) -> None:
    repository = Path(shutil.copytree(Path(__file__).parents[1] / "collections/kernelbench", tmp_path / "collection"))
    file = repository / "KernelBench/level1/1_Scale_rows.py"
    file.write_text(file.read_text().replace("rand(batch_size, width)", "rand(4096, width)"))
    words = ("problem", "import", "kernelbench", str(repository), "--only", "level1")
    for option in ("--preview", "--json", "--preview"):
        said = CommandLine(cwd=tmp_path)(*words, option)
        assert said.code == 0
        if option == "--json":
            large = {one["name"]: one["large_on_cpu"] for one in said.json()["problems"]}
            assert [name for name, is_large in large.items() if is_large] == ["kernelbench-l1-1_scale_rows"]
        else:
            told = " ".join(said.err.split())
            assert "No small sizes for the type cpu could be made for 1 problem," in told
            assert "kernelbench-l1-1_scale_rows. Write `sizes: {cpu: …}` below `kbslurm:` in its task.yml." in told


@needs(GIT)
def test_an_abbreviated_commit_is_asked_for_in_full(tmp_path: Path) -> None:
    """git can't fetch by the first digits, which is what people copy; a branch may be called like that, too."""
    repository = tmp_path / "collection"
    shutil.copytree(Path(__file__).parents[1] / "collections/kernelbench", repository)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(repository))
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "problems"), ("branch", "abcdef1")):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()

    def at(branch: str) -> Said:
        words = ("problem", "import", "kernelbench", str(repository), "--branch", branch, "--only", "Scale", "--json")
        return CommandLine(cwd=tmp_path)(*words)

    assert at(commit).json()["commit"] == at("abcdef1").json()["commit"] == commit
    short = at(commit[:8])
    assert short.code == 2
    assert f"no branch or tag {commit[:8]}" in short.json()["error"]["message"]
    assert "all 40 digits" in short.json()["error"]["hint"]
    assert "couldn't find remote ref" in at("nonsense").json()["error"]["message"]


@pytest.mark.torch
@pytest.mark.parametrize("style", ["passing", "returning", "compiled"])
def test_a_solution_of_an_imported_definition_is_judged(tmp_path: Path, style: str) -> None:
    """Its outputs are passed in, or returned, or torch compiles it; one of another definition is told so."""
    here = Path(__file__).parents[2]
    spec = {
        "language": "python",
        "entry_point": "main.py::pick",
        "destination_passing_style": style != "returning",
    }
    sources = {
        "passing": {"main.py": "def pick(x, scale, rows, y):\n    y.copy_(x[rows.long()] * scale)\n"},
        "returning": {"main.py": "def pick(x, scale, rows, more=None):\n    return x[rows.long()] * scale\n"},
        "compiled": {
            "main.cpp": '#include "times.h"\n#include <torch/extension.h>\n'
            "void pick(torch::Tensor x, double scale, torch::Tensor rows, torch::Tensor y) {\n"
            "  y.copy_(times(x.index_select(0, rows.to(torch::kLong)), scale));\n}\n"
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("pick", &pick); }\n',
            "times.h": "#include <torch/torch.h>\n"
            "inline torch::Tensor times(torch::Tensor x, double by) { return x * by; }\n",
        },
    }[style]
    if style == "compiled":
        spec |= {"language": "cpp", "entry_point": "main.cpp::pick", "binding": "torch"}
    told = {"name": style, "definition": "toy_pick_d4", "author": "ada", "spec": spec,
            "sources": [{"path": path, "content": text} for path, text in sources.items()]}  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(told))
    (tmp_path / "other.json").write_text(json.dumps({**told, "definition": "another"}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, (here, here / "eval")), *sys.path])}

    def kbslurm(*words: str) -> str:
        argv = [os.environ["KBSLURM_TORCH_PYTHON"], "-m", "kbslurm", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        return done.stdout

    kbslurm("problem", "import", "flashinfer-bench", str(here / "tests/collections/flashinfer"), "--out", "made")
    words = ("try", "made/flashinfer-toy_pick_d4")
    found = json.loads(kbslurm(*words, "mine.json", "--mode", "test", "--json"))
    assert found["verdict"] == "passed", found["reason"]
    if style == "returning":
        refused = json.loads(kbslurm(*words, "other.json", "--mode", "test", "--json"))
        assert "is a solution of another, and this is toy_pick_d4" in refused["reason"]


PLACED = """
import torch
from model import Model


class ModelNew(Model):
    def forward(self, x, out=None):
        assert out is not None and out.is_contiguous()
        return torch.mul(x, self.weight, out=out)
"""


@pytest.mark.torch
def test_a_models_forward_writes_where_its_answer_is_read(tmp_path: Path) -> None:
    here = Path(__file__).parents[2]
    (tmp_path / "mine.py").write_text(PLACED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, (here, here / "eval")), *sys.path])}

    def kbslurm(*words: str) -> str:
        argv = [os.environ["KBSLURM_TORCH_PYTHON"], "-m", "kbslurm", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        return done.stdout

    collection = here / "tests/collections/kernelbench"
    kbslurm("problem", "import", "kernelbench", str(collection), "--only", "Scale", "--out", "made")
    (problem,) = (tmp_path / "made").iterdir()
    found = json.loads(kbslurm("try", str(problem), "mine.py", "--mode", "benchmark", "--json"))
    assert found["verdict"] == "passed", found["reason"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("collection", "folder"),
    [("kernelbench", "kernelbench"), ("flashinfer-bench", "flashinfer"), ("tritonbench", "tritonbench"),
     ("reference-kernels", "reference_kernels")],
)  # fmt: skip
def test_small_problems_of_each_format_run(collection: str, folder: str) -> None:
    here = Path(__file__).parents[2]
    done = subprocess.run(  # which begins again by KBSLURM_TORCH_PYTHON
        [sys.executable, "-m", "tests.problem_repository", "--json"],
        capture_output=True, text=True, check=False, cwd=here,
        env={**os.environ, "KBSLURM_PROBLEM_REPO": str(here / "tests/collections" / folder)},
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["collection"] == ("" if collection == "reference-kernels" else collection)
    sums = told["sums"]
    assert sums["load"] == sums["inputs checked"] == sums["reference runs"] == sums["starter passes"] > 0
