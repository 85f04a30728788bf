"""Several short calls in one go on a processor: the runner isn't stopped in between, and nobody gains by that."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.judge.launch import TURN_NS
from kbslurm_eval.shared import timing, wire
from tests.flow import harness_ground as ground
from tests.flow.test_harness_ranks import EXAMPLE, allreduce
from tests.services import GXX, needs

ADDING = """
import time
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n), {more}


def ref_kernel(data):
    time.sleep({pace_s})
    return data[0] + 1


def check_implementation(data, output):
    return bool(np.array_equal(output, data[0] + 1)), "not one more"
"""
HONEST = """
import numpy as np


def custom_kernel(data, out=None):
    return np.add(data[0], 1, out=out)
"""
# What the attacks have in common: the link's own end, and calls that are counted.
AT = """
import ctypes
import os
import sys
import threading
import time

import numpy as np

calls = 0


def link():
    frame = sys._getframe()
    while "known" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["line"]


def custom_kernel(data):
    global calls
    calls += 1
    return answer(data)


def kernel(data):
    return data[0] + 1


"""


def told(source: str, *, more: str = "0.5", pace_s: float = 0.0, n: int = 200, **changed: Any) -> wire.Manifest:
    given: dict[str, Any] = {"files": {"reference.py": ADDING.format(more=more, pace_s=pace_s)}, "mode": "benchmark"}
    given |= {"tests": [], "hidden": [], "benchmarks": [{"n": n, "seed": 7}]}
    return ground.manifest(source, **{**given, "budget": wire.Budget(launches=1, calls=20), **changed})


def judged(folder: Path, source: str, **changed: Any) -> wire.Report:
    return ground.judged(folder, told(source, **changed)).told


def in_one_go(report: wire.Report) -> int:
    found = report.host["calls_in_one_go"]["benchmark"]["0"]
    assert isinstance(found, int)
    return found


def test_short_calls_are_made_in_one_go_each_with_its_own_data_and_check(tmp_path: Path) -> None:
    source = HONEST.replace("    return", "    print(float(data[0][0]).hex())\n    return")
    report = judged(tmp_path, source, budget=wire.Budget(launches=2, calls=20), config={"baseline": HONEST})
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9
    assert len(report.samples) == 2
    for one in report.samples:
        assert one.baseline is not None
        assert len(one.own.calls_ns) == len(one.baseline.calls_ns) == 20, "as many count as were asked for"
    alone = 2 * (2 + 7)  # the baseline's, before the submission is there
    assert report.host["calls_checked"] == 2 * 2 * (2 + 9 + 9 + 5) + alone, "every call of every go"
    lines = [line for line in report.log.splitlines() if line[:1] != "["]  # but for the judge's own remarks
    assert len(lines) == len(set(lines)) == 2 * (2 + 9 + 9 + 5), "an input came twice"


def test_thousands_of_honest_answers_are_taken_for_what_they_are(tmp_path: Path) -> None:
    """Every second run of four times as many was a violation: the judge reads a word while the runner writes it."""
    report = judged(tmp_path, HONEST, budget=wire.Budget(launches=2, calls=1_000, max_calls=1_000, target_s=60.0))
    assert report.verdict == "passed", report.reason
    assert [len(one.own.calls_ns) for one in report.samples] == [1_000, 1_000]


# none fits, so that there are five however long one takes
SLOW_REFERENCE: dict[str, Any] = {"pace_s": 0.06, "budget": wire.Budget(launches=1, calls=20, target_s=0.06)}


@pytest.mark.parametrize(
    "changed",
    [SLOW_REFERENCE, {"n": 5_000}, {"more": "[seed, 1, 2, 3]"}, {"more": "seed << 64"}, {"more": "str(seed)"}],
    ids=["a slow reference", "large arrays", "a list that changes", "an integer beyond 64 bits", "a text that changes"],
)
def test_others_are_made_one_by_one(tmp_path: Path, changed: dict[str, Any]) -> None:
    report = judged(tmp_path, HONEST, **changed)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 1
    assert len(report.samples[0].own.calls_ns) == (20 if "pace_s" not in changed else 5)


@pytest.mark.parametrize(
    "changed",
    [
        {"pace_s": 0.005},
        {"n": 4_000},
        {"more": "seed"},
        {"more": "np.float32(seed)"},
        {"more": '{"k": [r.random(), True]}'},
    ],
    ids=["a plain reference", "the largest", "a number that changes", "one of numpy's", "numbers within"],
)
def test_these_are_made_in_one_go_too(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Submissions may be much faster than the reference."""
    report = judged(tmp_path, HONEST, **changed)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9
    assert len(report.samples[0].own.calls_ns) == 20


