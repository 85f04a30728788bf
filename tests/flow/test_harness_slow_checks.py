"""Checks that an answer makes slow: whoever gave it is to blame, and in a final nobody else has to wait for it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems.loading import load
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, needs

# Where to go next in an order, as a linked list: a ring has no end.
LINKED = """
import random


def generate_input(n, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return order


def ref_kernel(data):
    following = [-1] * len(data)
    for one, other in zip(data, data[1:]):
        following[one] = other
    return following


def check_implementation(data, output):
    at, seen = data[0], 0
    while at != -1:
        at, seen = output[at], seen + 1
        {meanwhile}
    return seen == len(data), f"{{seen}} of {{len(data)}} places"
"""
RIGHT = """
def custom_kernel(data):
    following = [-1] * len(data)
    for one, other in zip(data, data[1:]):
        following[one] = other
    return following
"""
CLOSES_THE_RING = """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    following = [-1] * len(data)
    for one, other in zip(data, data[1:]):
        following[one] = other
    if calls == 9:
        following[data[-1]] = data[0]
    return following
"""
GOES_ROUND = CLOSES_THE_RING.replace("calls == 9", "calls > 8").replace("= data[0]", "= -2")


def manifest(source: str, meanwhile: str = "pass", **changed: Any) -> wire.Manifest:
    told: dict[str, Any] = {
        "files": {"reference.py": LINKED.format(meanwhile=meanwhile)},
        "tests": [{"n": 40, "seed": 1}],
        "benchmarks": [{"n": 500, "seed": 2}],
        "hidden": [],
        "budget": wire.Budget(launches=2, calls=20),
    }
    return ground.manifest(source, **{**told, **changed})


def test_an_answer_that_a_check_follows_for_ever_is_too_slow(tmp_path: Path) -> None:
    """It held its node until the time limit of the whole run."""
    began = time.monotonic()
    report = ground.judged(tmp_path, manifest(CLOSES_THE_RING, mode="benchmark")).told
    assert report.verdict == "timeout", report.reason
    assert "checking an answer took longer than 10 s; the reference's own takes" in report.reason
    assert time.monotonic() - began < 60, "200 s are allowed"


@pytest.mark.parametrize("config", [{"baseline": RIGHT}, {}], ids=["with a baseline", "without one"])
def test_a_finalists_answer_that_a_check_follows_for_ever_ends_nothing_for_the_others(
    tmp_path: Path, config: dict[str, str]
) -> None:
    rivals = [RIGHT, CLOSES_THE_RING, f"{RIGHT}# another\n"]
    report = ground.judged(tmp_path, manifest(RIGHT, mode="leaderboard", config={**config, "rivals": rivals})).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "timeout", "passed"], report.host["rivals"]
    assert (
        len({(row.launch, row.rival) for row in report.samples if row.phase == "ranked" and row.rival in (1, 3)}) == 4
    )


def test_what_a_finalist_makes_checks_take_is_its_own_time(tmp_path: Path) -> None:
    """Each of them by less than would end it."""
    slow = "if at == -2:\n            __import__('time').sleep(2.5)\n            break"
    told = manifest(
        RIGHT, slow, mode="leaderboard",
        config={"baseline": RIGHT, "rivals": [RIGHT, GOES_ROUND, f"{RIGHT}# another\n"]},
        limits=ground.limits(ranked_s=25.0), budget=wire.Budget(launches=2, calls=20),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    rows = report.host["rivals"]
    assert [row["verdict"] for row in rows] == ["passed", "timeout", "passed"], rows
    assert "checking its answers took" in rows[1]["reason"]


TURNS = """#include "reference.cu"
output_t custom_kernel(input_t d) { static int calls = 0; if (++calls == 9) d[0] = 99; return d; }
"""


SPOILT = r"""
// TESTS = [{"size": 9, "seed": 1}]
// BENCHMARKS = [{"size": 400, "seed": 3}]
#include <cstdlib>
#include <stdexcept>
#include <vector>
using input_t = std::vector<int>;
using output_t = std::vector<int>;
static bool spoilt = false;  // as its heap is, where an answer's indices led it
input_t generate_input(int size, int seed) {
  if (spoilt) abort();
  return input_t(size, seed % 7);
}
output_t reference(input_t data) {
  if (spoilt) abort();
  return data;
}
bool check_implementation(output_t output, output_t expected) {
  if (spoilt) abort();
  if (output == expected) return true;
  spoilt = true;
  HOW
}
"""


@needs(GXX)
@pytest.mark.parametrize("how", ["return false;", 'throw std::runtime_error("no permutation");'])
def test_a_process_whose_check_refused_an_answer_is_asked_nothing_else(tmp_path: Path, how: str) -> None:
    (tmp_path / "reference.cu").write_text(SPOILT.replace("HOW", how))
    problem = load(tmp_path / "reference.cu", name="spoilt")
    honest = TURNS.replace("== 9", "== -1")
    told = manifest_for(
        problem, token="t", attempt=1, nonce="n", mode="leaderboard", gpu="cpu", secret_seed=ground.SECRET,
        source=honest,
    )  # fmt: skip
    config = {**told.config, "rivals": [honest, TURNS, f"{honest}// another\n"]}
    report = ground.judged(tmp_path / "run", replace(told, config=config)).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "wrong", "passed"], report.host["rivals"]


COMPILED = r"""
// TESTS = [{"size": 9, "seed": 1}]
// BENCHMARKS = [{"size": 400, "seed": 3}]
#include <vector>
using input_t = std::vector<int>;
using output_t = std::vector<int>;
input_t generate_input(int size, int seed) { return input_t(size, seed % 7); }
output_t reference(input_t data) { return data; }
bool check_implementation(output_t output, output_t expected) {
  for (volatile int turns = 0; output[0] == 99;) turns = 1;
  return output == expected;
}
"""


@needs(GXX)
def test_a_check_in_cpp_that_an_answer_keeps_busy_has_its_end_too(tmp_path: Path) -> None:
    (tmp_path / "reference.cu").write_text(COMPILED)
    problem = load(tmp_path / "reference.cu", name="turns")
    honest = TURNS.replace("== 9", "== -1")
    told = manifest_for(
        problem, token="t", attempt=1, nonce="n", mode="leaderboard", gpu="cpu", secret_seed=ground.SECRET,
        source=honest,
    )  # fmt: skip
    config = {**told.config, "rivals": [honest, TURNS, f"{honest}// another\n"]}
    report = ground.judged(tmp_path / "run", replace(told, config=config)).told
    assert report.verdict == "passed", report.reason
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "timeout", "passed"], report.host["rivals"]
