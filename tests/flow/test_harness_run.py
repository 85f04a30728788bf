"""The harness as a process: what it makes of right, wrong and broken submissions, of broken problems, and of its own
surroundings."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.judge import call_plan, machine
from kbslurm_eval.shared import timing, wire
from tests.flow import harness_ground as ground
from tests.flow import test_harness_one_go as one_go

RIGHT = "def custom_kernel(data):\n    return sorted(data)\n"


def _test_mode(folder: Path, source: str, **changed: Any) -> wire.Report:
    return ground.judged(folder, ground.manifest(source, mode="test", **changed)).told


def test_a_right_submission_passes_every_phase(tmp_path: Path) -> None:
    outcome = ground.judged(tmp_path, ground.manifest(RIGHT))
    report = outcome.told
    assert (outcome.code, report.verdict) == (0, "passed"), report.reason
    assert [p.name for p in report.phases] == ["test", "benchmark", "ranked", "hidden"]
    assert report.score_s is not None
    assert report.interval_s is not None
    assert 0 < report.interval_s[0] <= report.score_s <= report.interval_s[1]
    assert [(t.phase, t.status) for t in report.tests] == [("test", "pass"), ("test", "pass"), ("hidden", "pass")]
    ranked = next(b for b in report.benchmarks if b.phase == "ranked")
    assert (len(ranked.launch_medians_ns), ranked.calls) == (2, 6)
    assert report.harness_digest == _digest()
    assert not (tmp_path / "key").exists()
    assert json.loads((outcome.out / "heartbeat.json").read_text())["phase"] == "done"


def _digest() -> str:
    done = subprocess.run(
        [sys.executable, "-I", str(ground.EVAL), "--digest"], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("source", "verdict", "said"),
    [
        ("def custom_kernel(data):\n    return data\n", "wrong", "test 1 of 2 (n: 40; seed: 1): an answer is wrong"),
        (
            "def custom_kernel(data)\n    return data\n",
            "error",
            "while loading: SyntaxError: expected ':' (submission.py, line 1)",
        ),
        ("import nothing_like_this\n", "error", "test phase, while loading: ModuleNotFoundError"),
        (
            "def custom_kernel(data):\n    raise ValueError('boom')\n",
            "error",
            "ValueError: boom (submission.py, line 2)",
        ),
        ("kernel = sorted\n", "error", "submission.py defines no function custom_kernel"),
        ("def custom_kernel(data):\n    return tuple(data)\n", "wrong", "an answer has the wrong type"),
        ("def custom_kernel(data):\n    return sorted(data)[1:]\n", "wrong", "an answer has the wrong shape"),
        ("import os\nos._exit(0)\n", "error", "the submission's process ended (exit code 0)"),
        ("import os\nos.abort()\n", "error", "the submission's process ended (signal SIGABRT)"),
        ("def custom_kernel(data):\n    return [b'x'] * (40 << 30)\n", "memory", "out of memory"),
        ("\0", "error", "while loading"),
        ("", "error", "defines no function"),
    ],
)
def test_one_verdict_with_a_reason(tmp_path: Path, source: str, verdict: str, said: str) -> None:
    report = _test_mode(tmp_path, source)
    assert report.verdict == verdict, report.reason
    assert said in report.reason
    assert report.score_s is None


def test_an_endless_import_and_an_endless_call_are_timeouts(tmp_path: Path) -> None:
    for n, source in enumerate(
        ("while True:\n    pass\n", "def custom_kernel(data):\n    while True:\n        pass\n")
    ):
        report = _test_mode(tmp_path / str(n), source, limits=ground.limits(test_s=2.0))
        assert report.verdict == "timeout", report.reason
        assert "2 s" in report.reason


def test_hidden_and_ranked_failures_say_nothing_but_their_class(tmp_path: Path) -> None:
    only_hidden = (
        "def custom_kernel(data):\n    print('a value', data[:1])\n"
        "    return sorted(data) if len(data) != 91 else list(data)\n"
    )
    report = ground.judged(tmp_path / "hidden", ground.manifest(only_hidden)).told
    assert (report.verdict, report.reason) == ("wrong", "hidden cases: an answer is wrong")
    assert "91" not in json.dumps([t.message + t.spec for t in report.tests])
    assert "a value" in report.secret_log
    late = (
        "calls = [0]\ndef custom_kernel(data):\n    calls[0] += 1\n"
        "    if calls[0] > 5: raise ValueError(data[0])\n    return sorted(data)\n"
    )
    told = ground.manifest(late, budget=wire.Budget(launches=1, calls=6), benchmarks=[{"n": 30, "seed": 3}])
    report = ground.judged(tmp_path / "benchmark", told).told
    assert report.verdict == "error"
    assert report.reason.startswith("benchmark phase: ValueError: 0.")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("def generate_input(n, seed):\n    return [1.0 / 0]\n", "the problem's reference.py defines no ref_kernel"),
        ("import nothing_like_this\n", "the problem's reference.py can't be loaded: ModuleNotFoundError"),
        (ground.SORTING.replace("r = random", "r = 1 / 0; r = random"), "the case 'n: 40; seed: 1': ZeroDivisionError"),
        (
            ground.SORTING.replace("generate_input(n, seed)", "generate_input(m, seed)"),
            "generate_input has no parameter 'n'",
        ),
        (ground.SORTING.replace("want == output, ", "False, "), "the reference's own answer fails its check"),
        (ground.SORTING.replace("return want == output, ", "return 7, 7, "), "check_implementation returned a tuple"),
        (ground.SORTING.replace("return sorted(data)", "return object()"), "can't be sent to the runner: output is"),
        ("def broken(:\n", "can't be loaded: SyntaxError"),
    ],
)
def test_a_broken_problem_is_never_the_submitters_fault(tmp_path: Path, reference: str, said: str) -> None:
    report = _test_mode(tmp_path, RIGHT, files={"reference.py": reference})
    assert report.verdict == "infrastructure"
    assert said in report.reason


ONE_FILE = """
import helper