NUMBERS = """
import struct
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | int(r.integers(1 << 50))))[0]
    zero, whole = float(r.integers(2)) * -0.0, int(r.integers(-(1 << 63), (1 << 63) - 1))
    return r.random(n), whole, nan, bool(r.integers(2)), np.int8(r.integers(100)), (zero,)


def ref_kernel(data):
    told = [repr(type(one)) for one in data[1:]] + [data[1], data[3], int(data[4])]
    told += [struct.pack("<d", one).hex() for one in (data[2], data[5][0])]
    return np.frombuffer(repr(told).encode().ljust(300), np.uint8).copy()


def check_implementation(data, output):
    return bool(np.array_equal(output, ref_kernel(data))), bytes(output).decode()
"""


def test_numbers_that_change_are_given_as_they_were_drawn(tmp_path: Path) -> None:
    source = NUMBERS.replace("ref_kernel", "custom_kernel")
    report = judged(tmp_path, source, files={"reference.py": NUMBERS})
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9


AS_MANY = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n), int(r.integers(1, n))


def ref_kernel(data):
    return data[0][: data[1]] + 1


def check_implementation(data, output):
    return bool(np.array_equal(output, ref_kernel(data))), "not one more"
"""


@pytest.mark.parametrize("pace_s", [0.0, 0.21], ids=["short", "long"])
def test_a_number_that_says_how_long_an_answer_is_stands_in_the_text(tmp_path: Path, pace_s: float) -> None:
    """Otherwise a layout would be told that isn't the answer's."""
    slow = AS_MANY.replace("    return data[0][:", f"    import time\n    time.sleep({pace_s})\n    return data[0][:")
    source = AS_MANY.replace("ref_kernel", "custom_kernel")
    report = judged(tmp_path, source, files={"reference.py": slow}, budget=wire.Budget(launches=1, calls=5))
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 1


@pytest.fixture
def one_core() -> Iterator[None]:
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    yield
    os.sched_setaffinity(0, mine)


@pytest.mark.usefixtures("one_core")
def test_a_job_with_one_core_makes_them_one_by_one_and_says_so(tmp_path: Path) -> None:
    report = judged(tmp_path, HONEST)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 1
    assert "one processor core" in report.host["calls_one_by_one"]


def test_the_time_ends_when_the_answer_is_copied(tmp_path: Path) -> None:
    """Whoever says that it is done goes on writing until then, and that was free."""
    program = tmp_path / "eval"
    ground.copied(program)
    link = program / "kbslurm_eval" / "shared" / "runner_link.py"
    quick = "        return all(os.preadv("
    assert link.read_text().count(quick) == 1
    link.write_text(link.read_text().replace(quick, f"        __import__('time').sleep(0.05)\n{quick}"))
    report = ground.judged(tmp_path / "run", told(HONEST), program=program).told
    assert report.verdict == "passed", report.reason
    times = report.samples[0].own
    assert min(times.calls_ns) > 50_000_000
    assert min(times.trusted_null_ns) > 50_000_000, "what is taken off ends as early"


# ------------------------------------------------------------------------------------------------- what is tried in it

# Waits for the next input before it answers.
PEEKING = """
def answer(data):
    before, y = data[0].copy(), kernel(data)
    until = time.monotonic() + 0.002
    while time.monotonic() < until:
        if not np.array_equal(data[0], before):
            raise RuntimeError("the next input was there before this one was answered")
    return y
"""


def test_no_input_is_there_before_the_one_before_it_is_answered(tmp_path: Path) -> None:
    """Nothing of several calls can be done together, or left out."""
    report = judged(tmp_path, AT + PEEKING)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9
    assert report.score_s is not None
    assert report.score_s > 0.002


REPLAYED = """
kept = []


def answer(data):
    kept.append(kernel(data))
    return kept[0] if calls > 12 else kept[-1]
"""
STALE = """
def answer(data):  # the one before, whose place it was
    line = link()
    if calls > 12:
        line.answer(line.words[0], 0)
    return kernel(data)
"""
AFTER_DONE = """
def answer(data):
    line, y = link(), kernel(data)
    if calls > 12:
        line.answer(line.words[0], 0)
        until = time.monotonic() + 0.003
        while time.monotonic() < until:
            pass
    return y
"""
BY_A_THREAD = """
def finish(out, y):
    while True:
        out[:] = y
        time.sleep(0)


def answer(data):
    y = kernel(data)
    if calls < 12:
        return y
    threading.Thread(target=finish, args=(np.frombuffer(link().views["out"], count=y.size), y), daemon=True).start()
    return np.zeros_like(y)
"""
GUESSED = """
def answer(data):
    line = link()
    if calls == 13:
        line.answer(12345, 0)
        time.sleep(0.1)
    return kernel(data)
