"""A problem's check is put to the test by spoilt answers: a blind one is found out, the examples' are sound."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kbslurm.config.shared_folders import eval_dir
from kbslurm.problems import loading
from kbslurm.trial import mutations
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, needs

ROOT = Path(__file__).resolve().parents[2]
BLIND = """
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [[r.random() for _ in range(n)] for _ in range(n)]


def ref_kernel(data):
    return [[2 * x for x in row] for row in data]


def check_implementation(data, output):
    want = ref_kernel(data)
    return CHECK, "off"
"""
CHECKS = {
    "len(output) == len(want)": {
        "zeros": "error", "constant": "error", "permuted rows": "warning", "half the tiles": "warning",
        "last row missing": "warning", "off by one": "warning", "lower precision": "warning",
    },
    "abs(sum(map(sum, output)) - sum(map(sum, want))) < 1e-6": {"constant": "error", "permuted rows": "warning"},
    "all(abs(a - b) < 0.05 for x, y in zip(want, output) for a, b in zip(x, y))": {"lower precision": "warning"},
    "want[:-1] == output[:-1]": {"last row missing": "warning"},
    "want == output": {},
}  # fmt: skip


@pytest.mark.parametrize("check", list(CHECKS))
def test_a_blind_check_is_found_out(tmp_path: Path, check: str) -> None:
    file = tmp_path / "blind.py"
    file.write_text(BLIND.replace("CHECK", check) + '\n\nTESTS = [{"n": 9, "seed": 1}, {"n": 16, "seed": 2}]\n')
    seen = mutations.try_mutations(loading.load(file), work=tmp_path / "work", eval_dir=eval_dir())
    assert seen.trouble == ""
    assert {f["mutation"]: f["severity"] for f in seen.findings if f["severity"] != "none"} == CHECKS[check]
    assert {f["cases"] for f in seen.findings} == {2}
    assert seen.sound == ("error" not in CHECKS[check].values())


def test_a_check_that_stops_at_the_shorter_one_is_found_out(tmp_path: Path) -> None:
    """Where the layout is for the check to judge, its author learns that half an answer will do."""
    check = "all(abs(a - b) < 1e-9 for x, y in zip(want, output) for a, b in zip(x, y))"
    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "task.yml").write_text(
        'files:\n  - {name: submission.py, source: "@SUBMISSION@"}\n  - {name: reference.py, source: reference.py}\n'
        "lang: py\ntests:\n  - {n: 9, seed: 1}\nbenchmarks:\n  - {n: 9, seed: 1}\nkbslurm: {outputs: check}\n"
    )

    def found(told: str) -> set[str]:
        (folder / "reference.py").write_text(BLIND.replace("CHECK", told))
        seen = mutations.try_mutations(loading.load(folder), work=tmp_path / "work", eval_dir=eval_dir())
        assert seen.trouble == ""
        return {f["mutation"] for f in seen.findings if f["severity"] != "none"}

    assert found(check) == {"first half alone"}
    assert found(f"len(want) == len(output) and len(want[0]) == len(output[0]) and {check}") == set()


@pytest.mark.parametrize(
    "name",
    ["examples/transpose", "examples/rowsoftmax", "examples/one_file/running_sum.py", "tests/problems/typed",
     "tests/problems/two_entries", pytest.param("tests/problems/cu_header", marks=needs(GXX))],
)  # fmt: skip
def test_our_own_checks_are_sound(tmp_path: Path, name: str) -> None:
    problem = loading.load(ROOT / name, root=ROOT)
    seen = mutations.try_mutations(problem, work=tmp_path, eval_dir=eval_dir())
    assert seen.trouble == ""
    assert [f["message"] for f in seen.findings if f["severity"] != "none"] == []
    assert any(f["cases"] for f in seen.findings)
    assert list(tmp_path.iterdir()) == []


def test_a_problem_that_fails_itself_is_trouble(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BLIND.replace("CHECK", "False") + '\n\nTESTS = [{"n": 3, "seed": 1}]\n')
    seen = mutations.try_mutations(loading.load(file), work=tmp_path / "work", eval_dir=eval_dir())
    assert "fails its check" in seen.trouble
    assert not seen.sound


def test_what_comes_back_is_what_is_spoilt(tmp_path: Path) -> None:
    """A check that asks for the parts of a named tuple by their names sees the spoilt ones, too."""
    file = tmp_path / "named.py"
    text = BLIND.replace("CHECK", "len(output.rows) == len(want.rows)").replace(
        "import random", "import collections, random"
    )
    text = text.replace(
        "return [[2 * x for x in row] for row in data]", "return Rows([[2 * x for x in row] for row in data])"
    )
    text += '\n\nRows = collections.namedtuple("Rows", "rows")\nTESTS = [{"n": 9, "seed": 1}, {"n": 16, "seed": 2}]\n'
    file.write_text(text)
    seen = mutations.try_mutations(loading.load(file), work=tmp_path / "work", eval_dir=eval_dir())
    assert seen.trouble == ""
    assert {f["mutation"]: f["severity"] for f in seen.findings if f["severity"] != "none"} == CHECKS[
        "len(output) == len(want)"
    ]


def test_an_answer_of_nothing_is_remarked_where_there_is_a_check_and_trouble_elsewhere(tmp_path: Path) -> None:
    text = BLIND.replace("CHECK", "True").replace("return [[2 * x for x in row] for row in data]", "data.reverse()")
    file = tmp_path / "forgotten.py"
    file.write_text(text + '\n\nTESTS = [{"n": 9, "seed": 1}, {"n": 16, "seed": 2}]\n')
    seen = mutations.try_mutations(loading.load(file), work=tmp_path / "work", eval_dir=eval_dir())
    assert seen.trouble == "" and seen.sound
    assert [f["mutation"] for f in seen.findings if f["severity"] == "warning"] == ["nothing"]
    without = ground.manifest("", files={"reference.py": text.partition("def check_implementation")[0]})
    (tmp_path / "manifest.json").write_text(wire.dumps(without))
    argv = [sys.executable, "-I", str(eval_dir()), "--mutate", str(tmp_path / "manifest.json")]
    told = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert "is a `return` missing" in told["trouble"] and told["findings"] == []