def generate_input():
    import random
    return [random.randrange(100) for _ in range(20)], bytearray(b"abc"), {"scale": helper.SCALE, "deep": (1, None,
    2.5, "é")}

def ref_kernel(data):
    values, text, told = data
    return {"sum": sum(values) * told["scale"], "text": bytes(text), "list": [v * 2 for v in values], "nest": [[1],
    [2, 3]]}

def check_implementation(output, reference):
    return output == reference
"""


def test_one_file_problems_mixed_values_and_helper_files(tmp_path: Path) -> None:
    source = ONE_FILE.replace("def ref_kernel", "def custom_kernel")
    files = {"reference.py": ONE_FILE, "helper.py": "SCALE = 3\n"}
    told = ground.manifest(
        source, style="one-file", files=files, runner_files=["helper.py"], tests=[{}], benchmarks=[{}], hidden=[]
    )
    report = ground.judged(tmp_path / "right", told).told
    assert report.verdict == "passed", report.reason
    hidden = ground.manifest(
        source, style="one-file", files=files, runner_files=[], tests=[{}], benchmarks=[{}], hidden=[]
    )
    assert "No module named 'helper'" in ground.judged(tmp_path / "hidden", hidden).told.reason


IN_PLACE = """
import array

def generate_input(size, seed):
    return array.array("d", [float((seed * 7919 + i * 104729) % 1009) for i in range(size)]), array.array("d",
    bytes(8 * size))

def ref_kernel(data):
    given, out = data
    for i, v in enumerate(given):
        out[i] = v * 2
    return out

def check_implementation(data, output):
    return "" if list(output) == [v * 2 for v in data[0]] else "no"
"""


def test_in_place_outputs_and_large_ones(tmp_path: Path) -> None:
    source = IN_PLACE.replace("def ref_kernel", "def custom_kernel")
    cases = [{"size": 10, "seed": 1}, {"size": 60_000, "seed": 2}]
    told = ground.manifest(
        source, files={"reference.py": IN_PLACE}, tests=cases, benchmarks=cases, hidden=[], ranking_by="mean"
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert len([b for b in report.benchmarks if b.phase == "ranked"]) == 2


DESTINATION = """
import numpy as np

def generate_input(size, seed):
    r = np.random.default_rng(seed)
    return r.random(size, dtype=np.float32), np.full(size, seed, np.float32)

def ref_kernel(data):
    given, out = data
    out += given
    return out

def check_implementation(data, output):
    return bool((output == data[0] + data[1]).all())
"""


def test_an_array_of_the_input_that_the_reference_answers_in_is_where_the_answer_is_read(tmp_path: Path) -> None:
    source = """
import sys
import numpy as np