"""
BEFORE_IT_IS_ASKED = """
def finish(line):
    while True:
        line.words[256] = line.words[0]  # answered
        time.sleep(0)


def answer(data):
    if calls == 3:
        sys.setswitchinterval(1e-5)  # else a busy machine may never let it in before the answer is there
        threading.Thread(target=finish, args=(link(),), daemon=True).start()
    if calls > 3:
        time.sleep(0.001)  # nor may a quiet one
    return kernel(data)
"""
CUT = """
def answer(data):
    if calls == 13:
        for name in ("out", "in", "bell"):
            os.truncate(f"{sys.argv[-1]}/{name}", 0)
    return kernel(data)
"""
LONGER = """
def answer(data):
    if calls == 13:
        os.truncate(f"{sys.argv[-1]}/in", 1 << 20)
    return kernel(data)
"""
AT_13 = """
def answer(data):
    return (ACT) if calls == 13 else kernel(data)
"""
ENDS = AT_13.replace("ACT", "os._exit(3)")
SLOW_ONCE = """
def answer(data):
    if calls == 13:
        time.sleep(0.2)
    return [1] if calls == 14 else kernel(data)
"""


@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        (REPLAYED, {"wrong"}),
        (STALE, {"wrong"}),
        (AFTER_DONE, {"wrong"}),
        (BY_A_THREAD, {"wrong"}),
        (GUESSED, {"violation"}),
        (BEFORE_IT_IS_ASKED, {"wrong"}),
        (CUT, {"violation", "error"}),
        (LONGER, {"violation"}),
        (ENDS, {"error"}),
        (AT_13.replace("ACT", "[1.0]"), {"wrong"}),
        (AT_13.replace("ACT", "data[0] + 2"), {"wrong"}),
        (AT_13.replace("ACT", "1 / 0"), {"error"}),
        (AT_13.replace("ACT", "[bytearray(b'x') * (900 << 20) for _ in range(2)]"), {"memory", "error"}),
        (SLOW_ONCE, {"wrong"}),
    ],
    ids=[
        "the first answer again",
        "done before it has begun",
        "written after it has said done",
        "written by a thread",
        "a token of its own",
        "done said all the time",
        "files cut short",
        "a file made longer",
        "its process ends",
        "an answer of another kind",
        "one of them wrong",
        "one of them raises",
        "too much memory",
        "a slow call taken back by another kind of answer",
    ],
)
def test_each_of_several_answers_is_looked_at_at_once(tmp_path: Path, source: str, verdicts: set[str]) -> None:
    report = judged(tmp_path, AT + source)
    assert report.verdict in verdicts, report.reason
    assert in_one_go(report) == 9


SLOW = """
def answer(data):
    print(calls)
    if calls > 11:
        time.sleep(0.8)
    return kernel(data)
"""


def test_a_time_limit_holds_for_all_calls_of_a_go_together(tmp_path: Path) -> None:
    """Each of them could otherwise take what was left before the first."""
    report = judged(tmp_path, AT + SLOW, limits=ground.limits(benchmark_s=2.0))
    assert report.verdict == "timeout", report.reason
    called = [int(line) for line in report.log.splitlines() if line.isdigit()]  # the judge's remarks aside
    assert called[-1] < 18, "the go wasn't ended"


# Works before it says that it is awake: in the place where the runner makes the next call's arrays.
WORKS_BETWEEN = """
from kbslurm_eval.runner import serve

plain = serve._Ahead.__init__


def slowly(*given):
    until = time.perf_counter() + 0.006
    while time.perf_counter() < until:
        pass
    plain(*given)


serve._Ahead.__init__ = slowly


def answer(data):
    return kernel(data)
"""


def test_what_is_done_between_two_calls_counts(tmp_path: Path) -> None:
    """Two milliseconds are free there, as before a single call, or eight times what being ready takes; at most five.
    What is beyond belongs to the call."""
    report = judged(tmp_path, AT + WORKS_BETWEEN.replace("0.006", "0.012"))
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None
    assert report.score_s > 0.007


# The first call of a go takes WORKS_S longer; that of a baseline's only where it comes after somebody else's, as if
# something had been left behind there. The first go has two calls, the others nine; of the baseline's, nine calls come
# before the submission is there.
WORKS_FIRST = """
def answer(data):
    go, at = divmod(calls - FIRST, 9)
    if go >= 0 and at == 0 and (ALWAYS or go % 2):
        time.sleep(WORKS_S)
    return kernel(data)
