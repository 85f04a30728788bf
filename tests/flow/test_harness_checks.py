"""What a check may do to the judge, and what an answer may do to a check."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

PANIC = """
import random

class PanicException(BaseException):
    '''as every panic of a library in Rust is'''

def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(n)]

def ref_kernel(data):
    return sorted(data)

def check_implementation(data, output):
    if output != sorted(data):
        raise PanicException("called `Option::unwrap()` on a `None` value")
    return True, ""
"""
CASES = [{"n": 30, "seed": 3}, {"n": 20, "seed": 4}]
BACKWARDS = "def custom_kernel(data):\n    return sorted(data)[::-1]\n"
RIGHT = "custom_kernel = sorted\n"


def judged(folder: Path, source: str, problem: str, **changed: object) -> wire.Report:
    told = {"mode": "test", "hidden": [], "tests": CASES, "benchmarks": CASES[:1], **changed}
    return ground.judged(folder, ground.manifest(source, files={"reference.py": problem}, **told)).told


PRODUCT = """
import os
import time
import numpy as np

def generate_input(n, seed):
    return np.random.default_rng(seed).random((n, n))

def ref_kernel(data):
    return data @ data

def turned_s():
    mine, found = str(os.getpid()), 0
    for thread in os.listdir("/proc/self/task"):
        if thread != mine:
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                found += int(file.read().split()[0])
    return found / 1e9

def check_implementation(data, output):
    good = np.allclose(data @ data, output)
    before = turned_s()
    time.sleep(0.02)
    return good and turned_s() - before < 0.005, f"they turned for {turned_s() - before} s"
"""


def test_threads_of_the_problems_libraries_dont_turn_beside_a_call(tmp_path: Path) -> None:
    """Numpy's do after each product. With a check that makes one everybody was billed 27 to 150 % more on two cores."""
    source = "def custom_kernel(data):\n    return data @ data\n"
    report = judged(tmp_path, source, PRODUCT, tests=[{"n": 512, "seed": seed} for seed in range(5)])
    assert report.verdict == "passed", report.reason


def test_a_check_that_panics_says_that_the_answer_is_wrong(tmp_path: Path) -> None:
    report = judged(tmp_path, BACKWARDS, PANIC)
    assert (report.verdict, "PanicException" in report.reason) == ("wrong", True), report.reason
    assert judged(tmp_path / "right", RIGHT, PANIC).verdict == "passed"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("def generate_input(n, seed):", "generate_input failed"),
        ("def ref_kernel(data):", "the reference failed"),
        ("def check_implementation(data, output):", "failed on the reference's own answer"),
    ],
)
def test_a_problem_that_panics_is_its_authors_trouble(tmp_path: Path, at: str, said: str) -> None:
    report = judged(tmp_path, RIGHT, PANIC.replace(at, f"{at}\n    raise PanicException('once')"))
    assert (report.verdict, said in report.reason) == ("infrastructure", True), report.reason


def test_there_is_a_report_whatever_the_judge_runs_into(tmp_path: Path) -> None:
    """Told by its name alone: what it says may be of a hidden case."""
    odd = "class Odd(dict):\n    def items(self):\n        raise PanicException('the hidden case')\n"
    report = judged(tmp_path, RIGHT, PANIC.replace("return sorted(data)\n", "return Odd()\n") + odd)
    assert (report.verdict, report.reason) == ("infrastructure", "the harness failed: PanicException")


STOPS = """
import os, pathlib, time

def generate_input(n, seed):
    return [n]

def ref_kernel(data):
    return [2 * data[0]]

def check_implementation(data, output):
    if output != ref_kernel(data):
        pathlib.Path(PATH).touch()
        time.sleep(60)
    return output == ref_kernel(data), ""
"""