def custom_kernel(data):
    given, out = data
    link = np.frombuffer(sys._getframe(1).f_locals["places"].out, np.uint8)
    assert np.shares_memory(out, link) and not np.shares_memory(given, link)
    out += given
    return out
"""
    cases = [{"size": 10, "seed": 1}, {"size": 2_000_000, "seed": 2}]  # written while it is awake, and while it stands
    told = ground.manifest(
        source, files={"reference.py": DESTINATION}, tests=cases, benchmarks=cases, hidden=[], config={}
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


GIVEN_ITS_PLACE = """
import numpy as np

def generate_input(size, seed):
    return np.random.default_rng(seed).random(size)

def ref_kernel(data):
    return data + 1, len(data)

def check_implementation(data, output):
    return bool((output[0] == data + 1).all()) and output[1] == len(data)
"""


@pytest.mark.parametrize("parameter", ["out", "*, out", "out=None"])
def test_a_submission_that_asks_for_the_place_of_its_answer_gets_it(tmp_path: Path, parameter: str) -> None:
    source = f"""
def custom_kernel(data, {parameter}):
    there, number = out
    assert number is None
    there[:] = data
    there += 1
    return there, len(data)
"""
    cases = [{"size": 10, "seed": 1}, {"size": 60_000, "seed": 2}]
    told = ground.manifest(
        source, files={"reference.py": GIVEN_ITS_PLACE}, tests=cases, benchmarks=cases, hidden=[], mode="profile"
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert "no profile" not in report.profile


TWO_ENTRIES = """
import numpy as np

def generate_input(size, seed):
    draw = np.random.default_rng(seed)
    x, grad = draw.random(size), draw.random(size)
    return {"forward": x, "backward": (x, grad), "shift": (x, np.full(size, 3.0)), "count": (x,)}

def ref_kernel(data):
    x, grad = data["backward"]
    return {"forward": x + 1, "backward": (x * grad, 2 * grad), "shift": x + 3, "count": len(x)}

def check_implementation(data, output):
    want = ref_kernel(data)
    same = all((a == b).all() for a, b in zip(want["backward"], output["backward"]))
    same = same and all((want[k] == output[k]).all() for k in ("forward", "shift"))
    return bool(same) and output["count"] == len(data["forward"]), "it differs"
"""
# One must be told its place, one may be, one calls an argument so, and one has none.
PLACED_APART = """
import numpy as np


def kb_warm_up(data):
    backward(*data["backward"], out=(np.empty_like(data["forward"]), np.empty_like(data["forward"])))


def forward(x, *, out):
    return np.add(x, 1, out=out)


def backward(x, grad, out=None):
    first, second = out
    np.multiply(x, grad, out=first)
    np.multiply(grad, 2, out=second)
    return first, second


def shift(x, out):
    assert (out == 3).all(), "it got the place of its answer as data"
    return x + out


def count(x, out=7):
    assert out == 7, "there is no place for a number"
    return len(x)
"""


def test_each_of_several_entry_points_gets_the_place_of_its_answer(tmp_path: Path) -> None:
    cases = [{"size": 10, "seed": 1}, {"size": 60_000, "seed": 2}]
    told = ground.manifest(
        PLACED_APART, files={"reference.py": TWO_ENTRIES}, tests=cases, benchmarks=cases, hidden=[], mode="profile",
        config={"call": ["forward", "backward", "shift", "count"]},
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert "no profile" not in report.profile


def test_an_argument_that_is_called_out_is_data(tmp_path: Path) -> None:
    source = "def custom_kernel(out):\n    return out + 1, len(out)\n"
    cases = [{"size": 10, "seed": 1}]
    told = ground.manifest(source, files={"reference.py": GIVEN_ITS_PLACE}, tests=cases, mode="test")
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


MOVING = """
import random

def generate_input(n, seed):
    random.seed(seed)
    return [random.randrange(50) for _ in range(n)]

def ref_kernel(data):
    return sorted(set(data))

def check_implementation(data, output):
    return output == sorted(set(data))