"""


def test_what_a_submission_leaves_behind_for_the_baseline_excuses_nothing_of_its_own(tmp_path: Path) -> None:
    first = AT + WORKS_FIRST.replace("WORKS_S", "0.03")
    baseline = first.replace("ALWAYS", "False").replace("FIRST", "12")
    report = judged(
        tmp_path,
        first.replace("ALWAYS", "True").replace("FIRST", "3"),
        config={"baseline": baseline},
        budget=wire.Budget(launches=1, calls=32),
    )
    assert report.verdict == "passed", report.reason
    assert min(report.samples[0].own.calls_ns) > 1.5e6, "what the first calls of four goes took is in all that count"


# Says that it is awake before it was asked, again and again.
NEVER_ASLEEP = """
def finish(line):
    while True:
        line.words[259] = line.words[5] + 1
        line.words[259] = line.words[5]
        time.sleep(0)


def answer(data):
    if calls == 3:
        threading.Thread(target=finish, args=(link(),), daemon=True).start()
    return kernel(data)
"""


def test_who_says_that_it_is_awake_before_it_is_asked_gains_nothing(tmp_path: Path) -> None:
    report = judged(tmp_path, AT + NEVER_ASLEEP)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9


NULLS = """
def answer(data):
    return kernel(data)


from kbslurm_eval.runner import serve

plain = serve.RunnerEnd.answer


def slowly(line, token, status, text=""):
    if line.words[2] == 2:  # a null call
        time.sleep(0.05)
    plain(line, token, status, text)


serve.RunnerEnd.answer = slowly
"""


def test_null_calls_in_one_go_are_those_from_before_the_submission(tmp_path: Path) -> None:
    """What is taken off can't be made larger by whoever it is taken off for."""
    source = AT + NULLS.replace("return kernel(data)", "time.sleep(0.0005)\n    return kernel(data)")
    report = judged(tmp_path, source, budget=wire.Budget(launches=1, calls=80))
    assert report.verdict == "passed", report.reason
    times = report.samples[0].own
    assert min(times.null_ns) > 50_000_000, "null calls were made while it was there"
    assert max(times.trusted_null_ns) < 50_000_000
    assert report.score_s is not None
    assert report.score_s > 0.0004


OF_ANOTHER_TYPE = """
import numpy as np


def custom_kernel(data):
    return (data[0] + 1).astype(np.float32).astype(TYPE)
"""


def test_an_answer_of_another_type_that_may_be_is_timed_in_one_go_as_well(tmp_path: Path) -> None:
    problem = ADDING.format(more="0.5", pace_s=0.0).replace(
        "array_equal(output, data[0] + 1)", "allclose(output, data[0] + 1)"
    )
    source = OF_ANOTHER_TYPE.replace("TYPE", "np.float32")
    report = judged(tmp_path, source, files={"reference.py": problem}, config={"outputs": "check"})
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9
    assert len(report.samples[0].own.calls_ns) == 20


IN_C = r"""
#include "kbslurm.h"
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const double *x = static_cast<const double *>(in[0].data);
  double *y = static_cast<double *>(out[0].data);
  for (long long i = 0; i < in[0].size; ++i) y[i] = x[i] + 1;
  return 0;
}
"""


@needs(GXX)
def test_compiled_code_is_called_in_one_go(tmp_path: Path) -> None:
    report = judged(tmp_path, IN_C, lang="cu", entry="submission.cu")
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9


WHO_RANG = IN_C.replace(
    "  const double *x", """  static int calls = 0;
  if (++calls > 4) { std::printf("%d frames\\n", frames()); std::fflush(stdout); }
  const double *x""", 1
).replace('#include "kbslurm.h"', """#include "kbslurm.h"
#include <cstdio>
#include <dlfcn.h>
#include <execinfo.h>
#include <cstring>
static int frames() {
  void *at[64];
  int found = backtrace(at, 64);
  for (int n = 0; n < found; ++n) {
    Dl_info info;
    if (dladdr(at[n], &info) && info.dli_sname && !std::strcmp(info.dli_sname, "kb_serve")) return 1;
  }
  return 0;
}""")  # fmt: skip