def test_a_judge_that_is_told_to_end_blames_no_answer(tmp_path: Path) -> None:
    asked, key = tmp_path / "asked", tmp_path / "key"
    told = ground.manifest(
        "def custom_kernel(data):\n    return [0]\n",
        files={"reference.py": STOPS.replace("PATH", repr(str(asked)))},
        tests=CASES, hidden=[], mode="test",
    )  # fmt: skip
    (tmp_path / "manifest.json").write_text(wire.dumps(told))
    key.write_bytes(ground.KEY)
    argv = [sys.executable, "-I", str(ground.EVAL), str(tmp_path / "manifest.json"), "--key", str(key)]
    with subprocess.Popen([*argv, "--out", str(tmp_path / "out")], start_new_session=True) as judge:
        until = time.monotonic() + 60
        while not asked.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(judge.pid, signal.SIGTERM)
        assert judge.wait(60) == 143
    assert not (tmp_path / "out" / "report.json").exists()


LINES = """
import random
def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(n)]
def ref_kernel(data):
    return [2 * x + 1 for x in data]
def check_implementation(data, output):
    want = ref_kernel(data)
    for n, (got, exp) in enumerate(zip(output, want)):
        if abs(float(got) - exp) > 1e-6:
            return False, f"wrong at {n}"
    return True, ""
"""
NUMPY = """
import numpy as np
def generate_input(n, seed):
    return np.random.default_rng(seed).normal(size=n)
def ref_kernel(data):
    return 2 * data + 1
def check_implementation(data, output):
    output, want = np.asarray(output, dtype=np.float64), ref_kernel(data)
    return bool(not np.abs(output - want).max() > 1e-6), "off"
"""
OPEN = {"config": {"outputs": "check"}}


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        (LINES, "['nan'] * len(data)"),
        (LINES, "[b'nan'] * len(data)"),
        (LINES, "{'nan' + n * ' ': 0.0 for n in range(len(data))}"),
        (NUMPY, "[None] * (len(data) - 1) + [float(2 * data[-1] + 1)]"),
        (NUMPY, "['nan'] * len(data)"),
        (NUMPY, "'nan'"),
    ],
)
def test_no_text_and_no_nothing_is_a_number(tmp_path: Path, problem: str, answer: str) -> None:
    """A check that makes numbers of them gets NaN, which differs from nothing by more than any tolerance."""
    report = judged(tmp_path, f"def custom_kernel(data):\n    return {answer}\n", problem, **OPEN)
    assert report.verdict == "wrong", report.reason
    assert "number" in report.reason, report.reason


def test_no_part_of_an_answer_is_empty_where_the_references_isnt(tmp_path: Path) -> None:
    problem = """
import numpy as np
def generate_input(n, seed):
    return np.random.default_rng(seed).normal(size=(1, n))
def ref_kernel(data):
    return data.sum(axis=1), 2 * data
def check_implementation(data, output):
    return not any((np.abs(a - b) > 1e-6).any() for a, b in zip(output, ref_kernel(data), strict=True)), "off"
"""
    source = "import numpy as np\ndef custom_kernel(data):\n    return data.sum(axis=1), np.empty((0, 1))\n"
    report = judged(tmp_path, source, problem, **OPEN, mode="benchmark")
    assert (report.verdict, "number" in report.reason) == ("wrong", True), report.reason


@pytest.mark.parametrize(
    "answer",
    [
        "(2 * data + 1).tolist()",
        "tuple((2 * data + 1).tolist())",
        "list(2 * data + 1)",
        "[[float(x)] for x in 2 * data + 1]",
        "2 * data + 1",
    ],
)
def test_numbers_come_as_they_like(tmp_path: Path, answer: str) -> None:
    problem = NUMPY.replace("dtype=np.float64)", "dtype=np.float64).reshape(-1)")
    source = f"import numpy as np\ndef custom_kernel(data):\n    return {answer}\n"
    report = judged(tmp_path, source, problem, **OPEN, mode="benchmark")
    assert report.verdict == "passed", report.reason


