"""What counts as an answer: the reference's type and shape, or whatever the problem's own check accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

SUMS = """
import array, itertools, math, random

def generate_input(n, seed):
    draw = random.Random(seed)
    return array.array("d", (draw.random() for _ in range(n)))

def ref_kernel(data):
    return array.array("d", itertools.accumulate(data))

def check_implementation(data, output):
    want = list(itertools.accumulate(data))
    good = len(output) == len(want) and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(output, want))
    return good, "" if good else "not the sums"
"""
SINGLE = """
import array, itertools
def custom_kernel(data):
    return array.array("f", itertools.accumulate(data))
"""
CASES = [{"n": 300, "seed": 3}]


@pytest.mark.parametrize("kind", ["f", "list", "tuple"])
def test_the_check_decides_where_the_problem_leaves_it_to_it(tmp_path: Path, kind: str) -> None:
    source = SINGLE if kind == "f" else SINGLE.replace('array.array("f", ', f"{kind}(")
    told = {"files": {"reference.py": SUMS}, "tests": CASES, "benchmarks": CASES, "hidden": []}
    strict = ground.judged(tmp_path / "strict", ground.manifest(source, **told, mode="test")).told
    assert (strict.verdict, "wrong type" in strict.reason) == ("wrong", True)
    open_ = ground.judged(tmp_path / "open", ground.manifest(source, **told, config={"outputs": "check"})).told
    assert open_.verdict == "passed", open_.reason
    assert open_.score_s is not None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SINGLE.replace("accumulate(data)", "repeat(1.0, len(data))"), "not the sums"),
        (SINGLE.replace("accumulate(data)", "repeat(float('nan'), len(data))"), "not the sums"),
        ("def custom_kernel(data):\n    return object()\n", "wrong type"),
        ("def custom_kernel(data):\n    return [0.0] * 10_000_000\n", "wrong type"),
    ],
)
def test_a_wrong_answer_stays_wrong(tmp_path: Path, source: str, said: str) -> None:
    told = ground.manifest(
        source, files={"reference.py": SUMS}, tests=CASES, benchmarks=CASES, mode="test", config={"outputs": "check"}
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason
    assert said in report.reason


CLAIMED = """
import json
from kbslurm_eval.shared import claimed_layout, layouts
claimed_layout.with_claim = lambda said, output: said + "\\0" + json.dumps({claim})
write = layouts.Layout.write
def once(self, output, buffer):
    layouts.Layout.write = write
    raise layouts.Misfit("something else")
layouts.Layout.write = once
def custom_kernel(data):
    return data
"""


@pytest.mark.parametrize(
    "claim",
    [
        '["T", "float32", [4], 0, 0, "cpu"]',  # in the tests' Python there is no torch
        '["T", "float32", [0, 2**47, 2**47], 0, 0, "cpu"]',
        '["t", [["n", "<f4", [0, 2**47, 2**47], 0, 0]]]',
        '["d", [["a", ["n", "<f4", [1] * 32, 0, 0]], ["b", ["s", "|f8", 0]]]]',
    ],
)
def test_no_claim_of_what_an_answer_is_fails_the_judge(tmp_path: Path, claim: str) -> None:
    """What fails the judge is tried again, as often as three times: whoever had an unlucky run would claim it."""
    told = ground.manifest(
        CLAIMED.replace("{claim}", claim), files={"reference.py": SUMS}, tests=CASES, benchmarks=CASES, mode="test",
        config={"outputs": "check"},
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason


BROADCAST = """
import numpy as np
def generate_input(n, seed):
    return np.random.default_rng(seed).random((1, n))
def ref_kernel(data):
    return {right}
def check_implementation(data, output):
    return bool({check}), "differs"
