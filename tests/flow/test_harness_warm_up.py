"""What a submission may do before the clock runs: `kb_warm_up`, everybody's way to what patching the runner gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems.loading import load
from kbslurm_eval.judge import launch
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, needs

TWICE = """
import time
import numpy as np

def generate_input(n, seed):
    return np.random.default_rng(seed).random(n), [np.arange(n)]

def ref_kernel(data):
    time.sleep(PACE_S)
    return data[0] * 2

def check_implementation(data, output):
    return bool((output == data[0] * 2).all()), "not twice as much"
"""
# Changes all that it is given, and says in the log what it saw.
WARMED = """
import numpy as np

calls = warmed = 0


def kb_warm_up(data, out):
    global warmed
    warmed += 1
    out[:] = 7
    out.shape = (1, -1)
    data[0][:] = 7
    data[1].clear()


def custom_kernel(data, out):
    global calls
    calls += 1
    assert len(data[1]) == 1 and out.ndim == 1, "it was given what the warm-up had changed"
    print(calls, warmed)
    return np.multiply(data[0], 2, out=out)
"""
RAISES = """
def kb_warm_up(data):
    raise ValueError("too cold")


def custom_kernel(data):
    return data[0] * 2
"""


# The same in C++: it says so in the log, and refuses to be called without it.
COMPILED = """
#include "kbslurm.h"
#include <cstdio>
static int calls = 0, warmed = 0;
KB_ENTRY int kb_warm_up(const kb_array *in, int inputs, kb_array *out, int outputs) {
  ++warmed;
  for (long long i = 0; i < in[0].size; ++i) ((double *)in[0].data)[i] = ((double *)out[0].data)[i] = 7;
  return FAULT;
}
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  for (long long i = 0; i < in[0].size; ++i) ((double *)out[0].data)[i] = 2 * ((const double *)in[0].data)[i];
  std::printf("%d %d\\n", ++calls, warmed);
  std::fflush(stdout);
  return 0;
}
"""

TYPED = """
// TESTS = [{"size": 9, "seed": 1}]
// BENCHMARKS = [{"size": 9, "seed": 2}]
#include <vector>
using input_t = std::vector<int>;
using output_t = std::vector<int>;
input_t generate_input(int size, int seed) { return input_t(static_cast<size_t>(size), seed); }
output_t reference(input_t data) { return data; }
bool check_implementation(output_t output, output_t expected) { return output == expected; }
"""
NATIVE: dict[str, Any] = {"lang": "cu", "entry": "submission.cu"}


def _judged(
    folder: Path, source: str, n: int = 50, pace_s: float = 0.06, calls: int = 5, **changed: Any
) -> wire.Report:
    files = {"reference.py": TWICE.replace("PACE_S", str(pace_s))}
    told = ground.manifest(
        source, files=files, tests=[], benchmarks=[{"n": n, "seed": 2}], hidden=[], mode="benchmark",
        budget=wire.Budget(launches=1, calls=calls), **changed,
    )  # fmt: skip
    return ground.judged(folder, told).told


def _last(report: wire.Report) -> str:
    """The last line that a submission wrote."""
    return [line for line in report.log.splitlines() if not line.startswith("[")][-1]


@pytest.mark.parametrize(("n", "pace_s", "warmed"), [(50, 0.06, 7), (40_000, 0.002, 7), (40_000, 0.06, 0)])
def test_it_is_called_before_each_call_whose_arrays_are_known_and_changes_none_of_them(
    tmp_path: Path, n: int, pace_s: float, warmed: int
) -> None:
    report = _judged(tmp_path, WARMED, n, pace_s)
    assert report.verdict == "passed", report.reason
    assert _last(report) == f"7 {warmed}"


def test_it_is_called_between_calls_in_one_go_too(tmp_path: Path) -> None:
    """Whoever patches the runner clears its tables there, outside of the time; so may everybody else."""
    report = _judged(tmp_path, WARMED, pace_s=0.0)
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"]["benchmark"]["0"] == 9
    assert _last(report) == "8 8"


LONG = """
import time


def kb_warm_up(data):
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        pass


def custom_kernel(data):
    return data[0] * 2