def test_an_answer_with_texts_of_its_own_is_right_in_other_containers(tmp_path: Path) -> None:
    """Words and how often they come; in timed calls, too, where the reference's answer isn't at hand."""
    problem = """
import collections, random
def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.choice(("a", "b", "c")) for _ in range(n)]
def ref_kernel(data):
    return sorted(collections.Counter(data).items())
def check_implementation(data, output):
    return sorted(map(tuple, output)) == ref_kernel(data), "other counts"
"""
    source = (
        "import collections\ndef custom_kernel(data):\n"
        "    return [list(pair) for pair in collections.Counter(data).most_common()]\n"
    )
    report = judged(tmp_path, source, problem, **OPEN, mode="leaderboard")
    assert report.verdict == "passed", report.reason


TOP = """
from collections import namedtuple
import numpy as np
Top = namedtuple("Top", "values indices")
def generate_input(n, seed):
    return np.random.default_rng(seed).normal(size=n)
def ref_kernel(data):
    order = np.argsort(-data)[:3]
    return Top(data[order], order)
def check_implementation(data, output):
    want = ref_kernel(data)
    same = np.array_equal(output.values, want.values) and np.array_equal(output.indices, want.indices)
    return bool(same), "" if same else "another top"
"""


@pytest.mark.parametrize("answer", ["data[order], order", "Top(data[order], order)"])
def test_a_check_finds_the_parts_of_a_named_tuple_by_their_names(tmp_path: Path, answer: str) -> None:
    source = (
        "from collections import namedtuple\nimport numpy as np\nTop = namedtuple('Top', 'values indices')\n"
        f"def custom_kernel(data):\n    order = np.argsort(-data)[:3]\n    return {answer}\n"
    )
    report = judged(tmp_path, source, TOP, mode="leaderboard")
    assert report.verdict == "passed", report.reason
    wrong = source.replace("(-data)", "(data)")
    assert "another top" in judged(tmp_path / "wrong", wrong, TOP).reason
    open_ = judged(tmp_path / "open", source.replace("order\n", "order.astype('i4')\n"), TOP, **OPEN)
    assert open_.verdict == "passed", open_.reason


def test_an_author_learns_what_an_answer_comes_back_without(tmp_path: Path) -> None:
    problem = """
from collections import Counter
import random
def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.choice("abc") for _ in range(n)]
def ref_kernel(data):
    return Counter(data)
def check_implementation(data, output):
    return output.most_common(1) == ref_kernel(data).most_common(1), ""
"""
    source = "from collections import Counter\ncustom_kernel = Counter\n"
    report = judged(tmp_path, source, problem)
    assert report.verdict == "infrastructure", report.reason
    assert "without its class Counter: AttributeError" in report.reason
    plain = problem.replace("output.most_common", "Counter(output).most_common")
    assert judged(tmp_path / "plain", source, plain).verdict == "passed"


FORGOTTEN = """
import random
def generate_input(n, seed):
    draw = random.Random(seed)
    return {"x": [draw.random() for _ in range(n)], "out": [0.0] * n}
def ref_kernel(data):
    data["out"][:] = [2 * x for x in data["x"]]
"""


@pytest.mark.parametrize("end", ["", "    return ()\n", "    return {'result': None}\n"])
def test_an_author_who_returns_nothing_is_told_so(tmp_path: Path, end: str) -> None:
    """Whatever a submission did would be right."""
    source = f"def custom_kernel(data):\n    pass\n{end}"
    for mode in ("test", "benchmark"):
        report = judged(tmp_path / mode, source, FORGOTTEN + end, mode=mode)
        assert report.verdict == "infrastructure", report.reason
        assert "is a `return` missing" in report.reason


def test_an_answer_of_no_rows_is_one_where_others_have_some(tmp_path: Path) -> None:
    problem = FORGOTTEN + '    return data["out"]\n'
    source = 'def custom_kernel(data):\n    return [2 * x for x in data["x"]]\n'
    report = judged(tmp_path, source, problem, tests=[{"n": 0, "seed": 1}, *CASES], mode="benchmark")
    assert report.verdict == "passed", report.reason
    found = "    return None if len(data['x']) < 25 else 1\n"
    source = f"def custom_kernel(data):\n{found}"
    assert judged(tmp_path / "none", source, FORGOTTEN + found).verdict == "passed"