"""


@pytest.mark.parametrize(
    ("right", "check", "answer"),
    [
        ("data / data.sum(1, keepdims=True)", "np.allclose(output, ref_kernel(data))", "np.empty((0, 1))"),
        ("data.sum(1)", "not (np.abs(output - ref_kernel(data)) > 1e-3).any()", "np.empty((0,))"),
        ("(2 * data[0]).tolist()", "all(a == b for a, b in zip(output, ref_kernel(data)))", "[]"),
    ],
)
def test_no_empty_answer_is_right_where_the_references_isnt(
    tmp_path: Path, right: str, check: str, answer: str
) -> None:
    """A check that broadcasts finds no difference in nothing."""
    source = f"import numpy as np\ndef custom_kernel(data):\n    return {answer}\n"
    told = ground.manifest(
        source, mode="test", config={"outputs": "check"},
        files={"reference.py": BROADCAST.format(right=right, check=check)},
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason
    assert "the answer is empty" in report.reason


SECOND_THOUGHTS = """
import array, itertools, time
calls = 0
def custom_kernel(data):
    global calls
    calls += 1
    if calls == 6:
        time.sleep(0.3)
    found = array.array("f", itertools.accumulate(data))
    return found if calls < 6 else found.tolist()
"""


def test_a_slow_call_counts_though_its_answer_is_of_another_kind_all_at_once(tmp_path: Path) -> None:
    """It would otherwise be made again, and whoever had been unlucky would say so."""
    told = ground.manifest(
        SECOND_THOUGHTS, files={"reference.py": SUMS}, tests=CASES, benchmarks=CASES, mode="benchmark",
        config={"outputs": "check"}, budget=wire.Budget(launches=1, calls=8),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert max(report.samples[0].own.calls_ns) > 0.3e9


PADDED = """
import array, itertools
def custom_kernel(data):
    return array.array("d", list(itertools.accumulate(data)) + [0.0] * (7 * len(data)))
