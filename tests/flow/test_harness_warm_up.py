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


@pytest.mark.parametrize(("n", "pace_s", "warmed"), [(50, 0.06, 7), (40_000, 0.002, 7), (40_000, 0.06, 7)])
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
    time.sleep(WARM_S)  # who works so long isn't called any more


def custom_kernel(data):
    return data[0] * 2
"""
SAID = "calls it took longer than "


@pytest.mark.parametrize(("warm_s", "least_ms", "most_ms", "made"), [(0.0009, 0.0, 0.9, 24), (0.012, 6.0, 60.0, 8)])
@pytest.mark.parametrize("pace_s", [0.0, 0.06], ids=["in one go", "one by one"])
def test_a_millisecond_is_free_and_what_is_far_beyond_counts(
    tmp_path: Path, warm_s: float, least_ms: float, most_ms: float, made: int, pace_s: float
) -> None:
    """All of it counted beyond a millisecond that also contained the way to the runner: a kernel of 17 µs with a
    warm-up of 0.9 ms, as the guide allowed it, seemed to take more than one."""
    report = _judged(tmp_path, LONG.replace("WARM_S", str(warm_s)), pace_s=pace_s, calls=made)
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
    ("n", "pace_s", "calls"), [(50, 0.06, "7 7"), (50, 0.0, "8 8"), (40_000, 0.002, "7 7"), (40_000, 0.06, "7 7")]
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
    return r.random(n), KIND(int(r.integers(10, 100)))

def ref_kernel(data):
    return data[0] * int(data[1])
"""
# A warm-up that is given a number which is none of its case ends its runner.
BY_ANOTHER = """
#include "kbslurm.h"
#include <cstdio>
static int calls = 0, warmed = 0;
static void work(const kb_array *in, int, kb_array *out, int) {
  const double *x = (const double *)in[0].data;
  const long long k = *(const long long *)in[1].data;
  for (long long i = 0; i < in[0].size; ++i) ((double *)out[0].data)[i] = x[i] * k;
  if (k < 10 || k >= 100) __builtin_trap();
}
KB_ENTRY int kb_warm_up(const kb_array *in, int inputs, kb_array *out, int outputs) {
  work(in, inputs, out, outputs);
  *(long long *)in[1].data = 7;
  ++warmed;
  return 0;
}
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  work(in, inputs, out, outputs);
  std::printf("%d %d\\n", ++calls, warmed);
  std::fflush(stdout);
  return 0;
}
"""
BY_THE_LAST = """
calls = warmed = 0


def kb_warm_up(data):
    global warmed
    FAULT
    warmed += len(data[0]) == 500 and 10 <= int(data[1]) < 100
    data[0][:] = 7


def custom_kernel(data):
    global calls
    calls += 1
    print(calls, warmed)
    return data[0] * int(data[1])
"""


def _counts(report: wire.Report) -> tuple[int, int]:
    """The last two numbers that it wrote, the judge's remarks aside."""
    said = [line.split()[-2:] for line in report.log.splitlines() if line[-1:].isdigit()]
    calls, warmed = map(int, said[-1])
    return calls, warmed


@pytest.mark.parametrize("kind", ["int", "np.int16", "str"])
def test_it_is_called_where_a_number_is_drawn_too(tmp_path: Path, kind: str) -> None:
    """A loop of one's own in the runner's place has that moment, too: what was done in it was free for that only."""
    told = ground.manifest(
        BY_THE_LAST.replace("FAULT", ""), files={"reference.py": DRAWN.replace("KIND", kind)}, mode="benchmark",
        tests=[{"n": 500, "seed": 1}], benchmarks=[{"n": 500, "seed": 2}], budget=wire.Budget(launches=1, calls=12),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    calls, warmed = _counts(report)
    assert calls >= 12 and warmed >= calls - 5, report.log[-300:]


OF_ANY_LENGTH = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n + int(r.integers(0, 200)))


def ref_kernel(data):
    return data * 2 if FITS else data[:3] * 2


def check_implementation(data, output):
    return bool(np.array_equal(output, ref_kernel(data))), "not twice as much"
"""
WARMS_ANY = """
import numpy as np

calls = warmed = 0


def kb_warm_up(data, out=None):
    global warmed
    assert type(data) is np.ndarray and data.dtype == np.float64 and 500 <= len(data) < 700, data
    assert out.shape == (len(data) if FITS else 3,), (out.shape, data.shape)
    out[:] = 7
    warmed += 1


def custom_kernel(data):
    global calls
    calls += 1
    print(calls, warmed)
    return data * 2 if FITS else data[:3] * 2