FRAGILE = """
import ctypes, random
def generate_input(n, seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(n)]
def ref_kernel(data):
    return sorted(data)
def check_implementation(data, output):
    if output != sorted(data):
        ctypes.string_at(8)
    return True, ""
"""


def test_a_check_that_goes_down_leaves_the_mark_of_an_answer(tmp_path: Path) -> None:
    """Of the problem's own doings none, and none once all is over."""

    def left(name: str, source: str, problem: str) -> tuple[int, str]:
        told = ground.manifest(source, files={"reference.py": problem}, mode="test", tests=CASES, hidden=[])
        outcome = ground.judged(tmp_path / name, told)
        mark = outcome.out / "checking"
        assert (outcome.code == 0) == (outcome.report is not None)
        assert "Traceback" not in outcome.stderr and "Current thread" not in outcome.stderr
        return outcome.code, mark.read_text() if mark.exists() else ""

    assert left("wrong", BACKWARDS, FRAGILE) == (-signal.SIGSEGV, "1\n")
    assert left("right", RIGHT, FRAGILE) == (0, "")
    assert left("abort", BACKWARDS, FRAGILE.replace("ctypes.string_at(8)", "__import__('os').abort()")) == (
        -signal.SIGABRT,
        "1\n",
    )
    at_once = FRAGILE.replace("    return sorted(data)\n", "    ctypes.string_at(8)\n", 1)
    assert left("reference", BACKWARDS, at_once) == (-signal.SIGSEGV, "0\n")
    later = FRAGILE.partition("def check")[0].replace(
        "    return sorted(data)\n",
        "    made.append(1)\n    len(made) > 3 and ctypes.string_at(8)\n    return sorted(data)\n",
    )
    assert left("later", RIGHT, later + "made = []\n") == (-signal.SIGSEGV, "0\n")


def test_numpys_own_is_one_of_them(tmp_path: Path) -> None:
    """Runs whose lengths add up to few, by overflow."""
    problem = """
import numpy as np
def generate_input(n, seed):
    draw = np.random.default_rng(seed)
    return np.repeat(draw.integers(0, 100, n), draw.integers(1, 5, n))
def ref_kernel(data):
    starts = np.flatnonzero(np.concatenate(([True], data[1:] != data[:-1])))
    return data[starts], np.diff(np.append(starts, len(data)))
def check_implementation(data, output):
    decoded = np.repeat(*output)
    return bool(decoded.shape == data.shape and (decoded == data).all()), "it isn't what was encoded"
"""
    source = problem.partition("def check")[0].replace("def ref_kernel", "def right") + (
        "def custom_kernel(data):\n    values, counts = right(data)\n    counts[:4] = 1 << 62\n    counts[3] += 5\n"
        "    return values, counts\n"
    )
    told = ground.manifest(source, files={"reference.py": problem}, mode="test", tests=CASES, hidden=[])
    outcome = ground.judged(tmp_path, told)
    if outcome.report is not None:  # a numpy that looks at the sum
        assert outcome.report.verdict == "wrong"
    else:
        assert outcome.code < 0 and (outcome.out / "checking").read_text() == "1\n"


CATCHES_ALL = """
import time

calls = 0


def generate_input(n, seed):
    return list(range(n, 0, -1))


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    global calls
    calls += 1
    try:
        until = time.time() + 4
        while time.time() < until:
            time.sleep(0.01)
        assert output == sorted(data)
    except:
        return False, "they aren't in order"
    return True, ""
"""