@needs(GXX)
@pytest.mark.parametrize(
    "changed",
    [
        {}, {"n": 50_000}, {"n": 50_000, "pace_s": 0.01}, {"more": "seed"}, {"more": "r.random()", "n": 50_000},
        {"more": "bool(r.integers(2))", "pace_s": 0.06}, {"more": "slice(seed)"},
    ],
    ids=[
        "in one go", "large arrays", "a slow reference", "a number", "and large arrays", "and a slow reference",
        "within an object",
    ],
)  # fmt: skip
def test_compiled_code_waits_for_its_calls_itself(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whoever waited for the token in the runner's place was spared the way through Python: a third of a kernel of
    6 µs, and 150 µs where the runner read what a call's arrays are, in cold caches."""
    report = judged(tmp_path, WHO_RANG, lang="cu", entry="submission.cu", **changed)
    assert report.verdict == "passed", report.reason
    lines = filter(None, report.log.splitlines())
    assert {line for line in lines if not line.startswith("[")} == {"1 frames"}, "but for the judge's own remarks"


NAMES = ("last", "words", "token", "code", "spins", "said", "cap", "told", "pinged", "ready", "at", "mark")
MACROS = "".join(f"#define {name} 4\n" for name in NAMES)


@needs(GXX)
def test_a_submissions_macros_are_its_own_affair(tmp_path: Path) -> None:
    report = judged(tmp_path, MACROS + IN_C, lang="cu", entry="submission.cu")
    assert report.verdict == "passed", report.reason


WRONG_IN_C = IN_C.replace("  return 0;", "  static int calls = 0;\n  return ++calls > 6;")
THROWS_IN_C = IN_C.replace("  return 0;", "  static int calls = 0;\n  if (++calls > 6) throw 7;\n  return 0;")


@needs(GXX)
@pytest.mark.parametrize(
    ("source", "said"),
    [(WRONG_IN_C, "the submission returned an error"), (THROWS_IN_C, "an exception of another type")],
)
def test_what_goes_wrong_in_compiled_code_in_one_go_is_told(tmp_path: Path, source: str, said: str) -> None:
    report = judged(tmp_path, source, lang="cu", entry="submission.cu")
    assert report.verdict == "error", report.reason
    assert said in report.reason


FLIPPING = """
import numpy as np

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    y = data[0] + 1
    return y.reshape(-1, 1) if calls <= 4 or ((calls - 5) // 11) % 2 else y
"""
LARGER = "import numpy as np\n\n\ndef custom_kernel(data):\n    return (data[0] + 1).astype(np.complex128)\n"
SMALLER = "import numpy as np\n\n\ndef custom_kernel(data):\n    return (data[0] + 1).astype(np.float32)\n"
TOLERANT = ADDING.replace(
    "return bool(np.array_equal(output, data[0] + 1))", "return bool(np.allclose(np.ravel(output), data[0] + 1))"
)
SLOW_S = 0.004
COPIED = "        return all(os.preadv(self.out, [piece], at)"
LOOKED_AT = "    return [(at, os.pread(fd, size, at))"
WRITTEN = (
    "            os.pwrite(end.input, whole, 0)\n",
    "        os.pwrite(end.input, told.whole, 0)\n",
    "                os.pwrite(end.input, payload, 0)\n",
)


def slowed(folder: Path, module: str, *texts: str, after: bool = False) -> Path:
    """The harness, which sleeps for a moment before each of these texts, or after it."""
    program = folder / "eval"
    ground.copied(program)
    file = program / "kbslurm_eval" / module
    changed = file.read_text()
    for text in texts:
        assert text in changed
        gap = text[: len(text) - len(text.lstrip())]
        sleeps = f"{gap}time.sleep({SLOW_S})\n"
        changed = changed.replace(text, text + sleeps if after else sleeps + text)
    file.write_text(changed.replace("import os\n", "import os\nimport time\n", 1))
    return program


@pytest.mark.parametrize("source", [HONEST, FLIPPING, LARGER, SMALLER], ids=["honest", "flipping", "larger", "smaller"])
def test_the_copy_of_an_answer_is_in_every_calls_time(tmp_path: Path, source: str) -> None:
    """It is in the null call's, which is taken off: whoever had calls made alone, by claiming another shape again and
    again or with a large answer, had it for nothing, and got a fifth of the time of the same kernel."""
    program = slowed(tmp_path, "shared/runner_link.py", COPIED)
    manifest = told(
        source, n=3000, config={"outputs": "check"}, files={"reference.py": TOLERANT.format(more="0.5", pace_s=0)}
    )
    report = ground.judged(tmp_path / "run", manifest, program=program).told
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"]["benchmark"]["0"] > 1
    own = report.samples[0].own
    assert min(own.trusted_null_ns) > SLOW_S * 1e9
    assert min(own.calls_ns) > SLOW_S * 1e9


CLAIMING = """
import time

import numpy as np

sizes, left, first = iter([2, 9, 9, 5]), 0, True


def custom_kernel(data):
    global left, first
    y = (data[0] + 1).reshape(-1, 1)
    if left == 0:
        time.sleep(0.03)  # works for those that follow
        left, first, was_first = next(sizes) + first, False, first
        return y if was_first else y.astype(np.float32)
    left -= 1
    return y
"""


def test_a_first_call_that_only_says_what_its_answer_is_isnt_for_nothing(tmp_path: Path) -> None:
    """The calls are made one by one then, with other inputs, and how long it took was in none of them."""
    files = {"reference.py": TOLERANT.format(more="0.5", pace_s=0)}
    report = judged(tmp_path, CLAIMING, n=3000, config={"outputs": "check"}, files=files)
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 9
    assert min(report.samples[0].own.calls_ns) > 3e6


ONE_BY_ONE = {"more": "[seed, 1, 2, 3]"}


@pytest.mark.parametrize("changed", [{"n": 5_000}, ONE_BY_ONE], ids=["a large answer", "a small one"])
def test_the_first_look_at_an_answer_is_in_every_calls_time(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whoever says "done" before the end of a large answer was written had ten microseconds for that: the clock was
    read before the judge looked, and it looked at the middle last."""
    program = slowed(tmp_path, "judge/first_look.py", LOOKED_AT)
    report = ground.judged(tmp_path / "run", told(HONEST, **changed), program=program).told
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 1
    own = report.samples[0].own
    assert min(own.trusted_null_ns) > SLOW_S * 1e9
    assert min(own.calls_ns) > SLOW_S * 1e9


@pytest.mark.parametrize("changed", [{}, ONE_BY_ONE], ids=["in one go", "one by one"])
def test_while_an_input_is_written_nothing_is_taken_off(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Whoever doesn't wait for the token works on what has come, and would have that time for nothing."""
    program = slowed(tmp_path, "judge/launch.py", *WRITTEN[:2], after=True)
    report = ground.judged(tmp_path / "run", told(HONEST, **changed), program=program).told
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == (1 if changed else 9)
    own = report.samples[0].own
    assert min(own.trusted_null_ns) < SLOW_S * 1e9
    assert min(own.calls_ns) > SLOW_S * 1e9


UNPACKED = '    length, start = struct.unpack_from("<QQ", buffer, 0)\n    return _made('


@pytest.mark.parametrize(
    ("changed", "in_it"),
    [
        ({"n": 50_000}, False),
        ({"n": 50_000, **ONE_BY_ONE}, True),
        ({"n": 50_000, "pace_s": 0.01}, False),
        ({"n": 50_000, "more": "seed"}, False),
    ],
    ids=["arrays", "a list that changes", "a slow reference", "a number that changes"],
)
def test_making_the_arrays_of_a_large_input_is_nobodys_time(
    tmp_path: Path, changed: dict[str, Any], in_it: bool
) -> None:
    """It was taken off, and whoever took the place of the runner's loop was spared it: a third of a call of 100 µs."""
    program = slowed(tmp_path, "shared/values.py", UNPACKED)
    values = program / "kbslurm_eval/shared/values.py"
    values.write_text(values.read_text().replace("import sys\n", "import sys\nimport time\n", 1))
    null_ns, calls_ns = [], []
    for number in range(1 if in_it else 3):  # on a busy machine all calls of a run may be late for being ready late
        report = ground.judged(tmp_path / f"run{number}", told(HONEST, **changed), program=program).told
        assert report.verdict == "passed", report.reason
        assert in_one_go(report) == 1
        null_ns += report.samples[0].own.trusted_null_ns
        calls_ns += report.samples[0].own.calls_ns
        if max(min(null_ns), min(calls_ns)) < SLOW_S * 1e9:
            break
    assert (min(null_ns) > SLOW_S * 1e9) == in_it
    assert (min(calls_ns) > SLOW_S * 1e9) == in_it


TURNS = """
import hashlib, threading, time

calls = 0


def turns():
    until, block = time.thread_time() + 0.03, bytes(1 << 20)
    while time.thread_time() < until:
        hashlib.sha256(block)  # without the interpreter's lock, as threads of libraries


def begun():
    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    return thread


at_load, at_call = begun(), None


def custom_kernel(data):
    global calls, at_call
    calls += 1
    print(calls, at_load.is_alive(), at_call is not None and at_call.is_alive())
    if at_call is None:
        at_call = begun()
    return data[0] + 1
"""


@pytest.mark.parametrize("changed", [{}, ONE_BY_ONE], ids=["in one go", "one by one"])
def test_threads_that_only_turn_for_a_while_are_over_before_calls_count(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    """Those of numpy's BLAS turn for some 30 ms after it was imported. A submission that imported it had each of its
    calls take a time slice, 3.4 ms instead of 0.03, until that was over: they were stopped in between."""
    report = judged(tmp_path, TURNS, **changed)
    assert report.verdict == "passed", report.reason
    told = [line.split() for line in report.log.splitlines() if line[:1].isdigit()]
    first = 2 if not changed else 1  # calls until the runner is stopped for the first time
    assert {loaded for _, loaded, _ in told} == {"False"}
    assert {called for number, _, called in told if int(number) > first} == {"False"}


FOR_EVER = TURNS.replace("time.thread_time() + 0.03", "600")


def test_a_thread_that_turns_for_ever_is_waited_for_a_moment_only(tmp_path: Path) -> None:
    report = judged(tmp_path, FOR_EVER, budget=wire.Budget(launches=1, calls=5))
    assert report.verdict == "passed", report.reason
    assert "True True" in report.log
    assert report.ended_at_ns - report.started_at_ns < 60e9


def test_the_same_holds_for_ranks(tmp_path: Path) -> None:
    source = (EXAMPLE / "submissions/accepted/by_rank_zero.py").read_text(encoding="utf-8")
    manifest = allreduce(source, mode="benchmark", budget=wire.Budget(launches=1, calls=3))
    manifest = replace(manifest, benchmarks=[{**case, "size": 64} for case in manifest.benchmarks])
    found = []
    for folder, module, texts, after in (
        ("looks", "judge/first_look.py", [LOOKED_AT], False),
        ("writes", "judge/ranks_launch.py", [WRITTEN[2]], True),
    ):
        program = slowed(tmp_path / folder, module, *texts, after=after)
        report = ground.judged(tmp_path / folder / "run", manifest, program=program).told
        assert report.verdict == "passed", report.reason
        found.append(report.samples[0].own)
    assert all(min(own.calls_ns) > SLOW_S * 1e9 for own in found)
    assert min(found[0].trusted_null_ns) > SLOW_S * 1e9
    assert min(found[1].trusted_null_ns) < SLOW_S * 1e9


def test_who_has_inputs_made_again_and_again_is_to_blame_for_the_time(tmp_path: Path) -> None:
    """It would be the machine's trouble: a run that is measured again, as often as three times, at will."""
    slow = TOLERANT.format(more="0.5", pace_s=0).replace("    r = np", "    time.sleep(0.05)\n    r = np")
    manifest = told(
        FLIPPING, n=3000, config={"outputs": "check"}, files={"reference.py": slow},
        budget=wire.Budget(launches=4, calls=100), limits=ground.limits(total_s=20.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, manifest).told
    assert report.verdict == "timeout", report.reason


@pytest.mark.parametrize("source", [HONEST, LARGER], ids=["as asked for", "twice as large"])
def test_an_answer_that_is_too_large_for_a_go_has_its_inputs_made_once(tmp_path: Path, source: str) -> None:
    """Nine were made in vain for each go, as the problem's own time, which made a run too long, and free, at will."""
    slow = TOLERANT.format(more="0.5", pace_s=0).replace("    r = np", "    time.sleep(0.02)\n    r = np")
    manifest = told(
        source, n=4000, config={"outputs": "check"}, files={"reference.py": slow},
        budget=wire.Budget(launches=2, calls=32),
    )  # fmt: skip
    report = ground.judged(tmp_path, manifest).told
    assert report.verdict == "passed", report.reason
    made = report.host["spent"]["benchmark"]["generation_s"] / 0.02
    assert made < 2.2 * sum(len(one.own.calls_ns) for one in report.samples), made


def test_the_interval_tells_how_much_of_a_call_could_be_hidden_from_the_clock(tmp_path: Path) -> None:
    """Whoever watches for the input begins when its first page is there, 2 µs before its token, of a call of 17.
    The interval says that no figure is known better than that."""
    small = judged(tmp_path / "small", HONEST, n=3_000, budget=wire.Budget(launches=2, calls=20))
    large = judged(tmp_path / "large", HONEST, n=60_000, budget=wire.Budget(launches=2, calls=20))
    assert small.verdict == large.verdict == "passed", (small.reason, large.reason)
    loop = int(timing.LOOP_NS)
    for one in small.samples:
        assert len(one.own.leeway_ns) == 8
        assert all(loop + 200 < value for value in one.own.leeway_ns), "writing 24 KB takes a microsecond or more"
        assert statistics.median(one.own.leeway_ns) < loop + 200_000
    ends = [value - loop - TURN_NS for one in large.samples for value in one.own.leeway_ns]
    assert all(0 < value < 200_000 for value in ends), "its input comes while it is stopped; only its end is open"
    for report in (small, large):
        found = timing.nets(report.samples, "benchmark", 0)
        spread = timing.interval(timing.paired(found), 2)
        assert all(net.leeway_ns >= loop for net in found)
        row = report.benchmarks[0]
        assert row.high_ns is not None and row.low_ns is not None and report.interval_s is not None
        assert row.low_ns <= spread.low and spread.high <= row.high_ns
        assert report.interval_s == [row.low_ns / 1e9, row.high_ns / 1e9]


IN_THE_KERNEL = """
import ctypes
import sys

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
SIZE = 256 << 20


def found(name):
    frame = sys._getframe()
    while name not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals[name]


def custom_kernel(data):
    answer = data[0] + 1
    found("places").write(answer, None)
    line = found("line")
    line.answer(line.words[0], 0)
    place = libc.mmap(None, SIZE, 3, 0x8022, -1, 0)  # private, anonymous, and all of it there
    libc.munmap(place, SIZE)
    return answer
"""


@pytest.mark.parametrize("ahead", ["in reach before the clock", "as one piece"])
def test_work_in_the_kernel_after_an_answer_is_in_its_time(tmp_path: Path, ahead: str) -> None:
    """No signal ends a system call, and no clock ran while the judge waited for it: a table of 64 MiB was cleared for
    nothing, a quarter of its twin's time in a call of 20 ms."""
    n = 200 if ahead == "in reach before the clock" else 200_000
    report = judged(tmp_path, IN_THE_KERNEL, n=n, pace_s=0.06, budget=wire.Budget(launches=1, calls=9))
    assert report.verdict == "passed", report.reason
    assert in_one_go(report) == 1
    assert statistics.median(report.samples[0].own.calls_ns) > 10_000_000, report.samples[0].own.calls_ns
    assert "what was beyond that counts" in report.log


BELOW_A_HALF = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).random(n)


def ref_kernel(data):
    return [float(x) for x in data if x < 0.5]


def check_implementation(data, output):
    return "" if list(map(float, output)) == ref_kernel(data) else "other numbers"
"""


@pytest.mark.parametrize("answer", ["data[data < 0.5]", "tuple(data[data < 0.5].tolist())"], ids=["array", "tuple"])
def test_an_answer_of_another_kind_may_have_another_length_in_each_call(tmp_path: Path, answer: str) -> None:
    """Once one length had come twice, all calls of a go were asked for that one."""
    told = ground.manifest(
        f"def custom_kernel(data):\n    return {answer}\n", mode="benchmark", files={"reference.py": BELOW_A_HALF},
        tests=[{"n": 9, "seed": 1}], benchmarks=[{"n": 40, "seed": 7}], hidden=[], config={"outputs": "check"},
        budget=wire.Budget(launches=2, calls=40),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


def test_once_its_kind_is_known_an_answer_of_another_length_is_asked_for_once(tmp_path: Path) -> None:
    """Whoever answered with an array for a list had the whole kernel run twice in each call."""
    takes_s = 0.05
    told = ground.manifest(
        f"import time\n\n\ndef custom_kernel(data):\n    time.sleep({takes_s})\n    return data[data < 0.5]\n",
        mode="benchmark", files={"reference.py": BELOW_A_HALF}, config={"outputs": "check"}, hidden=[],
        tests=[{"n": 9, "seed": 1}], benchmarks=[{"n": 900, "seed": 7}], budget=wire.Budget(launches=2, calls=6),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    (found,) = report.benchmarks
    assert found.median_ns is not None and found.median_ns < 1.8 * takes_s * 1e9, found.launch_medians_ns


def test_whose_answers_are_asked_for_twice_is_told_so(tmp_path: Path) -> None:
    """Where it can't be told from the reference's length how long an answer of another kind is."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return [data[data < 0.5]]\n",
        mode="benchmark", files={"reference.py": BELOW_A_HALF.replace("float, output", "float, np.ravel(output)")},
        config={"outputs": "check"}, hidden=[], tests=[{"n": 9, "seed": 1}], benchmarks=[{"n": 900, "seed": 7}],
        budget=wire.Budget(launches=2, calls=20),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert "calls were made twice, and both times count" in report.log


FEW_NUMBERS, MANY_NUMBERS = 1, 5_000  # as many numbers as fit into what is written late, and more
NOW_AND_THEN = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).random(n)


def ref_kernel(data):
    return data[:1][data[:1] < 0.02].tolist()


def check_implementation(data, output):
    return "" if [float(x) for x in output] == ref_kernel(data) else "other numbers"
"""


@pytest.mark.parametrize("n", [FEW_NUMBERS, MANY_NUMBERS])
def test_an_answer_of_another_kind_may_have_another_length_now_and_then(tmp_path: Path, n: int) -> None:
    """The first input whose answer wasn't as long as all before ended the run of whoever had been granted a kind."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return data[:1][data[:1] < 0.02]\n", mode="benchmark",
        files={"reference.py": NOW_AND_THEN}, tests=[{"n": 1, "seed": 1}], benchmarks=[{"n": n, "seed": 7}], hidden=[],
        config={"outputs": "check"}, budget=wire.Budget(launches=2, calls=300, max_calls=300, target_s=30.0),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