"""


def test_outputs_whose_size_depends_on_values(tmp_path: Path) -> None:
    source = MOVING.replace("def ref_kernel", "def custom_kernel")
    told = ground.manifest(source, files={"reference.py": MOVING}, budget=wire.Budget(launches=2, calls=8))
    assert ground.judged(tmp_path, told).told.verdict == "passed"


def test_a_baseline_is_measured_beside_the_submission(tmp_path: Path) -> None:
    budget = wire.Budget(launches=3, calls=4)
    report = ground.judged(tmp_path / "good", ground.manifest(RIGHT, budget=budget, config={"baseline": RIGHT})).told
    assert report.verdict == "passed", report.reason
    ranked = next(b for b in report.benchmarks if b.phase == "ranked")
    assert ranked.baseline_ns is not None
    assert ranked.baseline_ns > 0
    broken = "def custom_kernel(data):\n    return list(reversed(data))\n"
    report = ground.judged(tmp_path / "broken", ground.manifest(RIGHT, config={"baseline": broken})).told
    assert report.verdict == "infrastructure"
    assert "the problem's baseline fails: an answer is wrong" in report.reason


def test_what_it_can_do_nothing_about_is_one_sentence_and_six(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "key").write_bytes(b"k")
    for name, key, said in (
        ("m.json", "key", "missing field"),
        ("none.json", "key", "can't be read"),
        ("m.json", "none", "can't be read"),
    ):
        argv = [
            sys.executable,
            "-I",
            str(ground.EVAL),
            str(tmp_path / name),
            "--key",
            str(tmp_path / key),
            "--out",
            str(tmp_path / "o"),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 6
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_too_little_isolation_is_infrastructure(tmp_path: Path) -> None:
    report = ground.judged(tmp_path, ground.manifest(RIGHT, mode="test"), "--min-isolation", "9").told
    assert report.verdict == "infrastructure"
    assert "isolation level" in report.reason


@pytest.mark.parametrize("level", ["0", "1"])
def test_lower_levels_work_and_say_so(tmp_path: Path, level: str) -> None:
    report = ground.judged(tmp_path, ground.manifest(RIGHT), env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "passed", report.reason
    assert report.isolation.level == int(level)
    assert report.isolation.notes
    assert not (tmp_path / "manifest.json").exists()


def test_works_from_a_copy_below_tmp(tmp_path: Path) -> None:
    copy = ground.copied(tmp_path / "checkout" / "eval")
    (tmp_path / "manifest.json").write_text(wire.dumps(ground.manifest(RIGHT, mode="test")))
    (tmp_path / "key").write_bytes(ground.KEY)
    argv = [
        sys.executable,
        "-I",
        str(copy),
        str(tmp_path / "manifest.json"),
        "--key",
        str(tmp_path / "key"),
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=ground.GENEROUS_S, check=False, env={})
    assert done.returncode == 0, done.stderr
    assert wire.unseal((tmp_path / "report.json").read_bytes(), ground.KEY).verdict == "passed"


def test_a_killed_judge_takes_its_runners_along(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    mark = "kb_marker_of_this_test_" + str(os.getpid())
    source = f"{mark} = 1\ndef custom_kernel(data):\n    while True:\n        pass\n"
    (tmp_path / "manifest.json").write_text(wire.dumps(ground.manifest(source, mode="test")))
    (tmp_path / "key").write_bytes(ground.KEY)
    argv = [sys.executable, "-I", str(ground.EVAL), str(tmp_path / "manifest.json"), "--key", str(tmp_path / "key"),
            "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]  # fmt: skip
    judge = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        below = _awaited(lambda: [p for p in _children(judge.pid) if b"--runner" in _argv(p)])
    finally:
        judge.send_signal(signal.SIGKILL)
        judge.wait()
    assert below
    assert _awaited(lambda: not any(b"--runner" in _argv(p) for p in below)), "a runner outlived its judge"


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _awaited(wanted: Any) -> Any:
    deadline = time.monotonic() + ground.GENEROUS_S
    while not (found := wanted()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_a_final_measures_rivals_beside_one_another_and_one_that_fails_ends_nothing(tmp_path: Path) -> None:
    slower = "import time\ndef custom_kernel(data):\n    time.sleep(0.2)\n    return sorted(data)\n"
    broken = "def custom_kernel(data):\n    return list(reversed(data))\n"
    raises = "raise RuntimeError('not today')\n"
    told = ground.manifest(
        RIGHT,
        budget=wire.Budget(launches=3, calls=5),
        config={"baseline": RIGHT, "rivals": [RIGHT, slower, broken, raises]},
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "passed", "wrong", "error"]
    counts = {r: sum(s.phase == "ranked" and s.rival == r for s in report.samples) for r in range(5)}
    assert counts == {0: 3, 1: 3, 2: 3, 3: 0, 4: 0}
    assert all(len(s.own.calls_ns) == 5 and s.baseline is not None for s in report.samples if s.rival)
    times = [timing.interval(timing.paired(timing.nets(report.samples, "ranked", 0, r))).value for r in (1, 2)]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("rivals", "warmed"),
    # each of the six steps that count, of two launches: in the public and the ranked phase
    # and four more of the baseline's before each of these launches has the submission, but in a final
    [([], 2 * 6 + 2 * 6 + 4 * 4), ([one_go.HONEST], 2 * 6 + 3 * 2 * 6 + 2 * 4)],
    ids=["beside a baseline", "in a final"],
)
def test_everybody_finds_their_caches_as_they_left_them(tmp_path: Path, rivals: list[str], warmed: int) -> None:
    """Before each call that counts and follows somebody else's there is one that doesn't. Beside a baseline that is one
    in each step: candidate, baseline, baseline and candidate follow one another. In a final all follow somebody."""
    short = one_go.told(
        one_go.HONEST, n=5_000, mode="leaderboard", tests=[{"n": 10, "seed": 1}], hidden=[{"n": 9, "seed": 3}],
        budget=wire.Budget(launches=2, calls=6), config={"baseline": one_go.HONEST, "rivals": rivals},
    )  # fmt: skip
    slow = one_go.ADDING.format(more="0.5", pace_s=0.03)
    told = [
        ground.judged(tmp_path / name, dataclasses.replace(short, files=files)).told
        for name, files in (("short", short.files), ("slow", {**short.files, "reference.py": slow}))
    ]
    assert [one.verdict for one in told] == ["passed", "passed"], [one.reason for one in told]
    checked = [one.host["calls_checked"] for one in told]
    assert checked[0] - checked[1] == warmed
    for report in told:
        assert all(one.baseline and len(one.baseline.calls_ns) == len(one.own.calls_ns) for one in report.samples)


def test_short_calls_are_made_in_one_go_in_a_final_too(tmp_path: Path) -> None:
    """One by one, from cold caches, they took up to twenty times as long as in the ordinary runs beside which they
    stand, and whoever came first in a final fell behind everybody who wasn't in it."""
    short = one_go.told(
        one_go.HONEST, n=300, mode="leaderboard", tests=[{"n": 10, "seed": 1}], hidden=[{"n": 9, "seed": 3}],
        budget=wire.Budget(launches=2, calls=20), config={"rivals": [one_go.HONEST, f"{one_go.HONEST}# another\n"]},
    )  # fmt: skip
    report = ground.judged(tmp_path / "all", short).told
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"] == {"benchmark": {"0": call_plan.GROUP}}
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "passed"]
    ranked = [one for one in report.samples if one.phase == "ranked"]
    assert [len(one.own.calls_ns) for one in ranked] == [20] * 6
    goes = 2 + 20 + 3  # with warm-ups, and the first of each go, of eight that count
    assert report.host["calls_checked"] == 2 + 2 * goes + 3 * 2 * goes + 2, "tests are asked twice"


