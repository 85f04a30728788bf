"""What was found by attacking the harness with its source in hand, each on a problem that it needs."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems import loading
from kbslurm_eval.judge import builds, call_checks, first_look, judge, launch, output_checks, ranks
from kbslurm_eval.shared import layouts, timing, wire
from tests.flow import harness_ground as ground
from tests.services import GXX, PYTHON, ROOT, needs

LAX = """
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [1 + r.random() for _ in range(n)]


def ref_kernel(data):
    return [2 * x for x in data]


def check_implementation(data, output):
    for got, want in zip(output, ref_kernel(data), strict=True):
        if abs(got - want) / max(abs(got), abs(want)) > 1e-6:
            return False, "too far off"
    return True, ""
"""
SLOPPY = """
def generate_input(n, seed):
    return n + seed


def ref_kernel(data):
    return data


def check_implementation(data, output):
    return output and output == data
"""

# Its check takes the answer's numbers for places, as many a check of indices does.
COUNTED = """
// TESTS = [{"size": 9, "seed": 1}]
// BENCHMARKS = [{"size": 9, "seed": 2}]
#include <vector>
using input_t = std::vector<int>;
using output_t = std::vector<int>;
input_t generate_input(int size, int seed) {
  input_t found(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) found[static_cast<size_t>(i)] = (i * 7 + seed) % size;
  return found;
}
output_t reference(input_t data) { return data; }
bool check_implementation(output_t output, output_t expected) {
  std::vector<int> seen(expected.size());
  for (int i : output) seen[static_cast<size_t>(static_cast<unsigned>(i))] += 1;
  for (int n : seen) if (n != 1) return false;
  return true;
}
"""
PLACES = "output_t custom_kernel(input_t data) { for (auto &x : data) x = -2000000000; return data; }\n"


def test_what_a_faster_decoder_could_save_is_not_resolved() -> None:
    """Calls that come back sooner than a null call does: only a replaced runner can do that."""
    nulls = [30_000, 30_100, 30_200, 30_300]
    bare = [n - 8_000 for n in nulls]
    quick = timing.net(timing.LaunchTimes(calls_ns=[26_000] * 9, trusted_null_ns=nulls, bare_null_ns=bare))
    assert quick.median_ns == 8_000
    assert not quick.resolved
    plain = timing.net(timing.LaunchTimes(calls_ns=[60_000] * 9, trusted_null_ns=nulls, bare_null_ns=bare))
    assert plain.resolved
    assert 29_000 < plain.median_ns < 31_000


def test_numbers_that_are_none_are_wrong_whatever_the_check_says(tmp_path: Path) -> None:
    for n, forged in enumerate(("nan", "inf")):
        told = ground.manifest(
            f"def custom_kernel(data):\n    return [float('{forged}')] * len(data)\n",
            files={"reference.py": LAX},
            mode="test",
        )
        report = ground.judged(tmp_path / str(n), told).told
        assert report.verdict == "wrong", report.reason


def test_a_check_that_gives_no_verdict_on_an_answer_rejects_it(tmp_path: Path) -> None:
    told = ground.manifest(
        "def custom_kernel(data):\n    return 0\n",
        files={"reference.py": SLOPPY.replace("output and output == data", "output == data if output else 0")},
        mode="test",
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason  # as 'infrastructure' it would have been tried again


def test_where_the_judge_looks_first_is_in_no_seed() -> None:
    import random

    layout = layouts.Layout(tree=["b", 0, 1 << 20], size=1 << 20)
    random.seed(5)
    first = first_look.places_in(layout)
    random.seed(5)
    assert first_look.places_in(layout) != first


def test_finite_sees_every_kind_of_number() -> None:
    assert output_checks.finite([1, 2.0, {"a": (True, None, "text", b"x")}, 1j])
    for bad in (float("nan"), [0.0, float("inf")], {"a": [1, float("nan")]}, complex(0, float("inf"))):
        assert not output_checks.finite(bad)


def test_another_answer_to_the_same_input_is_flagged_with_its_evidence(tmp_path: Path) -> None:
    source = (
        "SEEN = set()\ndef custom_kernel(data):\n    key = tuple(data)\n    again = key in SEEN\n    SEEN.add(key)\n"
        "    return list(data) if again and data else sorted(data)\n"
    )
    report = ground.judged(tmp_path, ground.manifest(source, mode="test")).told
    assert (report.verdict, report.flags) == ("wrong", [call_checks.NONDETERMINISTIC])
    assert "n: 40; seed: 1: right at first, and then an answer is wrong" in report.host["evidence"][report.flags[0]]


@needs(GXX)
def test_an_answer_that_brings_a_compiled_check_down_is_wrong(tmp_path: Path) -> None:
    """In the judge's process it would have ended the judge, which is tried again, or written into its memory."""
    home = tmp_path / "counted"
    home.mkdir()
    (home / "reference.cu").write_text(COUNTED)
    problem = loading.load(home / "reference.cu")
    words = {"token": "t0ken", "attempt": 1, "nonce": "n0nce", "gpu": "cpu", "secret_seed": ground.SECRET}
    told = manifest_for(problem, mode="test", source=PLACES, **words)  # type: ignore[arg-type]
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason
    assert "signal 11" in report.reason