def test_a_check_that_catches_everything_keeps_nothing_from_its_end(tmp_path: Path) -> None:
    """The run's time was over while it ran: an honest answer was wrong, and there was no limit any more."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return sorted(data)\n", files={"reference.py": CATCHES_ALL},
        tests=[{"n": 40, "seed": seed} for seed in range(4)], mode="test",
        limits=ground.limits(test_s=2.0, total_s=6.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert (report.verdict, report.flags) == ("infrastructure", []), report.reason
    assert "took longer than 6 s" in report.reason


FAILS_ALONE = """
def generate_input(n, seed=2):
    return [0] * n if seed % 2 else list(range(n, 0, -1))


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    return sum(abs(a - b) for a, b in zip(output, sorted(data))) / max(data) < 1e-6, "too far off"
"""


@pytest.mark.parametrize(("answer", "verdict"), [("sorted(data)", "infrastructure"), ("data[::-1]", "infrastructure")])
def test_a_check_that_fails_on_an_input_whatever_the_answer_is_its_authors(
    tmp_path: Path, answer: str, verdict: str
) -> None:
    told = ground.manifest(
        f"def custom_kernel(data):\n    return {answer}\n", files={"reference.py": FAILS_ALONE}, tests=[{"n": 40}],
        benchmarks=[{"n": 40, "seed": 2}], hidden=[], budget=wire.Budget(launches=1, calls=30),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == verdict, report.reason
    assert "ZeroDivisionError" in report.reason


POOLED = """
import multiprocessing


def generate_input(n, seed):
    return list(range(n, 0, -1))


pool = None


def ref_kernel(data):
    global pool
    pool = pool or multiprocessing.get_context("fork").Pool(2)
    return sorted(sum(pool.map(sorted, [data[::2], data[1::2]]), []))
"""


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_reference_may_have_processes_of_its_own(tmp_path: Path, level: str) -> None:
    """At level 1 they were stopped and ended as a runner's orphans, and the judge waited for them for ever."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return sorted(data)\n", files={"reference.py": POOLED},
        limits=ground.limits(total_s=40.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "passed", report.reason


def test_a_judge_ends_though_the_problem_left_a_thread(tmp_path: Path) -> None:
    """It had its report, and held its job and its GPU until the time limit."""
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    began = time.monotonic()
    report = judged(tmp_path, RIGHT, thread + ground.SORTING)
    assert report.verdict == "passed", report.reason
    assert time.monotonic() - began < 45


HIDDEN_TROUBLE = {
    "an input": ("if n == 4711:\n        raise ValueError('4711 is too large')", "pass", "pass"),
    "an answer": ("pass", "if len(data) == 4711:\n        raise ValueError('4711 numbers')", "pass"),
    "a check that refuses it": ("pass", "pass", "if len(data) == 4711:\n        return False, 'of 4711 one is off'"),
    "a check that fails": ("pass", "pass", "if len(data) == 4711:\n        raise ValueError('4711 numbers')"),
    "a value": ("if n == 4711:\n        return [object()]", "pass", "pass"),
}


@pytest.mark.parametrize("where", HIDDEN_TROUBLE)
def test_a_problem_that_fails_on_a_hidden_case_says_nothing_of_it_to_submitters(tmp_path: Path, where: str) -> None:
    made, answered, checked = HIDDEN_TROUBLE[where]
    reference = (
        f"import random\n\n\ndef generate_input(n, seed):\n    {made}\n    r = random.Random(seed)\n"
        f"    return [r.random() for _ in range(n)]\n\n\ndef ref_kernel(data):\n    {answered}\n"
        "    return sorted(data)\n\n\n"
        f"def check_implementation(data, output):\n    {checked}\n    return sorted(data) == output, ''\n"
    )
    told = ground.manifest(
        "def custom_kernel(data):\n    return sorted(data)\n", files={"reference.py": reference}, mode="leaderboard",
        hidden=[{"n": 4711, "seed": 99}], budget=wire.Budget(launches=2, calls=3),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "infrastructure", report.reason
    assert "failed on a hidden case" in report.reason and "4711" not in report.reason + report.log
    assert "4711" in report.secret_log or "can't be sent" in report.secret_log, "hosts read it"