@pytest.mark.parametrize("at", ["load", "first", "later"])
def test_a_final_of_short_calls_goes_on_without_its_lead(tmp_path: Path, at: str) -> None:
    fails = {
        "load": "raise RuntimeError('no')\n",
        "first": "def custom_kernel(data):\n    raise RuntimeError('no')\n",
        "later": f"calls = []\n{one_go.HONEST}".replace(
            "    return", "    calls.append(1)\n    assert len(calls) < 16\n    return"
        ),
    }[at]
    rivals = [fails, one_go.HONEST, f"{one_go.HONEST}# another\n"]
    told = one_go.told(
        fails, n=300, mode="leaderboard", tests=[{"n": 10, "seed": 1}], hidden=[],
        budget=wire.Budget(launches=3, calls=20), config={"rivals": rivals},
    )  # fmt: skip
    report = ground.judged(tmp_path / "all", told).told
    assert [row["verdict"] for row in report.host["rivals"]] == ["error", "passed", "passed"], report.host["rivals"]
    counts = {n: [len(s.own.calls_ns) for s in report.samples if (s.phase, s.rival) == ("ranked", n)] for n in (2, 3)}
    assert counts == {2: [20] * 3, 3: [20] * 3}


IN_A_FINAL = """
import time
calls, before = 0, 0.0

def custom_kernel(data):
    global calls, before
    calls, waited = calls + 1, time.monotonic() - before
    if calls > 1 and waited > 0.4:
        raise RuntimeError("somebody else was called in between")
    before = time.monotonic()
    return sorted(data)
"""