"""
SAID = "calls it took longer than "


@pytest.mark.parametrize(("warm_s", "least_ms", "most_ms"), [(0.0009, 0.0, 0.9), (0.012, 6.0, 60.0)])
@pytest.mark.parametrize("pace_s", [0.0, 0.06], ids=["in one go", "one by one"])
def test_a_millisecond_is_free_and_what_is_far_beyond_counts(
    tmp_path: Path, warm_s: float, least_ms: float, most_ms: float, pace_s: float
) -> None:
    """All of it counted beyond a millisecond that also contained the way to the runner: a kernel of 17 µs with a
    warm-up of 0.9 ms, as the guide allowed it, seemed to take more than one."""
    report = _judged(tmp_path, LONG.replace("WARM_S", str(warm_s)), pace_s=pace_s, calls=8)
    assert report.verdict == "passed", report.reason
    calls = report.samples[0].own.calls_ns
    assert least_ms <= min(calls) / 1e6 <= most_ms, calls
    if least_ms > 0:
        assert SAID in report.log, report.log


def test_only_what_is_beyond_the_free_part_counts() -> None:
    patience = launch.Patience()
    assert [patience.counts(ns) for ns in (20_000, 9_000_000, 20_000)] == [0, 0, 0], "nothing is there yet"
    patience.end()
    assert [patience.counts(ns) for ns in (900_000, 2_000_000, 2_300_000)] == [0, 0, 300_000]
    assert patience.told(launch.LATE) == "", "of a few calls it isn't told"
    for _ in range(10):
        patience.counts(3_000_000)
    assert patience.told(launch.LATE).startswith("before 11 of 13 calls it took longer than 2 ms to be ready")


def test_what_it_raises_is_told(tmp_path: Path) -> None:
    report = _judged(tmp_path, RAISES)
    assert report.verdict == "error"
    assert "kb_warm_up: ValueError: too cold" in report.reason


@needs(GXX)
@pytest.mark.parametrize(
    ("n", "pace_s", "calls"), [(50, 0.06, "7 7"), (50, 0.0, "8 8"), (40_000, 0.002, "7 7"), (40_000, 0.06, "7 0")]
)
def test_it_is_called_in_compiled_code_too(tmp_path: Path, n: int, pace_s: float, calls: str) -> None:
    report = _judged(tmp_path, COMPILED.replace("FAULT", "0"), n, pace_s, **NATIVE)
    assert report.verdict == "passed", report.reason
    assert _last(report) == calls


OWN = [  # what a submission has of that name, and whether it is called
    ("void kb_warm_up(const input_t &data) { warmed += data.size() == 9; }", True),
    (("struct View { View(const input_t &all) : size(all.size()) {} size_t size; };"
     " void kb_warm_up(View data) { warmed += data.size == 9; }"), True),
    ("static auto kb_warm_up = [](const input_t &) { ++warmed; };", True),
    ("enum Told { good, bad }; Told kb_warm_up(input_t) { ++warmed; return good; }", True),
    ("void kb_warm_up(int, int) { ++warmed; }", False),
    ("static bool kb_warm_up = true;", False),
    ("template <class T> void kb_warm_up(T &&x) { x.launch(3); }", False),
    ("struct Own { void kb_warm_up(input_t) { ++warmed; } };", False),
]  # fmt: skip


@needs(GXX)
@pytest.mark.parametrize(("own", "called"), OWN)
def test_a_compiled_one_takes_what_its_kernel_takes_or_isnt_called(tmp_path: Path, own: str, called: bool) -> None:
    (tmp_path / "reference.cu").write_text(TYPED)
    problem = load(tmp_path / "reference.cu", name="typed")
    source = (
        '#include "reference.cu"\n#include <cstdio>\nstatic int warmed = 0;\n'
        f"{own}\n"
        'output_t custom_kernel(input_t data) { std::printf("%d\\n", warmed); std::fflush(stdout); return data; }\n'
    )
    told = manifest_for(
        problem, token="t", attempt=1, nonce="n", mode="benchmark", gpu="cpu", secret_seed=ground.SECRET, source=source
    )
    report = ground.judged(tmp_path / "run", told).told
    assert report.verdict == "passed", report.reason
    assert (int(_last(report)) > 1) is called
    assert ("kb_warm_up isn't called, since it can't be called as the kernel is: " in report.log) is not called


@needs(GXX)
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("return 1", "kb_warm_up: it returned an error"),
        ('throw std::runtime_error("too cold")', "kb_warm_up: exception: too cold"),
    ],
)
def test_what_goes_wrong_in_a_compiled_one_is_told(tmp_path: Path, fault: str, told: str) -> None:
    source = COMPILED.replace("return FAULT", fault)
    report = _judged(tmp_path, "#include <stdexcept>\n" + source, **NATIVE)
    assert report.verdict == "error"
    assert told in report.reason


@needs(GXX)
def test_a_mistake_elsewhere_isnt_blamed_on_it(tmp_path: Path) -> None:
    broken = COMPILED.replace("FAULT", "0") + "int custom_helper( { return 0; }\n"
    report = _judged(tmp_path, broken, **NATIVE)
    assert report.verdict == "error" and "error" in report.reason
    assert "kb_warm_up isn't called" not in report.log


DRAWN = """
import numpy as np

def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n), int(r.integers(10, 100))

def ref_kernel(data):
    return data[0] * data[1]
"""
BY_THE_LAST = """
calls = warmed = 0


def kb_warm_up(data):
    global warmed
    FAULT
    warmed += len(data[0]) == 500 and 10 <= data[1] < 100
    data[0][:] = 7


def custom_kernel(data):
    global calls
    calls += 1
    print(calls, warmed)
    return data[0] * data[1]
"""


def test_it_is_called_where_a_number_is_drawn_too(tmp_path: Path) -> None:
    """A loop of one's own in the runner's place has that moment, too: what was done in it was free for that only."""
    told = ground.manifest(
        BY_THE_LAST.replace("FAULT", ""), files={"reference.py": DRAWN}, mode="benchmark",
        tests=[{"n": 500, "seed": 1}], benchmarks=[{"n": 500, "seed": 2}], budget=wire.Budget(launches=1, calls=12),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    said = [line.split()[-2:] for line in report.log.splitlines() if line[-1:].isdigit()]  # the judge's remarks aside
    calls, warmed = map(int, said[-1])
    assert calls >= 12 and warmed >= calls - 5, report.log[-300:]


def test_what_goes_wrong_in_it_there_is_told(tmp_path: Path) -> None:
    source = BY_THE_LAST.replace("FAULT", "raise ValueError('too cold')")
    told = ground.manifest(
        source, files={"reference.py": DRAWN}, mode="benchmark", tests=[], benchmarks=[{"n": 500, "seed": 2}]
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "error"
    assert "kb_warm_up: ValueError: too cold" in report.reason