BOUNDED = """
// TESTS = [{"size": 9, "seed": 1}, {"size": 8, "seed": 2}]
#include <fstream>
#include <stdexcept>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>
using input_t = std::vector<int>;
using output_t = std::vector<int>;
static bool bounded() {
  rlimit found;
  getrlimit(RLIMIT_DATA, &found);
  return found.rlim_cur != RLIM_INFINITY;
}
static int score() {
  int found = 0;
  std::ifstream("/proc/self/oom_score_adj") >> found;
  return found;
}
input_t generate_input(int size, int seed) {
  if (bounded() || score() == 1000) throw std::runtime_error("an input has no such limit");
  return input_t(static_cast<size_t>(size), seed);
}
output_t reference(input_t data) { return data; }
bool check_implementation(output_t output, output_t expected) {
  return bounded() && (geteuid() != 0 || score() == 1000) && output == expected;
}
"""


@needs(GXX)
def test_a_check_in_cpp_allocates_no_more_than_is_left_and_is_ended_before_a_runner_that_has_less(
    tmp_path: Path,
) -> None:
    """An answer with a large number in it made a check of places take all memory there is, and the kernel ended all
    other finalists' runners for it."""
    (tmp_path / "reference.cu").write_text(BOUNDED)
    problem = loading.load(tmp_path / "reference.cu")
    words = {"token": "t0ken", "attempt": 1, "nonce": "n0nce", "gpu": "cpu", "secret_seed": ground.SECRET}
    same = "output_t custom_kernel(input_t data) { return data; }\n"
    told = manifest_for(problem, mode="test", source=same, **words)  # type: ignore[arg-type]
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


def test_where_the_references_number_is_finite_the_answers_must_be() -> None:
    inf, nan = float("inf"), float("nan")
    expected = [1.0, (inf, {"a": -inf}), 2]
    assert output_checks.finite_where([3.0, (nan, {"a": inf}), 5], expected)
    for bad in ([nan, (inf, {"a": -inf}), 2], [1.0, (inf, {"a": -inf}, 1), 2], [1.0, (inf, {}), 2]):
        assert not output_checks.finite_where(bad, expected)


def test_what_a_baselines_compiler_says_is_for_staff(tmp_path: Path) -> None:
    right = "def custom_kernel(data):\n    return sorted(data)\n"
    loud = f"# KBSLURM_CACHE\nprint('a line of the baseline')\n{right}"
    told = ground.manifest(right, mode="benchmark", config={"baseline": loud}, budget=wire.Budget(launches=1, calls=2))
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert "a line of the baseline" not in report.log
    assert "a line of the baseline" in report.secret_log


def test_no_submission_reads_off_a_folders_name_in_which_role_it_is_there() -> None:
    told = ground.manifest("# the same text\n", config={"role": "rival0"})
    names = {builds._key(ground.manifest(told.source, nonce=nonce, config=told.config)) for nonce in ("a", "b")}
    assert len(names) == 2


