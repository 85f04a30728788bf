"""Sources that an editor saved as "UTF-8 with BOM": compilers and Python skip the mark at the start of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm.config.shared_folders import eval_dir
from kbslurm.problems.loading import load
from kbslurm.trial.run import run_trial
from kbslurm_eval.shared import bundle
from tests.flow import harness_ground as ground
from tests.services import GXX, needs

MARK = "\ufeff"
SORTS = f"{MARK}def custom_kernel(data):\n    return sorted(data)\n"
SEVERAL = bundle.joined({
    "submission.py": f"{MARK}from own.parts import in_order\nimport plain\ncustom_kernel = in_order\n",
    "own/parts.py": f"{MARK}def in_order(data):\n    return sorted(data)\n",
    "plain.py": f"{MARK}# nothing\n",
})  # fmt: skip
IN_PYTHON = f"""{MARK}TESTS = [{{"n": 5, "seed": 1}}]
{ground.SORTING}"""
IN_CPP = (
    MARK
    + """// TESTS = [{"n": 5}]
using input_t = int;
using output_t = int;
input_t generate_input(int n) { return n; }
output_t ref_kernel(input_t data) { return 2 * data; }
bool check_implementation(input_t data, output_t output) { return output == 2 * data; }
"""
)
DOUBLES = {
    "submission.cu": f'{MARK}#include "reference.cu"\n#include "own/twice.h"\noutput_t custom_kernel(input_t data) {{ '
    "return twice(data); }\n",
    "own/twice.h": f"{MARK}inline int twice(int x) {{ return x + x; }}\n",
}
ALONE = f'{MARK}#include "reference.cu"\noutput_t custom_kernel(input_t data) {{ return 2 * data; }}\n'


@pytest.mark.parametrize("level", ["2", "1"])
@pytest.mark.parametrize("source", [SORTS, SEVERAL], ids=["one", "several"])
def test_python_files_may_begin_with_a_byte_order_mark(tmp_path: Path, source: str, level: str) -> None:
    told = ground.manifest(source, mode="test", hidden=[])
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "passed", report.reason


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("reference.py", IN_PYTHON, SORTS),
        pytest.param("reference.cu", IN_CPP, bundle.joined(DOUBLES), marks=needs(GXX)),
        pytest.param("reference.cu", IN_CPP, ALONE, marks=needs(GXX)),
    ],
    ids=["Python", "C++", "C++ in one file"],
)
def test_a_problem_and_its_submissions_may_have_byte_order_marks(
    tmp_path: Path, name: str, text: str, source: str
) -> None:
    (tmp_path / name).write_text(text)
    problem = load(tmp_path / name)
    assert "n" in problem.tests[0]
    entry = f"submission{Path(name).suffix}"
    report = run_trial(problem, entry, source, "test", work=tmp_path / "work", eval_dir=eval_dir()).report
    assert report.verdict == "passed", report.reason