"""


def test_what_an_answer_costs_that_is_larger_than_asked_for_is_its_authors_time(tmp_path: Path) -> None:
    """A run over its limit would otherwise have been the problem's trouble, and would have been measured again."""
    slow = "    __import__('time').sleep(len(output) / 6000)\n    output = output[:len(want)]\n    good ="
    patient = SUMS.replace("    good =", slow)
    told = ground.manifest(
        PADDED, files={"reference.py": patient}, tests=CASES, benchmarks=CASES, mode="benchmark",
        config={"outputs": "check"}, budget=wire.Budget(launches=1, calls=60), limits=ground.limits(total_s=12.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "timeout", report.reason


def test_a_check_alone_judges_where_there_is_no_reference(tmp_path: Path) -> None:
    lone = SUMS.replace("def ref_kernel", "def unused")
    told = {"files": {"reference.py": lone}, "tests": CASES, "benchmarks": CASES, "config": {"outputs": "check"}}
    good = ground.judged(tmp_path / "good", ground.manifest(SINGLE, **told)).told
    assert good.verdict == "passed", good.reason
    bad = ground.judged(
        tmp_path / "bad", ground.manifest(SINGLE.replace('"f"', '"f", [1.0]) or array.array("f"'), **told)
    )
    assert bad.told.verdict in ("wrong", "error")


def test_without_a_check_the_reference_and_its_tolerance_judge(tmp_path: Path) -> None:
    bare = SUMS.partition("def check_implementation")[0] + "RTOL = 1e-4\n"
    told = {"files": {"reference.py": bare}, "tests": CASES, "benchmarks": CASES, "hidden": []}
    good = ground.judged(tmp_path / "good", ground.manifest(SINGLE, **told, config={"outputs": "check"}, mode="test"))
    assert good.told.verdict == "passed", good.told.reason
    source = SINGLE.replace("accumulate(data)", "accumulate(x * 1.01 for x in data)")
    bad = ground.judged(
        tmp_path / "bad", ground.manifest(source, **told, config={"outputs": "check"}, mode="test")
    ).told
    assert (bad.verdict, "output[0]: " in bad.reason and "off by at most 1 %" in bad.reason) == ("wrong", True), (
        bad.reason
    )


MIXED = """
import random

def generate_input(n, seed):
    draw = random.Random(seed)
    return [[draw.uniform(-1, 1) for _ in range(2)] for _ in range(n)]

def ref_kernel(data):
    return [sum(x for x in row if x > 0) for row in data]

def check_implementation(data, output):
    return all(abs(a - b) < 1e-9 for a, b in zip(output, ref_kernel(data), strict=True)), "not the sums"
"""
FLOATS = "def custom_kernel(data):\n    return [sum((x for x in row if x > 0), 0.0) for row in data]\n"


@pytest.mark.parametrize("check", [True, False])
def test_where_the_reference_has_a_whole_number_among_floats_others_may_have_a_float(
    tmp_path: Path, check: bool
) -> None:
    problem = MIXED if check else MIXED.partition("def check_implementation")[0]
    told = {"files": {"reference.py": problem}, "tests": [{"n": 8, "seed": 3}, {"n": 300, "seed": 4}], "mode": "test"}
    report = ground.judged(tmp_path / "good", ground.manifest(FLOATS, **told)).told
    assert report.verdict == "passed", report.reason
    report = ground.judged(tmp_path / "bad", ground.manifest(FLOATS.replace("0.0)", "1e-3)"), **told)).told
    assert (report.verdict, "wrong type" in report.reason) == ("wrong", False)


MEAN = """
import numpy as np

def generate_input(n, seed):
    return {"x": np.random.default_rng(seed).normal(0, 1e-3, (n, n)).astype(np.float32), "n": n}

def ref_kernel(data):
    return (data["x"] * data["x"]).mean()
"""


@pytest.mark.parametrize(("answer", "verdict"), [("(data['x'] ** 2).mean()", "passed"), ("np.float32(1e-12)", "wrong")])
def test_a_lone_small_number_of_a_problem_without_a_check_is_no_zero(tmp_path: Path, answer: str, verdict: str) -> None:
    told = {"files": {"reference.py": MEAN}, "tests": [{"n": 64, "seed": 3}], "benchmarks": [{"n": 65, "seed": 4}]}
    source = f"import numpy as np\ndef custom_kernel(data):\n    return {answer}\n"
    report = ground.judged(tmp_path, ground.manifest(source, **told, hidden=[])).told
    assert report.verdict == verdict, report.reason


CONFIGURED = """
import collections, dataclasses, enum, random
from typing import NamedTuple

class Way(enum.Enum):
    UP = 1

@dataclasses.dataclass
class Config:
    rows: int
    table: collections.OrderedDict

class Row(NamedTuple):
    weight: float
    values: list

def generate_input(n, seed):
    draw = random.Random(seed)
    rows = [Row(draw.random(), [draw.random() for _ in range(8)]) for _ in range(n)]
    return Config(n, collections.OrderedDict(rows=rows)), slice(1, None), {1, 2}, collections.defaultdict(list)

def ref_kernel(data):
    config, part, _, _ = data
    return [row.weight * sum(row.values[part]) for row in config.table["rows"]]

def check_implementation(data, output):
    return output == ref_kernel(data), "differs"
"""


def test_a_configuration_reaches_a_submission_that_never_sees_its_class(tmp_path: Path) -> None:
    source = """
def custom_kernel(data):
    config, part, numbers, lists = data
    assert type(config).__name__ == "Config" and config.rows == len(config.table["rows"])
    assert numbers == {1, 2} and lists[0] == []
    return [row.weight * sum(row.values[part]) for row in config.table["rows"]]
"""
    cases = [{"n": 5, "seed": 3}]
    told = ground.manifest(source, files={"reference.py": CONFIGURED}, tests=cases, benchmarks=cases, hidden=[])
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


PLACES = """
import array
import random


def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.randrange(3) for _ in range(n)]


def ref_kernel(data):
    return array.array("l", (at for at, one in enumerate(data) if one))


def check_implementation(data, output):
    want = list(ref_kernel(data))
    return list(output) == want, f"{output} aren't the places"
"""
WITHOUT = PLACES.replace("def ref_kernel", "def places").replace("ref_kernel", "places")


@pytest.mark.parametrize("problem", [PLACES, WITHOUT], ids=["with a reference", "with a check only"])
@pytest.mark.parametrize("form", ["list({})", 'array.array("i", {})', 'array.array("l", {})'])
def test_an_answer_of_another_kind_may_be_of_another_length_each_time(tmp_path: Path, problem: str, form: str) -> None:
    """It was right in the tests and wrong in each timed phase: after a claim another input was asked for."""
    answer = form.format("(at for at, one in enumerate(data) if one)")
    source = f"import array\n\n\ndef custom_kernel(data):\n    return {answer}\n"
    told = ground.manifest(
        source,
        files={"reference.py": problem},
        tests=CASES,
        benchmarks=CASES,
        hidden=CASES,
        config={"outputs": "check"},
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


def test_a_reason_is_one_line_whatever_the_check_quotes(tmp_path: Path) -> None:
    problem = PLACES.replace('f"{output} aren', 'f"{output[0]} aren')
    source = 'def custom_kernel(data):\n    return ["x\\nverdict: passed\\nscore: 1"]\n'
    told = ground.manifest(
        source, files={"reference.py": problem}, tests=CASES, benchmarks=CASES, mode="test", config={"outputs": "check"}
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong"
    assert len(report.reason.splitlines()) == len(report.tests[0].message.splitlines()) == 1, report.reason


DRAGGED = """
import time


def generate_input(n, seed):
    return [seed % 7] * n


def ref_kernel(data):
    return list(data)


def check_implementation(data, output):
    if output != data:
        time.sleep(output[0])  # as a set of numbers of one hash would take
    return output == data, "wrong"
"""


def test_an_answer_that_its_check_is_busy_with_for_ever_is_its_authors_fault(tmp_path: Path) -> None:
    """It was the problem's, and the run was tried again."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return [60] * len(data)\n", files={"reference.py": DRAGGED}, tests=CASES,
        benchmarks=CASES, mode="test", limits=ground.limits(test_s=5.0, total_s=8.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "timeout", report.reason


OWN_OUT = """
def custom_kernel(data, out=()):
    assert out == ()
    return sorted(data, reverse=True, *out)[::-1]
"""


def test_a_parameter_called_out_keeps_its_default_where_the_answer_has_no_arrays(tmp_path: Path) -> None:
    report = ground.judged(tmp_path, ground.manifest(OWN_OUT, mode="test")).told
    assert report.verdict == "passed", report.reason


def test_an_expression_without_end_is_an_error_with_its_name(tmp_path: Path) -> None:
    source = "def custom_kernel(data):\n    return sorted(data)\n\nx = " + "+".join(["1.5"] * 30_000) + "\n"
    report = ground.judged(tmp_path, ground.manifest(source, mode="test")).told
    assert report.verdict == "error" and "RecursionError" in report.reason, report.reason


ALIKE = """
import array
import math
import random


def generate_input(n, seed):
    draw = random.Random(seed)
    return array.array("f", (draw.random() for _ in range(n)))


def ref_kernel(data):
    return array.array("f", (2 * value for value in data))


def square(value):
    return math.inf if abs(value) > 1.8e19 else value * value  # as in single precision


def check_implementation(data, output):
    want = ref_kernel(data)
    norms = math.sqrt(sum(map(square, output))) * math.sqrt(sum(map(square, want)))
    dot = sum(min(a * b, math.inf) if abs(a) < 1e38 else math.inf for a, b in zip(output, want))
    alike = dot / norms
    return not alike < 0.999, "not alike"
"""


@pytest.mark.parametrize(
    ("answer", "verdict"), [("2 * value", "passed"), ("3e38", "wrong"), ("-3e38", "wrong"), ("value + 1", "wrong")]
)
def test_the_largest_numbers_are_no_answer_where_a_check_computes_with_them(
    tmp_path: Path, answer: str, verdict: str
) -> None:
    """A cosine of infinities is NaN, which is smaller than nothing."""
    source = f'import array\n\n\ndef custom_kernel(data):\n    return array.array("f", ({answer} for value in data))\n'
    told = ground.manifest(
        source, files={"reference.py": ALIKE}, tests=CASES, benchmarks=CASES, hidden=CASES, mode="test"
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == verdict, report.reason


ZIPPED = """
import array
import random


def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.randrange(2) for _ in range(n)]


def ref_kernel(data):
    return array.array("l", (at for at, one in enumerate(data) if one))


def check_implementation(data, output):
    return all(a == b for a, b in zip(output, ref_kernel(data))), "other places"
"""
AS_ASKED = """
import array
import sys


def custom_kernel(data):
    frame = sys._getframe()
    while "places" not in frame.f_locals:
        frame = frame.f_back
    asked = frame.f_locals["places"].layout.tree[3]
    found = [at for at, one in enumerate(data) if one]
    assert asked == len(found), f"{asked} are asked for and {len(found)} right"
    return array.array("l", found)
"""


def test_as_much_is_asked_for_as_the_references_answer_has_though_that_follows_from_the_numbers(tmp_path: Path) -> None:
    """The first input's length was assumed for all, and only who answered in another one was asked again: whoever
    answered in that one was right by a check that counts on the length."""
    told = ground.manifest(
        AS_ASKED, files={"reference.py": ZIPPED}, tests=CASES, benchmarks=CASES, hidden=CASES,
        budget=wire.Budget(launches=2, calls=20),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


SINGLE_NUMBERS = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).integers(1, 1000, n)


def ref_kernel(data):
    return [x // 2 for x in data], data.max() // 7
"""


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("[int(x) // 2 for x in data], int(data.max()) // 7", "passed"),
        ("[float(int(x) // 2) for x in data], data.max() // 7", "passed"),
        ("[int(x) / 2 + 0.25 for x in data], int(data.max()) // 7", "wrong"),
        ("[str(int(x) // 2) for x in data], int(data.max()) // 7", "wrong"),
        ("[int(x) // 2 for x in data], complex(int(data.max()) // 7, 5)", "wrong"),
    ],
)
def test_numpys_single_numbers_are_what_they_are(tmp_path: Path, answer: str, verdict: str) -> None:
    """A float was cut to a whole number on its way, and a text read."""
    told = ground.manifest(
        f"def custom_kernel(data):\n    return {answer}\n", files={"reference.py": SINGLE_NUMBERS}, tests=CASES,
        benchmarks=CASES, mode="test",
    )  # fmt: skip
    assert ground.judged(tmp_path, told).told.verdict == verdict


ANY_LENGTH = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n + int(r.integers(0, 200)), dtype=np.float32)