"""


@pytest.mark.parametrize("fits", [True, False], ids=["of the answer too", "of the input"])
def test_it_is_called_where_a_length_is_drawn_with_what_was_given_before(tmp_path: Path, fits: bool) -> None:
    """Where the call before had more it wasn't, and once the next answer was told of it was given the text of that."""
    told = ground.manifest(
        WARMS_ANY.replace("FITS", str(fits)), files={"reference.py": OF_ANY_LENGTH.replace("FITS", str(fits))},
        mode="benchmark", tests=[], benchmarks=[{"n": 500, "seed": 2}], budget=wire.Budget(launches=1, calls=24),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    calls, warmed = _counts(report)
    assert calls >= 24 and warmed >= calls - 2, report.log[-300:]


@needs(GXX)
@pytest.mark.parametrize("n", [500, 40_000, 600_000])
def test_it_finds_numbers_of_its_case(tmp_path: Path, n: int) -> None:
    """What arrays contain means nothing there; a number may be a size, or a divisor."""
    files = {"reference.py": DRAWN.replace("KIND", "int")}
    told = ground.manifest(
        BY_ANOTHER, files=files, mode="benchmark", tests=[{"n": 50, "seed": 1}],
        benchmarks=[{"n": n, "seed": 2}, {"n": 90, "seed": 2}], budget=wire.Budget(launches=1, calls=12), **NATIVE,
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    calls, warmed = map(int, _last(report).split())
    assert calls > 9 and warmed >= calls - 3, report.log[-300:]


@pytest.mark.parametrize("kind", ["int", "str"])
def test_what_goes_wrong_in_it_there_is_told(tmp_path: Path, kind: str) -> None:
    source = BY_THE_LAST.replace("FAULT", "raise ValueError('too cold')")
    told = ground.manifest(
        source,
        files={"reference.py": DRAWN.replace("KIND", kind)},
        mode="benchmark",
        tests=[],
        benchmarks=[{"n": 500, "seed": 2}],
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "error"
    assert "kb_warm_up: ValueError: too cold" in report.reason


WORKS_FOR_LONG = """
import time

calls = warmed = 0


def works():
    until = time.process_time_ns() + 4_000_000
    while time.process_time_ns() < until:
        pass


def kb_warm_up(data):
    global warmed
    warmed += 1
    works()


def custom_kernel(data):
    global calls
    calls += 1
    works()
    print("seen", calls, warmed)
    return data[0] * 2
"""


def test_one_that_works_for_long_is_not_called_before_calls_that_count(tmp_path: Path) -> None:
    """`kb_warm_up = custom_kernel` nearly doubled what a kernel of some milliseconds took."""
    told = ground.manifest(
        WORKS_FOR_LONG,
        files={"reference.py": TWICE.replace("time.sleep(PACE_S)", "pass")},
        mode="benchmark",
        tests=[{"n": 50, "seed": 1}],
        benchmarks=[{"n": 20_000, "seed": 1}],
        budget=wire.Budget(launches=1, calls=6),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    seen = [line.split()[1:] for line in report.log.splitlines() if line.startswith("seen")]
    assert [int(warmed) for calls, warmed in seen if int(calls) >= 2][-6:] == [2] * 6, report.log
    assert "ms, of which 2 are free: in this process it isn't called any more before calls of this kind" in report.log


MAKES_ITS_TABLES = (
    WORKS_FOR_LONG[: WORKS_FOR_LONG.index("def kb_warm_up")]
    + """
made = set()


def kb_warm_up(data):
    global warmed
    warmed += 1
    if len(data[0]) not in made:
        works()
        made.add(len(data[0]))


def custom_kernel(data):
    global calls
    calls += 1
    print("seen", calls, warmed, len(made))
    return data[0] * 2
"""
)


def test_one_that_makes_something_for_each_case_is_called_before_all_calls(tmp_path: Path) -> None:
    """Where there were several it worked for long twice, and was called for none of them any more."""
    told = ground.manifest(
        MAKES_ITS_TABLES,
        files={"reference.py": TWICE.replace("time.sleep(PACE_S)", "pass")},
        mode="benchmark",
        tests=[{"n": 50, "seed": 1}],
        benchmarks=[{"n": n, "seed": 1} for n in (20_000, 21_000, 22_000)],
        budget=wire.Budget(launches=1, calls=6),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    seen = [tuple(map(int, line.split()[1:])) for line in report.log.splitlines() if line.startswith("seen")]
    calls, warmed, made = max(seen)
    assert made >= 3 and warmed >= calls > 18, report.log
    assert "isn't called" not in report.log


ONE_HOT = """
import numpy as np


def generate_input(n, m, seed):
    return np.random.default_rng(seed).integers(0, m, n), np.zeros(m, np.float32)


def ref_kernel(data):
    at, like = data
    y = np.zeros((len(at), len(like)), np.float32)
    y[np.arange(len(at)), at] = 1
    return y


def check_implementation(data, output):
    good = bool((output == ref_kernel(data)).all())
    return good, "" if good else "not one hot"
"""
CLEARS_BEFORE = """
import numpy as np

clear = False


def kb_warm_up(data, out):
    global clear
    out[...] = 0
    clear = CLEARS


def custom_kernel(data, out):
    global clear
    at, like = data
    if not clear:
        out[...] = 0
    clear = False
    out[np.arange(len(at)), at] = 1
    return out
"""


@pytest.mark.parametrize(("clears", "verdict"), [("True", "wrong"), ("False", "passed")])
@pytest.mark.parametrize(
    ("n", "m"), [(8, 100), (1_000, 64), (6_000, 16)], ids=["in one go", "an answer that is large", "an input as well"]
)
def test_what_it_writes_into_an_answers_place_is_lost(
    tmp_path: Path, n: int, m: int, clears: str, verdict: str
) -> None:
    """All of an answer that doesn't depend on its input was written in nobody's time: a tenth of the honest twin's."""
    told = ground.manifest(
        CLEARS_BEFORE.replace("CLEARS", clears), mode="benchmark", files={"reference.py": ONE_HOT}, hidden=[],
        tests=[{"n": 5, "m": 9, "seed": 1}], benchmarks=[{"n": n, "m": m, "seed": 7}],
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == verdict, report.reason
