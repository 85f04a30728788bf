"""Problems from disk: what is read, what stays with the judge, and that each fault names its file, line and key."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest

from kbslurm.domain.contest import parsed_deadline
from kbslurm.domain.problem import Problem, as_json, from_json
from kbslurm.domain.source import checked_source, directives
from kbslurm.domain.verdict import FOLDERS
from kbslurm.errors import Invalid, NotFound, TooLarge
from kbslurm.problems.loading import load
from kbslurm.problems.problem_set import load_each, load_set
from kbslurm_eval.shared.wire import Budget

REFERENCE = """
from task import input_t

def generate_input(n, seed, scale=1.0):
    return [seed] * n

def ref_kernel(data):
    return data

def check_implementation(data, output):
    return True, ""
"""
TASK = """\
lang: py
description: A problem
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: reference.py, source: reference.py}
tests:
  - {n: 4, seed: 1}
  - n: 5
    seed: 2
    scale: 1e-3
benchmarks:
  - {n: 64, seed: 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one sound problem in it."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    place = tmp_path / "repo" / "set" / "Some Problem"
    place.mkdir(parents=True)
    (place / "task.yml").write_text(TASK)
    (place / "reference.py").write_text(REFERENCE)
    (place / "task.py").write_text("input_t = list\n")
    return place


def with_file(folder: Path, name: str, text: str, source: str | None = None) -> None:
    """Add a file and list it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    task = folder / "task.yml"
    line = f"  - {{name: {Path(name).name}, source: {source or name}}}\n"
    task.write_text(task.read_text().replace("tests:\n", line + "tests:\n", 1))


def append(folder: Path, text: str) -> None:
    with (folder / "task.yml").open("a") as file:
        file.write(text)


def change(folder: Path, before: str, after: str) -> None:
    text = (folder / "task.yml").read_text()
    assert before in text
    (folder / "task.yml").write_text(text.replace(before, after, 1))


# ------------------------------------------------------------------------------------------------------ sound ones


def test_a_task_is_read_with_its_types(folder: Path) -> None:
    append(
        folder,
        """\
templates: {Python: template.py}
test_timeout: 7
benchmark_timeout: 8.5
ranked_timeout: 720
ranking_by: geom
seed: 11
gpus: [H100, MI300x8]
libraries: [a]
kbslurm:
  hidden: [{n: 9, seed: 1, scale: 2}]
  memory_mb: 256
  launches: 2
  calls: 400
  modes: [leaderboard, test]
""",
    )
    (folder / "template.py").write_text("def custom_kernel(data): ...\n")
    problem = load(folder)
    assert problem.name == "some-problem"
    assert (problem.style, problem.entry, problem.reference) == ("modern", "submission.py", "reference.py")
    assert problem.tests == ({"n": 4, "seed": 1}, {"n": 5, "seed": 2, "scale": 0.001})
    assert type(problem.tests[1]["scale"]) is float
    assert problem.hidden == ({"n": 9, "seed": 1, "scale": 2},)
    assert (problem.limits.test_s, problem.limits.benchmark_s, problem.limits.ranked_s) == (7, 8.5, 720)
    assert problem.limits.total_s > 2 * 7 + 8.5 + 720
    assert problem.limits.memory_bytes == 256 << 20
    assert problem.budget == Budget(launches=2, calls=400, max_calls=400)
    assert (problem.ranking_by, problem.seed, problem.gpus) == ("geom", 11, ("H100", "MI300x8"))
    assert problem.modes == ("test", "leaderboard")
    assert problem.templates == {"Python": "def custom_kernel(data): ...\n"}
    assert problem.warnings == ()
    assert load(folder / "task.yml") == problem == from_json(as_json(problem))


def test_flags_and_lists_stay_what_they_are(folder: Path) -> None:
    (folder / "reference.py").write_text(REFERENCE.replace("n, seed, scale=1.0", "**case"))
    change(folder, "{n: 4, seed: 1}", "{mask: False, dist: normal, shape: [8, 16, 0.5], seed: 1}")
    assert load(folder).tests[0] == {"mask": False, "dist": "normal", "shape": [8, 16, 0.5], "seed": 1}


def test_hidden_cases_are_only_those_that_are_declared(folder: Path) -> None:
    """The harness runs the tests again among the hidden cases, under the secret seed, whatever stands here."""
    assert load(folder).hidden == ()


def test_the_digest_names_what_judges(folder: Path) -> None:
    before = load(folder)
    change(folder, "A problem", "Other words")
    assert load(folder).digest == before.digest
    change(folder, "n: 64", "n: 65")
    assert load(folder).digest != before.digest


def test_problems_are_timed_cold_unless_they_or_an_older_version_say_otherwise(folder: Path) -> None:
    new = load(folder)
    assert (new.cold, new.is_cold) == ("default", True)
    stored = as_json(new)
    del stored["cold"], stored["budget"]["precision"], stored["budget"]["most_launches"]  # as added by an older kbslurm
    old = from_json(stored)
    assert (old.is_cold, old.budget) == (False, new.budget), "a version never changes"
    assert old.digest == new.digest, "the same files are still the same version, so that nothing new goes live"
    append(folder, "kbslurm: {cold: false}\n")
    warm = load(folder)
    assert not warm.is_cold
    assert warm.digest != new.digest
    change(folder, "cold: false", "cold: true")
    assert load(folder).is_cold
    assert load(folder).digest not in {new.digest, warm.digest}


def test_a_precision_is_a_percentage_with_launches_to_reach_it(folder: Path) -> None:
    before = load(folder).digest
    append(folder, "kbslurm: {precision: 1%}\n")
    budget = load(folder).budget
    assert (budget.launches, budget.precision, budget.most_launches) == (5, 0.01, 20)
    assert load(folder).digest != before
    change(folder, "{precision: 1%}", "{precision: 0.005, launches: 8, most_launches: 12}")
    budget = load(folder).budget
    assert (budget.launches, budget.precision, budget.most_launches) == (8, 0.005, 12)


def test_unknown_keys_are_warned_of(folder: Path) -> None:
    append(folder, "colour: red\nkbslurm:\n  speed: 9\n")
    warnings = load(folder).warnings
    assert [w.rpartition("task.yml")[2] for w in warnings] == [
        ":14: colour: unknown key, ignored",
        ":16: kbslurm.speed: unknown key, ignored",
    ]


def test_the_reference_and_what_only_it_imports_stay_with_the_judge(folder: Path) -> None:
    with_file(folder, "utils.py", "import deep\n")
    with_file(folder, "deep.py", "X = 1\n")
    with_file(folder, "secrets_of_ours.py", "import deeper\n")
    with_file(folder, "deeper.py", "Y = 2\n")
    with_file(folder, "consts.h", "#define N 4\n")
    with_file(folder, "eval.py", "from utils import deep\nfrom submission import custom_kernel\nimport reference\n")
    (folder / "reference.py").write_text("import utils, secrets_of_ours, deep\n" + REFERENCE)
    append(folder, "config: {main: eval.py}\n")
    problem = load(folder)
    assert set(problem.runner_files) == {"task.py", "utils.py", "deep.py", "consts.h"}
    assert set(problem.files) - set(problem.runner_files) == {"reference.py", "secrets_of_ours.py", "deeper.py"}
    assert problem.modes == ("test", "benchmark", "leaderboard", "profile")
    append(folder, "kbslurm: {judge_files: [utils.py], runner_files: [deeper.py]}\n")
    problem = load(folder)
    assert set(problem.runner_files) == {"task.py", "deeper.py", "deep.py", "consts.h"}


@pytest.mark.parametrize("where", ["template", "accepted"])
def test_what_a_submission_imports_reaches_it(folder: Path, where: str) -> None:
    with_file(folder, "utils.py", "X = 1\n")
    (folder / "reference.py").write_text("import utils\n" + REFERENCE)
    assert "utils.py" not in load(folder).runner_files
    if where == "template":
        (folder / "template.py").write_text("from utils import X\n")
        append(folder, "templates: {Python: template.py}\n")
    else:
        (folder / "submissions" / "accepted").mkdir(parents=True)
        (folder / "submissions" / "accepted" / "a.py").write_text("import utils\n")
    assert "utils.py" in load(folder).runner_files


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from submission import custom_kernel, backward\n", "the entry point backward"),
        ("import submission\nsubmission.forward()\n", "the entry point forward"),
        ("from reference import generate_input, flops\n", "flops of the reference"),
        ("import importlib\nm = importlib.import_module('submission')\n", "submission imported at run time"),
        ("import torch.distributed as dist\nfrom torch import distributed\n", "several processes"),
    ],
)
def test_an_eval_that_does_more_is_named_and_doesnt_rank(folder: Path, code: str, names: str) -> None:
    with_file(folder, "eval.py", code)
    append(folder, "config: {main: eval.py}\n")
    problem = load(folder)
    assert problem.modes == ("test", "benchmark")
    assert any(names in warning and "eval.py isn't run" in warning for warning in problem.warnings)
    assert "eval.py" not in problem.files
    append(folder, "kbslurm: {eval: standard}\n")
    assert "leaderboard" in load(folder).modes


def test_the_entry_point_may_have_another_name(folder: Path) -> None:
    with_file(folder, "eval.py", "from submission import solve\n")
    append(folder, "config: {main: eval.py}\n")
    assert "leaderboard" not in load(folder).modes
    append(folder, "kbslurm: {call: solve}\n")
    problem = load(folder)
    assert ("leaderboard" in problem.modes, problem.config) == (True, {"call": "solve", "outputs": "check"})


def test_a_bundled_eval_leaves_it_to_the_check_what_an_answer_is(folder: Path) -> None:
    assert "outputs" not in load(folder).config
    append(folder, "kbslurm: {outputs: check}\n")
    assert load(folder).config == {"outputs": "check"}
    (folder / "task.yml").write_text(TASK)
    with_file(folder, "eval.py", "from submission import custom_kernel\nfrom reference import check_implementation\n")
    assert load(folder).config == {"outputs": "check"}
    (folder / "reference.py").write_text(REFERENCE.replace("def ref_kernel", "def hidden"))
    assert load(folder).config == {"outputs": "check"}
    append(folder, "kbslurm: {outputs: reference}\n")
    with pytest.raises(Invalid, match="the function ref_kernel is missing"):
        load(folder)


def test_it_is_the_same_for_several_ranks(folder: Path) -> None:
    ranks = TASK.replace("{n: ", "{world_size: 2, n: ").replace("  - n: 5\n", "  - n: 5\n    world_size: 2\n")
    ranks += "multi_gpu: true\n"
    (folder / "task.yml").write_text(ranks)
    inputs = REFERENCE.replace("(n, seed,", "(rank, world_size, n, seed,")
    (folder / "reference.py").write_text(inputs)
    assert "outputs" not in load(folder).config
    append(folder, "kbslurm: {outputs: check}\n")
    assert load(folder).config["outputs"] == "check"
    (folder / "reference.py").write_text(inputs.replace("def ref_kernel", "def unused"))
    assert load(folder).config["outputs"] == "check"
    (folder / "task.yml").write_text(ranks)
    with pytest.raises(Invalid, match="the function ref_kernel is missing"):
        load(folder)
    with_file(folder, "eval.py", "from submission import custom_kernel\nfrom reference import check_implementation\n")
    assert load(folder).config["outputs"] == "check"
    append(folder, "kbslurm: {outputs: reference}\n")
    with pytest.raises(Invalid, match="the function ref_kernel is missing"):
        load(folder)


def test_a_check_may_be_missing_where_the_bundled_eval_does_without(folder: Path) -> None:
    (folder / "reference.py").write_text(REFERENCE.replace("def check_imp", "def imp"))
    with pytest.raises(Invalid, match="the function check_implementation is missing"):
        load(folder)
    with_file(folder, "eval.py", "from submission import custom_kernel\nfrom reference import ref_kernel\n")
    assert load(folder).config == {"outputs": "check"}


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        (
            "    start.record()\n    outputs = [custom_kernel(d) for d in many]\n    end.record()\n",
            "several calls as one",
        ),
        (
            "    start.record()\n    for d in many:\n        custom_kernel(d)\n    end.record()\n",
            "several calls as one",
        ),
        ("    g = torch.cuda.CUDAGraph()\n    g.replay()\n", "the replay of a CUDA graph"),
        ("    for d in many:\n        start.record()\n        custom_kernel(d)\n        end.record()\n", ""),
    ],
)
def test_a_bundled_eval_that_times_otherwise_keeps_a_problem_from_ranking(folder: Path, timed: str, said: str) -> None:
    with_file(folder, "eval.py", f"import torch\nfrom submission import custom_kernel\ndef measured():\n{timed}")
    problem = load(folder)
    assert ("leaderboard" in problem.modes) == (not said)
    assert not said or any(f"timing {said}" in warning for warning in problem.warnings)
    append(folder, "kbslurm: {eval: standard}\n")
    assert "leaderboard" in load(folder).modes


def test_arrays_lie_on_the_device_where_the_author_says_so(folder: Path) -> None:
    assert "arrays" not in load(folder).config
    append(folder, "kbslurm: {arrays: device}\n")
    assert load(folder).config == {"arrays": "device"}


@pytest.mark.parametrize(
    ("problem", "said"),
    [("examples/allreduce", "with several ranks, arrays"), ("tests/problems/cu_header", "a C\\+\\+ reference")],
)
def test_arrays_that_no_device_could_have_are_refused(tmp_path: Path, problem: str, said: str) -> None:
    copied = shutil.copytree(Path(__file__).resolve().parents[2] / problem, tmp_path / "problem")
    text = (copied / "task.yml").read_text()
    braced = text.replace("\nkbslurm: {", "\nkbslurm: {arrays: device, ")
    (copied / "task.yml").write_text(braced.replace("\nkbslurm:\n", "\nkbslurm:\n  arrays: device\n"))
    with pytest.raises(Invalid, match=rf"kbslurm\.arrays: {said}"):
        load(copied)


def test_without_benchmarks_there_is_only_the_test_mode(folder: Path) -> None:
    change(folder, "benchmarks:\n  - {n: 64, seed: 3}\n", "")
    problem = load(folder)
    assert problem.modes == ("test",)
    assert "no benchmarks" in problem.warnings[0]


def test_files_of_the_repository_are_shared_and_no_others(folder: Path, tmp_path: Path) -> None:
    (folder.parent / "shared.py").write_text("X = 1\n")
    with_file(folder, "shared.py", "", source="../shared.py")
    assert load(folder).files["shared.py"] == "X = 1\n"
    with pytest.raises(Invalid, match=r"task.yml:7: files\[3\].source: ../shared.py is outside Some Problem/"):
        load(folder, root=folder)
    with pytest.raises(Invalid, match=r"there is no folder .*nowhere") as nowhere:
        load(folder, root=tmp_path / "nowhere")
    assert nowhere.value.hint == "Give --root a folder that the problem is in."
    (tmp_path / "outside.py").write_text("SECRET = 1\n")
    for source in ("../../../outside.py", "link.py", "folder/outside.py"):
        (folder / "link.py").unlink(missing_ok=True)
        (folder / "link.py").symlink_to(tmp_path / "outside.py")
        if not (folder / "folder").exists():
            (folder / "folder").symlink_to(tmp_path)
        change(
            folder,
            (folder / "task.yml").read_text().partition("name: shared.py, source: ")[2].partition("}")[0],
            source,
        )
        with pytest.raises(Invalid, match="is outside repo/") as found:
            load(folder)
        assert (found.value.line, found.value.key) == (7, "files[3].source")


# ----------------------------------------------------------------------------------------------------- faulty ones


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("lang: py", "lang: [", r"task\.yml:\d+: not YAML"),
        ("lang: py", "lang: rust", r"task\.yml:1: lang: rust isn't one of py, cu"),
        ("lang: py", "lang: cu", r"files\[0\].name: the submission to a compiled problem must be a .cu"),
        ("lang: py", "lang: py\nlang: py", r"task\.yml:2: lang: appears twice, first on line 1"),
        ("lang: py", "- a", r"task\.yml:\d+: not YAML"),
        ("lang: py", "test_timeout: soon", r"task\.yml:1: test_timeout: must be a number, not a string"),
        ("lang: py", "test_timeout: 0", r"task\.yml:1: test_timeout: 0 isn't between 0\.1 and 7200"),
        ("lang: py", "test_timeout: .inf", r"task\.yml:1: test_timeout: '\.inf': not a finite number"),
        ("lang: py", "seed: 1.5", r"task\.yml:1: seed: must be a whole number, not 1\.5"),
        ("lang: py", "ranking_by: luck", r"task\.yml:1: ranking_by: luck isn't one of last, mean, geom"),
        ("lang: py", "gpus: [H100, 'H 200']", r"task\.yml:1: gpus\[1\]: 'H 200' isn't a valid GPU name"),
        ("lang: py", "gpus: H100", r"task\.yml:1: gpus: must be a list, not a string"),
        (
            "lang: py",
            "multi_gpu: true",
            r"task\.yml:8: tests\[0\]: lacks world_size, which multi_gpu requires in each case",
        ),
        ("lang: py", "kbslurm: {call: a.b}", r"task\.yml:1: kbslurm\.call: 'a\.b' isn't a valid function name"),
        ("lang: py", "kbslurm: {arrays: gpu}", r"task\.yml:1: kbslurm\.arrays: .*host.*device"),
        ("lang: py", "multi_gpu: perhaps", r"task\.yml:1: multi_gpu: must be true or false, not a string"),
        ("lang: py", "kbslurm: {modes: []}", r"task\.yml:1: kbslurm\.modes: names no mode"),
        ("lang: py", "kbslurm: {cold: very}", r"task\.yml:1: kbslurm\.cold: must be true or false"),
        ("lang: py", "kbslurm: {precision: 1}", r"kbslurm\.precision: must be between 0\.1% and 20%"),
        ("lang: py", "kbslurm: {precision: good}", r"kbslurm\.precision: must be a number, not a string"),
        (
            "lang: py",
            "kbslurm: {precision: 1%, launches: 2}",
            r"precision: needs at least 3 launches, and launches is 2",
        ),
        ("lang: py", "kbslurm: {precision: 1%, most_launches: 4}", r"most_launches: 4 isn't between 5 and 50"),
        ("lang: py", "kbslurm: {most_launches: 9}", r"how many launches a precision may take, and there is none"),
        ("lang: py", "kbslurm: {launches: 0}", r"task\.yml:1: kbslurm\.launches: 0 isn't between 1 and 50"),
        (
            "lang: py",
            "kbslurm: {runner_files: [reference.py]}",
            r"kbslurm\.runner_files: reference\.py belongs to the judge",
        ),
        ("lang: py", "kbslurm: {judge_files: [nobody.py]}", r"judge_files\[0\]: nobody\.py isn't among the files"),
        ("lang: py", "kbslurm: {hidden: []}", r"task\.yml:1: kbslurm\.hidden: has 0 cases; 1 to"),
        ("lang: py", "templates: {Python: gone.py}", r"task\.yml:1: templates\.Python: there is no file gone\.py"),
        ("lang: py", "x: !!python/object/apply:os.system [ls]", r"task\.yml:1: x: the tag .* isn't allowed"),
        ("lang: py", "x: &a [*a]", r"expands too much"),
        ("files:", "fils:", r"task\.yml: the key files is missing"),
        ("tests:", "test:", r"task\.yml: the key tests is missing"),
        ('"@SUBMISSION@"', "task.py", r"task\.yml:3: files: no file has the source @SUBMISSION@"),
        ("source: task.py", 'source: "@SUBMISSION@"', r"files\[1\]\.source: @SUBMISSION@ is used twice"),
        ("name: submission.py", "name: submission.cu", r"files\[0\]\.name: the submission to a Python problem"),
        ("name: task.py", "name: reference.py", r"task\.yml:6: files\[2\]\.name: reference\.py is listed twice"),
        (
            "name: task.py",
            "name: ../task.py",
            r"task\.yml:5: files\[1\]\.name: '\.\./task\.py' isn't a valid file name",
        ),
        ("source: task.py", "sauce: task.py", r"task\.yml:5: files\[1\]: the key source is missing"),
        ("source: task.py", "source: gone.py", r"task\.yml:5: files\[1\]\.source: there is no file gone\.py"),
        ("source: task.py", 'source: "a\\nb"', r"task\.yml:5: files\[1\]\.source: there is no file a b$"),
        ("source: task.py", '"\\n": 1', r"task\.yml:5: files\[1\]: the key source is missing"),
        ("lang: py", '"a\\n": 1\n"a\\n": 2', r"task\.yml:2: 'a\\n': appears twice"),
        ("source: task.py", "source: /etc/passwd", r"files\[1\]\.source: '/etc/passwd' must be a path relative"),
        ("source: task.py", "source: .", r"files\[1\]\.source: \. isn't a file"),
        ("name: reference.py", "name: ref.py", r"task\.yml:3: files: doesn't list reference\.py"),
        ("{n: 4, seed: 1}", "4", r"task\.yml:8: tests\[0\]: must be a table, not a number"),
        (
            "{n: 4, seed: 1}",
            "{n: 4, sede: 1}",
            r"task\.yml:8: tests\[0\]: generate_input has no parameter sede \(it has n, seed",
        ),
        ("{n: 4, seed: 1}", "{n: 4, world_size: 2}", r"tests\[0\]\.world_size: is how many GPUs a case has"),
        (
            "{n: 4, seed: 1}",
            "{n: 4}",
            r"task\.yml:8: tests\[0\]: generate_input needs seed, which is missing in this case",
        ),
        ("{n: 4, seed: 1}", "{seed: 1}", r"task\.yml:8: tests\[0\]: generate_input needs n"),
        ("{n: 4, seed: 1}", "{n: , seed: 1}", r"task\.yml:8: tests\[0\]\.n: .* not empty"),
        ("{n: 4, seed: 1}", "{n: [[1]], seed: 1}", r"task\.yml:8: tests\[0\]\.n\[0\]: .* not a list"),
        ("{n: 4, seed: 1}", "{n-1: 4}", r"task\.yml:8: tests\[0\]\.n-1: 'n-1' isn't a valid parameter name"),
        ("{n: 4, seed: 1}", "{n: 99999999999999999999}", r"task\.yml:8: tests\[0\]\.n: .* has more than 64 bits"),
    ],
)
def test_a_fault_names_its_place(folder: Path, before: str, after: str, says: str) -> None:
    change(folder, before, after)
    with pytest.raises(Invalid, match=says):
        load(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            REFERENCE.replace("def generate_input", "def generate"),
            r"reference\.py: the function generate_input is missing",
        ),
        (REFERENCE.replace("def ref_kernel", "def kernel"), r"reference\.py: the function ref_kernel is missing"),
        (REFERENCE.replace("def check_imp", "def imp"), r"reference\.py: the function check_implementation is missing"),
        (REFERENCE.replace("n, seed", "n seed"), r"reference\.py:4: not valid Python: "),
        ("import submission\n" + REFERENCE, r"reference\.py: imports submission: the judge never loads"),
        ("x = '\x00'" + REFERENCE, r"not valid Python|isn't UTF-8"),
    ],
)
def test_a_faulty_reference_is_named(folder: Path, text: str, says: str) -> None:
    (folder / "reference.py").write_text(text)
    with pytest.raises(Invalid, match=says):
        load(folder)


@pytest.mark.parametrize(
    "line",
    [
        "check_implementation = make_match_reference(ref_kernel)",
        "check_implementation: object = lambda data, output: (True, '')",
        "from task import check_implementation",
        "from task import *",
        "if True:\n    def check_implementation(data, output): ...",
        "try:\n    from fast import check_implementation\nexcept ImportError:\n    check_implementation = None",
    ],
)
def test_functions_may_come_to_be_in_any_way(folder: Path, line: str) -> None:
    head = REFERENCE.partition("def check_implementation")[0]
    (folder / "reference.py").write_text(head + line + "\n")
    (folder / "task.py").write_text("input_t = list\ndef check_implementation(data, output): ...\n")
    assert "leaderboard" in load(folder).modes


def test_what_is_too_large_is_refused(folder: Path) -> None:
    (folder / "task.py").write_bytes(b"#" * 1_000_001)
    with pytest.raises(TooLarge, match=r"task\.yml:5: files\[1\]\.source: task\.py is larger than 1,000,000 bytes"):
        load(folder)


def test_binary_files_and_pipes_are_refused(folder: Path) -> None:
    (folder / "task.py").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match=r"task\.py isn't UTF-8 text"):
        load(folder)
    (folder / "task.py").unlink()
    os.mkfifo(folder / "task.py")
    with pytest.raises(Invalid, match=r"task\.py isn't a file"):
        load(folder)


def test_what_isnt_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no problem"):
        load(tmp_path / "gone")
    with pytest.raises(Invalid, match=r"there is no task\.yml in this directory"):
        load(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(Invalid, match=r"neither a task\.yml directory nor a reference"):
        load(tmp_path / "a.txt")
    (tmp_path / "a.yaml").write_text("x")
    with pytest.raises(Invalid, match="this is a problem set"):
        load(tmp_path / "a.yaml")
    (tmp_path / "a.cu").write_text("x")
    with pytest.raises(Invalid, match=r"a\.cu: the function generate_input is missing"):
        load(tmp_path / "a.cu")


# ----------------------------------------------------------------------------------------------------- one file


ONE_FILE = """'''Says what it is.'''
def generate_input(): return [1]
def ref_kernel(data): return data
def check_implementation(output, reference): return output == reference
"""


def test_a_problem_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "Vector_Sum.py"
    file.write_text(ONE_FILE)
    problem = load(file)
    assert (problem.name, problem.style, problem.description) == ("vector_sum", "one-file", "Says what it is.")
    assert (problem.tests, problem.benchmarks, problem.hidden) == (({},), ({},), ())
    assert (dict(problem.files), problem.runner_files) == ({"reference.py": ONE_FILE}, ())
    assert "has no parameter seed" in problem.warnings[0]
    file.write_text(ONE_FILE.replace("ref_kernel", "reference"))
    assert load(file).tests == ({},)


@pytest.mark.parametrize(
    ("parameters", "style"),
    [
        ("output, reference", "one-file"),
        ("out, ref", "one-file"),
        ("submission_output, expected", "one-file"),
        ("data, output", "modern"),
        ("data, submission_output", "modern"),
    ],
)
def test_the_names_of_the_check_say_what_it_compares(tmp_path: Path, parameters: str, style: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(ONE_FILE.replace("check_implementation(output, reference)", f"check_implementation({parameters})"))
    assert load(file).style == style


@pytest.mark.parametrize("parameters", ["a, b", "data, reference", "output", "output, reference, tolerance", "*both"])
def test_an_unclear_check_is_refused(tmp_path: Path, parameters: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(ONE_FILE.replace("check_implementation(output, reference)", f"check_implementation({parameters})"))
    with pytest.raises(Invalid, match=r"a\.py:4: it isn't clear what check_implementation compares"):
        load(file)


def test_cases_of_one_file_are_read_not_run(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(ONE_FILE.replace("generate_input()", "generate_input(n, *, seed)"))
    with pytest.raises(Invalid, match=r"a\.py:2: generate_input needs n"):
        load(file)
    cases = "TESTS = [{'n': 3, 'seed': 1}]\nHIDDEN: list = [{'n': 4, 'seed': 2}]\n"
    file.write_text(file.read_text() + cases)
    problem = load(file)
    assert problem.tests == problem.benchmarks == ({"n": 3, "seed": 1},)
    assert problem.hidden == ({"n": 4, "seed": 2},)
    file.write_text(file.read_text() + "BENCHMARKS = [{'n': 2 ** 10, 'seed': 1}]\n")
    with pytest.raises(Invalid, match=r"a\.py:7: BENCHMARKS: must be a literal list of tables"):
        load(file)
    file.write_text(ONE_FILE.replace("generate_input()", "generate_input(seed)"))
    assert load(file).tests == ({"seed": 1},)


@pytest.mark.parametrize("name", ["generate_input", "ref_kernel", "check_implementation"])
def test_a_missing_function_of_one_file_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(ONE_FILE.replace(f"def {name}", "def other"))
    with pytest.raises(Invalid, match=rf"a\.py: the function {name} is missing"):
        load(file)


# ------------------------------------------------------------------------------------------------------------ sets


SET = """\
name: Spring
deadline: 2026-05-31
zone: Europe/Berlin
problems:
  - {directory: Some Problem, name: First, gpus: [H100]}
  - {directory: ../set/Some Problem, name: second, deadline: 2026-06-01 12:00}
"""


def test_a_set_is_read(folder: Path) -> None:
    file = folder.parent / "spring.yaml"
    file.write_text(SET + "colour: red\n")
    found = load_set(file)
    assert (found.name, found.zone, found.root) == ("Spring", "Europe/Berlin", folder.parent.parent)
    assert [(e.name, e.directory, e.gpus) for e in found.problems] == [
        ("first", folder, ("H100",)),
        ("second", folder, ()),
    ]
    assert [e.deadline.isoformat() if e.deadline else None for e in found.problems] == [
        "2026-05-31T21:59:59+00:00",
        "2026-06-01T10:00:00+00:00",
    ]
    assert found.warnings == (f"{file}:7: colour: unknown key, ignored",)
    file.write_text(SET.replace("deadline: 2026-05-31\n", 'deadline: ""\n'))
    assert load_set(file).problems[0].deadline is None


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("2026-05-31\n", "soon\n", r"spring\.yaml:2: deadline: 'soon' isn't a valid deadline"),
        ("Europe/Berlin", "America", r"spring\.yaml:3: zone: 'America' isn't a known time zone"),
        ("Some Problem, name: First", "Gone", r"spring\.yaml:5: problems\[0\]\.directory: there is no directory Gone"),
        ("Some Problem, name: First", "../../..", r"spring\.yaml:5: problems\[0\]\.directory: .* is outside repo/"),
        ("name: First", "name: a b", r"spring\.yaml:5: problems\[0\]\.name: 'a b' isn't a valid board name"),
        ("name: First", "name: admin", r"spring\.yaml:5: problems\[0\]\.name: 'admin' can't be a board's name"),
        ("name: second", "name: FIRST", r"spring\.yaml:6: problems\[1\]: the board first appears twice"),
        ("problems:", "problem:", r"spring\.yaml: the key problems is missing"),
        ("directory: Some", "dir: Some", r"spring\.yaml:5: problems\[0\]: the key directory is missing"),
    ],
)
def test_a_fault_in_a_set_names_its_place(folder: Path, before: str, after: str, says: str) -> None:
    assert before in SET
    file = folder.parent / "spring.yaml"
    file.write_text(SET.replace(before, after, 1))
    with pytest.raises(Invalid, match=says):
        load_set(file)


def test_one_faulty_problem_of_a_set_hides_no_other(folder: Path) -> None:
    (folder.parent / "faulty").mkdir()
    file = folder.parent / "spring.yaml"
    file.write_text(SET.replace("../set/Some Problem", "faulty"))
    (first, problem), (second, fault) = load_each(load_set(file))
    assert isinstance(problem, Problem)
    assert (first.name, problem.name, second.name) == ("first", "first", "second")
    assert isinstance(fault, Invalid)


def test_the_examples_are_sound(root: Path) -> None:
    found = load_set(root / "examples" / "spring.yaml")
    assert [entry.name for entry in found.problems] == ["transpose", "rowsoftmax"]
    for entry in found.problems:
        problem = load(entry.directory, root=found.root)
        assert problem.warnings == ()
        assert "reference.py" not in problem.runner_files
        assert problem.hidden
    assert load(root / "examples" / "one_file" / "running_sum.py").warnings == ()
    rowsoftmax = load(root / "examples" / "rowsoftmax")
    assert rowsoftmax.runner_files == ("task.py",)
    assert rowsoftmax.baseline == (root / "examples/rowsoftmax/submissions/accepted/by_index.py").read_text()


def test_the_demos_script_holds_together(root: Path) -> None:
    examples = root / "examples"
    script = tomllib.loads((examples / "demo.toml").read_text(encoding="utf-8"))
    board, people, submissions = script["board"], script["people"], script["submissions"]
    problem = load(examples / board["problem"])
    assert (len(board["gpus"]), len(people), len(submissions)) == (2, 4, 8)
    assert parsed_deadline(board["deadline"], board["zone"]).year > 2090
    assert {person["name"] for person in people} == {submission["person"] for submission in submissions}
    assert problem.limits.test_s <= 10, "the time-out decides how long the demo lasts"
    for submission in submissions:
        file = examples / submission["file"]
        assert set(submission["gpus"]) <= set(board["gpus"])
        assert file.parent.name == FOLDERS[submission["expect"]]
        said = directives(checked_source(file.name, file.read_bytes()).text)
        assert said.leaderboard == board["name"]
    assert sorted(submission["expect"] for submission in submissions) == [
        "error", "error", "passed", "passed", "passed", "timeout", "violation", "wrong",
    ]  # fmt: skip


def test_compiled_submissions_are_refused_where_a_case_has_several_gpus(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    shutil.copytree(Path(__file__).parents[1] / "problems/cu_python", folder)
    task = folder / "task.yml"
    task.write_text(task.read_text(encoding="utf-8") + "multi_gpu: true\n", encoding="utf-8")
    with pytest.raises(Invalid, match=r"multi_gpu: a multi-GPU problem accepts submissions in Python"):
        load(folder)


@pytest.mark.parametrize(
    ("place", "collection"),
    [
        ("kernelbench/KernelBench/level1/1_Scale_rows.py", "kernelbench"),
        ("kernelbench/KernelBench/level1", "kernelbench"),
        ("tritonbench/data/TritonBench_T_v1/shifted.py", "tritonbench"),
        ("flashinfer/definitions/toy/toy_pick_d4.json", "flashinfer-bench"),
        ("cross_entropy_py", "reference-kernels"),
        ("cross_entropy_py/task.yml", "reference-kernels"),
    ],
)
def test_what_a_collection_has_is_to_be_imported(tmp_path: Path, place: str, collection: str) -> None:
    known = Path(__file__).parents[1] / "collections"
    if place.startswith("cross_entropy_py"):
        known = tmp_path
        (tmp_path / "cross_entropy_py").mkdir()
        (tmp_path / "cross_entropy_py/task.yml").write_text(TASK.replace("  - {name: task.py, source: task.py}\n", ""))
        (tmp_path / "cross_entropy_py/reference.py").write_text(
            "def generate_inputs(batch, seed): ...\ndef reference_forward(logits, targets): ...\n"
        )
    with pytest.raises(Invalid) as raised:
        load(known / place)
    assert str(raised.value.hint).endswith(f"imported: kbslurm problem import {collection} DIRECTORY.")


def test_what_was_imported_isnt_to_be_imported_again(tmp_path: Path) -> None:
    """It contains the collection's own file."""
    (tmp_path / "task.yml").write_text(TASK.replace("tests:", "trials:"))
    for name in ("task.py", "reference.py"):
        (tmp_path / name).write_text(REFERENCE)
    (tmp_path / "model.py").write_text("class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n")
    with pytest.raises(Invalid) as raised:
        load(tmp_path)
    assert "problem import" not in str(raised.value.hint)