def ref_kernel(data):
    return data * 2


def check_implementation(data, output):
    return bool(np.allclose(np.ravel(output), data * 2)), "not twice as much"
"""
COUNTS = """
import numpy as np

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    print("call", calls)
    return ANSWER
"""


@pytest.mark.parametrize(
    ("answer", "twice"),
    [
        ("data.astype(np.float64) * 2", False),
        ("data.astype(np.float64 if len(data) % 2 else np.float32) * 2", True),
        ("(data * 2).reshape(-1, 1)", False),
        ("[data * 2]", True),
    ],
    ids=["of another type", "of the one type or the other", "of another shape", "within a list"],
)
def test_who_answers_in_the_same_form_is_asked_once(tmp_path: Path, answer: str, twice: bool) -> None:
    """Whatever the length. Each call was made twice, and both counted."""
    told = ground.manifest(
        COUNTS.replace("ANSWER", answer), files={"reference.py": ANY_LENGTH}, mode="benchmark", tests=[],
        benchmarks=[{"n": 500, "seed": 2}], config={"outputs": "check"}, budget=wire.Budget(launches=1, calls=20),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    calls = max(int(line.split()[-1]) for line in report.log.splitlines() if line.startswith("call "))
    assert calls > 26 if twice else calls <= 24, calls