def test_one_rival_takes_no_other_ones_time_or_memory(tmp_path: Path) -> None:
    right = "def custom_kernel(data):\n    return sorted(data)\n"
    slow = "import time\ndef custom_kernel(data):\n    time.sleep(0.8)\n    return sorted(data)\n"
    told = ground.manifest(
        right,
        limits=ground.limits(ranked_s=8.0, memory_bytes=4 << 30),
        config={"rivals": [right, slow]},
        budget=wire.Budget(launches=1, calls=4),
    )
    assert ranks.limits_of(told).memory_bytes == 1 << 30, "a quarter: the lead, the baseline and two rivals"
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "timeout"]


HOLDS_THREADS = """
import threading
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 3:
        try:
            for _ in range({many}):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
        except RuntimeError:
            pass
    return sorted(data)
"""
STARTS_THREADS = """
import threading


def custom_kernel(data):
    barrier = threading.Barrier(17)
    started = [threading.Thread(target=barrier.wait) for _ in range(16)]
    for one in started:
        one.start()
    barrier.wait()
    for one in started:
        one.join()
    return sorted(data)
"""


@needs(ROOT, PYTHON)
@pytest.mark.parametrize(("many", "holder"), [(28, "passed"), (60, "error")])
def test_a_finalists_threads_are_in_no_other_ones_way(tmp_path: Path, many: int, holder: str) -> None:
    """Where there is no user namespace the kernel counts those of a user, and the judge's is everybody's."""
    told = ground.manifest(
        "def custom_kernel(data):\n    return sorted(data)\n",
        budget=wire.Budget(launches=2, calls=6),
        config={"rivals": [HOLDS_THREADS.format(many=many), STARTS_THREADS]},
        limits=ground.limits(processes=32),
        hidden=[],
    )
    tmp_path.chmod(0o755)
    report = ground.judged_for_an_ordinary_user(tmp_path / "run", told, level=1)
    verdicts = [row["verdict"] for row in report.host["rivals"]]
    assert report.verdict == "passed" and verdicts == [holder, "passed"], report.host["rivals"]


def test_a_finalists_loading_and_first_calls_are_no_ranked_time_of_theirs(tmp_path: Path) -> None:
    """As in an ordinary run, whose launches have a budget of their own for it."""
    right = "def custom_kernel(data):\n    return sorted(data)\n"
    loads = f"import time\ntime.sleep(1.2)\n{right}"
    first = (
        "import time\nseen = []\ndef custom_kernel(data):\n"
        "    if not seen:\n        seen.append(time.sleep(1.2))\n    return sorted(data)\n"
    )
    told = ground.manifest(
        right,
        limits=ground.limits(ranked_s=10.0),
        config={"rivals": [right, loads, first]},
        budget=wire.Budget(launches=3, calls=3),
        hidden=[],
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed"] * 3, "each has 2 s for calls"


def test_time_that_goes_into_clearing_up_after_a_submission_is_its_own(tmp_path: Path) -> None:
    class Nothing:
        means, notes = "none", ()

    found = judge.Judge(ground.manifest("", limits=ground.limits(total_s=100)), Nothing())  # type: ignore[arg-type]
    found._run.allowances.append(launch.Allowance(left_s=40, whole_s=60))
    assert found._out_of_time()[0] == "infrastructure"
    found._run.allowances[0].cleanup_s += 40
    assert found._out_of_time()[0] == "timeout"


def test_a_report_tells_how_near_to_wrong_an_answer_was_and_where_its_spread_is(tmp_path: Path) -> None:
    rough = "def custom_kernel(data):\n    return [2 * x * (1 + 1e-7) for x in data]\n"
    told = ground.manifest(rough, files={"reference.py": LAX}, mode="benchmark")
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert report.host["tolerance"]["times"] == 8, "ten times as far off is too far"
    (spread,) = report.host["spread"]["benchmark"]
    assert spread["within"] >= 0 and spread["between"] >= 0


def test_the_judge_parses_no_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of the right text took it a minute and a half, before each launch and on nobody's account, so that a
    run over its limit was tried again."""
    source = 'f"' + "{1}" * 100 + '"  # torch\nimport torch\n'
    starter = launch.Launch.__new__(launch.Launch)
    starter._built, starter.runner = None, types.SimpleNamespace(work=None)
    monkeypatch.setattr(ast, "parse", lambda *_: pytest.fail("it was parsed"))
    assert starter._handed(ground.manifest(source))["source"] == source