def test_the_first_of_a_board_without_a_baseline_cannot_end_a_final_for_the_others(tmp_path: Path) -> None:
    slow = "import time\ndef custom_kernel(data):\n    time.sleep(0.5)\n    return sorted(data)\n"
    told = ground.manifest(
        IN_A_FINAL,
        budget=wire.Budget(launches=2, calls=3),
        config={"rivals": [IN_A_FINAL, slow, RIGHT]},
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "error", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["error", "passed", "passed"]
    counts = {r: sum(s.phase == "ranked" and s.rival == r for s in report.samples) for r in range(4)}
    assert counts == {0: 0, 1: 0, 2: 2, 3: 2}
    assert all(len(s.own.calls_ns) == 3 for s in report.samples if s.rival)
    (ranked,) = (one for one in report.benchmarks if one.phase == "ranked")
    assert ranked.status == "error"


@pytest.mark.parametrize("at", [0, 4], ids=["in the tests", "in the public benchmarks"])
def test_a_lead_that_fails_before_the_final_is_measured_ends_it_for_nobody_else(tmp_path: Path, at: int) -> None:
    """It needn't tell a final from a run: finals come after a deadline that is on every clock."""
    bomb = f"calls = 0\n\ndef custom_kernel(data):\n    global calls\n    calls += 1\n    assert calls <= {at}\n"
    bomb += "    return sorted(data)\n"
    told = ground.manifest(
        bomb, budget=wire.Budget(launches=2, calls=8), config={"rivals": [bomb, RIGHT, RIGHT]}, mode="leaderboard"
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "error"
    assert report.reason.startswith("test phase" if at == 0 else "benchmark phase")
    assert [row["verdict"] for row in report.host["rivals"]] == ["error", "passed", "passed"]
    assert {s.rival for s in report.samples if s.phase == "ranked"} == {2, 3}
    assert [(one.name, one.passed) for one in report.phases][-1] == ("ranked", False)
    assert report.score_s is None


ENDS_IN_A_NULL = """
import os
from kbslurm_eval.shared import runner_link

plain, calls = runner_link.RunnerEnd.answer, 0


def answer(line, token, *said):
    if line.words[runner_link.KIND // 8] == runner_link.Kind.NULL and calls > AFTER:
        os._exit(3)
    plain(line, token, *said)


runner_link.RunnerEnd.answer = answer


def custom_kernel(data):
    global calls
    calls += 1
    return sorted(data)
"""


def test_a_lead_that_ends_itself_between_calls_ends_a_final_for_nobody_else(tmp_path: Path) -> None:
    """Between its calls it is asked what its way takes; in a final that comes later than in the public phases."""
    lead = ENDS_IN_A_NULL.replace("AFTER", "3")
    told = ground.manifest(
        lead, budget=wire.Budget(launches=2, calls=8), config={"rivals": [lead, RIGHT, RIGHT]}, mode="leaderboard",
        benchmarks=[{"n": 30, "seed": 7}],
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "error"
    assert {s.rival for s in report.samples if s.phase == "ranked"} >= {2, 3}


def test_only_the_last_benchmark_is_timed_in_the_ranked_phase_where_only_it_counts(tmp_path: Path) -> None:
    source = "def custom_kernel(data):\n    return sorted(data)\n"
    cases = [{"n": 200, "seed": 7}, {"n": 300, "seed": 8}, {"n": 400, "seed": 9}]
    told = ground.judged(tmp_path, ground.manifest(source, benchmarks=cases, ranking_by="last")).told
    assert told.verdict == "passed", told.reason
    assert [(b.phase, b.index) for b in told.benchmarks] == [
        *(("benchmark", n) for n in range(3)),
        ("ranked", 2),
    ]
    assert told.budget["ranked"]["calls"] == [3]
    assert told.score_s is not None


HELPED = """
import array, os, struct


def helper():
    (reads, asks), (answers, tells) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:  # its parent ends, and it is the judge's
            while told := os.read(reads, 8):
                os.write(tells, told)
        os._exit(0)
    os.waitpid(pid, 0)
    return asks, answers


ASKS, ANSWERS = helper()


def custom_kernel(data):
    os.write(ASKS, struct.pack("q", len(data)))
    select.select([ANSWERS], [], [], 5)
    assert struct.unpack("q", os.read(ANSWERS, 8)) == (len(data),)
    return sorted(data)
""".replace("import array, os, struct", "import os, select, struct")
FAILS_LATER = """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls > 3:
        raise RuntimeError("on purpose")
    return sorted(data)
"""


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_finalist_that_falls_takes_nobody_elses_processes_with_it(tmp_path: Path, level: str) -> None:
    told = ground.manifest(
        RIGHT, config={"rivals": [HELPED, FAILS_LATER], "baseline": RIGHT}, hidden=[], tests=[{"n": 40, "seed": 1}],
        budget=wire.Budget(launches=2, calls=6),
    )  # fmt: skip
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert [one["verdict"] for one in report.host["rivals"]] == ["passed", "error"], report.host["rivals"]
    assert not [p for p in Path("/proc").glob("[0-9]*/environ") if _is_left(p, tmp_path)]


def _is_left(environ: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in environ.read_bytes()
    except OSError:
        return False


IN_TURNS = """
import time

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    time.sleep(SLEEPS)
    return sorted(data)
"""


@pytest.mark.parametrize(
    ("sleeps", "flagged"),
    [("0.001", False), ("0.2 if calls % 10 == 3 else 0.0001", True)],
    ids=["every call", "one of ten for all"],
)
def test_work_that_is_put_off_until_a_few_calls_is_told_to_staff(tmp_path: Path, sleeps: str, flagged: bool) -> None:
    told = ground.manifest(
        IN_TURNS.replace("SLEEPS", sleeps), mode="benchmark", budget=wire.Budget(launches=3, calls=20),
        config={"baseline": IN_TURNS.replace("SLEEPS", "0.004")},
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert ("PUT_OFF" in report.flags) == flagged
    assert ("done in a few" in report.host.get("evidence", {}).get("PUT_OFF", "")) == flagged
    assert not flagged or "times the typical call: in most launches a few" in report.log


THREADS = """
import os


def custom_kernel(data):
    print("THREADS", [os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")])
    return sorted(data)
"""


@pytest.mark.parametrize("own", [{}, {"MKL_NUM_THREADS": "3"}], ids=["unless", "as told"])
def test_libraries_leave_the_judge_a_core_unless_they_are_told(tmp_path: Path, own: dict[str, str]) -> None:
    """A product of matrices was billed three to four times what it took, since numpy's second thread turned on the
    judge's core."""
    report = ground.judged(tmp_path, ground.manifest(THREADS, mode="test"), env=own).told
    assert report.verdict == "passed", report.reason
    usual = str(max(1, machine.cores() - 1))
    assert f"THREADS {[None, '3'] if own else [usual, None]}" in report.log, report.log[-500:]


IN_ORDER = """
import os

calls, launch = 0, int.from_bytes(os.urandom(4), "little")


def custom_kernel(data):
    global calls
    calls += 1
    print("called", calls, len(data), launch)
    return sorted(data)
"""


def test_warm_ups_come_first_and_calls_that_count_case_by_case(tmp_path: Path) -> None:
    """Warm-ups of one case came among calls of others, and there one could work for these, in nobody's time. A long
    case's calls among a short one's were as good a place where they are means of ratios: there the work is hardly
    seen."""
    told = ground.manifest(
        IN_ORDER, mode="benchmark", tests=[], benchmarks=[{"n": n, "seed": 7} for n in (300, 400, 500)],
        budget=wire.Budget(launches=9, calls=6),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    called = [tuple(map(int, line.split()[1:])) for line in report.log.splitlines() if line.startswith("called")]
    by_launch: dict[int, dict[int, int]] = {}
    for number, size, launch in called:
        by_launch.setdefault(launch, {})[number] = size
    sizes = [[found[number] for number in sorted(found)] for found in by_launch.values()]
    assert len(sizes) == 9
    for each in sizes:
        assert sorted(each[:6]) == [300] * 2 + [400] * 2 + [500] * 2
        assert sorted((size, len(list(calls))) for size, calls in itertools.groupby(each[6:])) == [
            (300, 6), (400, 6), (500, 6),
        ]  # fmt: skip
    assert len({tuple(each[6:]) for each in sizes}) > 1, "which case comes first is drawn for each launch"
