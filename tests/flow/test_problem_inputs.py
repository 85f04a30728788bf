"""A problem's inputs are tried when it is added: in the harness's cage, never in the service's own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbslurm.config import shared_folders
from kbslurm.errors import Invalid
from kbslurm.problems.loading import load
from kbslurm.trial.inputs import with_checked_inputs
from kbslurm.trial.run import run_trial
from kbslurm.trial.verifying import verify

REST = """
def ref_kernel(data):
    return 1

def check_implementation(output, reference):
    return output == reference
"""


def tried(folder: Path, head: str) -> str:
    file = folder / "problem.py"
    file.write_text(f'TESTS = [{{"n": 3, "seed": 1}}]\n{head}{REST}')
    return with_checked_inputs(load(file), eval_dir=shared_folders.eval_dir()).inputs


def test_inputs_that_can_be_made_and_sent_are_checked(tmp_path: Path) -> None:
    head = "import collections\ndef generate_input(n, seed):\n    return collections.OrderedDict(a=[0.5] * n)\n"
    assert tried(tmp_path, head) == "checked"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {'a': [lambda: n]}", r"data\['a'\]\[0\] is a function, which can't be sent"),
        ("return 1 // (n - 3)", "generate_input failed for the case n: 3; seed: 1: ZeroDivisionError"),
        ("import os; os._exit(3)", "generate_input: the submission's process ended"),
    ],
)
def test_inputs_that_cant_be_made_or_sent_are_refused(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        tried(tmp_path, f"def generate_input(n, seed):\n    {body}\n")


ENUM = """import enum
class Colour(enum.Enum):
    RED = 1
def generate_input(n, seed):
    return {"n": n, "colour": Colour.RED}
"""
MODULE = """import torch
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
def generate_input(n, seed):
    return {"n": n, "layer": Layer()}
"""


def check_that_all_say_the_same(tmp_path: Path, head: str, place: str, name: str) -> None:
    said = (
        f"{place} needs the class {name} of reference.py, which submissions don't see; move it to a file that they do"
    )
    folder = tmp_path / "problem"
    (folder / "submissions" / "accepted").mkdir(parents=True)
    (folder / "problem.py").write_text(f'TESTS = [{{"n": 3, "seed": 1}}]\n{head}{REST}')
    source = "def custom_kernel(data):\n    return 1\n"
    problem = load(folder / "problem.py")
    report = run_trial(problem, "s.py", source, "leaderboard", work=tmp_path, eval_dir=shared_folders.eval_dir()).report
    assert (report.verdict, said in report.reason) == ("infrastructure", True), report.reason
    (folder / "submissions" / "accepted" / "s.py").write_text(source)
    found = list(verify(folder, problem=problem, work=tmp_path, eval_dir=shared_folders.eval_dir(), mode="test"))
    assert [(one.got, said in one.reason) for one in found if one.file.name == "s.py"] == [("infrastructure", True)]
    with pytest.raises(Invalid) as refused:
        tried(folder, head)
    assert said in str(refused.value)


def test_an_enum_that_submissions_lack_is_the_problems_fault_whoever_finds_it(tmp_path: Path) -> None:
    check_that_all_say_the_same(tmp_path, ENUM, "data['colour']", "Colour")


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_a_module_that_submissions_lack_is_the_problems_fault_whoever_finds_it(tmp_path: Path) -> None:
    check_that_all_say_the_same(tmp_path, MODULE, "data['layer']", "Layer")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            "import a_library_that_is_missing\ndef generate_input(n, seed):\n    return n\n",
            "a_library_that_is_missing isn't",
        ),
        ("def generate_input(n, seed):\n    return bytearray(1 << 40)\n", "more memory"),
        ("def generate_input(n, seed):\n    return [bytes(700 << 20)] * 8\n", "more memory"),  # only as it is packed
    ],
)
def test_what_this_machine_lacks_leaves_them_unchecked(tmp_path: Path, head: str, said: str) -> None:
    found = tried(tmp_path, head)
    assert found.startswith("unchecked: "), found
    assert said in found


def test_a_problems_code_never_runs_in_this_process_nor_reaches_its_files(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    head = f"""import os
def generate_input(n, seed):
    try:
        open({str(mark)!r}, "w").close()
    except OSError:
        pass
    assert os.getpid() != {os.getpid()} and "KBSLURM_SECRET" not in os.environ
    return n
"""
    os.environ["KBSLURM_SECRET"] = "x"
    try:
        assert tried(tmp_path, head) == "checked"
    finally:
        del os.environ["KBSLURM_SECRET"]
    assert not mark.exists()


def test_the_inputs_of_one_rank_are_tried_where_there_are_several() -> None:
    problem = load(Path(__file__).resolve().parents[2] / "examples" / "allreduce")
    assert with_checked_inputs(problem, eval_dir=shared_folders.eval_dir()).inputs == "checked"


def test_a_whole_repository_is_tried_at_a_named_commit(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    shutil.copytree(root / "tests" / "problems" / "shared", tmp_path / "shared")
    shutil.copytree(root / "tests" / "problems" / "typed", tmp_path / "sound")
    shutil.copytree(root / "tests" / "problems" / "typed", tmp_path / "faulty")
    (tmp_path / "faulty" / "reference.py").write_text("def generate_input():\n    return 1\n")
    (tmp_path / "docker-compose.yml").write_text("services: {}\n")
    (tmp_path / ".pre-commit-config.yaml").write_text("repos: []\n")
    (tmp_path / "spring.yaml").write_text("name: spring\nproblems:\n  - {directory: sound}\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path))
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "problems")):
        subprocess.run([*git, *words], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.problem_repository", "--json", "--cases", "1"],
        cwd=root, env={**os.environ, "KBSLURM_PROBLEM_REPO": str(tmp_path)}, capture_output=True, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert len(told["commit"]) >= 7
    assert told["sets"] == [{"set": "spring.yaml", "said": "1 problems, 0 don't load as they are"}]
    assert told["sums"]["problems"] == 2
    assert (told["sums"]["load"], told["sums"]["inputs checked"], told["sums"]["reference runs"]) == (1, 1, 1)
    assert next(r["why_not"] for r in told["problems"] if not r["loads"]).startswith("Invalid: ")


def test_a_problem_that_was_found_good_isnt_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def head(size: int) -> str:
        return f"def generate_input(n, seed):\n    return [0.25] * {size}\n"

    starts: list[list[str]] = []
    run = subprocess.run

    def counted(argv: list[str], **more: Any) -> Any:
        starts.append(argv)
        return run(argv, **more)

    monkeypatch.setattr(subprocess, "run", counted)
    assert [tried(tmp_path, head(size)) for size in (7, 7, 8)] == ["checked"] * 3
    assert len(starts) == 2


def test_a_problem_for_which_no_time_is_left_stays_unchecked(tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_text(f'TESTS = [{{"n": 3, "seed": 1}}]\ndef generate_input(n, seed):\n    return [0.125] * 99\n{REST}')
    found = with_checked_inputs(load(file), eval_dir=shared_folders.eval_dir(), within_s=1.0)
    assert found.inputs.startswith("unchecked: trying the inputs of the problems before it took")
