"""A check that fails on an output: whether the output is to blame or the problem, which is asked by the reference's own
answer to the same input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared import wire

EVAL = Path(__file__).parents[2] / "eval"
PROBLEM = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).permutation(n)


def ref_kernel(data):
    inverse = np.empty_like(data)
    inverse[data] = np.arange(len(data))
    return inverse


def check_implementation(data, output):
    {check}
"""
TAKES_MUCH = """counts = np.bincount(output, minlength=len(data))
    held = np.zeros((2, len(data)))
    return bool((counts == 1).all() and (data[output] == np.arange(len(data))).all()), ''"""
WRITES = """first = data[output[:2]]
    data[:] = len(data)
    np.zeros(len(data))[output]
    return True, ''"""
KEEPS_IT = """try:
        counts = np.bincount(output, minlength=len(data))
        return data[output].sum() >= 0, ''
    except IndexError as error:
        raise ValueError(f"it isn't a permutation: {error}") from error"""
NEEDS_MUCH = """np.ones(len(data) + (3 << 27))
    return True, ''"""
FAILS = "raise IndexError('always')"
LARGE = """was = data.copy()
    data[:] = len(data)
    return bool((was[output[:-1].astype(int)] == np.arange(len(data) - 1)).all()), ''"""

# Each in a process of its own: how much a check may allocate is a limit of the process.
SCRIPT = """
import json, sys
sys.path.insert(0, {eval!r})
import numpy as np
from kbslurm_eval.judge import check_memory, reference
from kbslurm_eval.judge.reference import Case, ProblemTrouble, Reference
from kbslurm_eval.shared import wire

check_memory.left = lambda: check_memory.LEAST + check_memory.KEPT
check_memory.LOOK_EVERY_S = 60.0
reference.LOOKED_AT_AGAIN = 0.0
judge = Reference(wire.Manifest(**json.loads({told!r})))
judge.prepare(Case(index=0, params={{"n": {n}, "seed": 1}}), 2)
prepared = judge.prepare(Case(index=0, params={{"n": {n}, "seed": 1}}), 1)
output = judge.answer(prepared).astype({dtype!r})
{spoilt}
try:
    print(*judge.check(prepared, output, last={last}))
except ProblemTrouble as trouble:
    print("trouble", trouble)
"""


def checked(check: str, spoilt: str, *, n: int = 1000, last: bool = True, dtype: str = "i8") -> str:
    told: dict[str, Any] = {
        "version": wire.WIRE_VERSION,
        "token": "t",
        "attempt": 1,
        "nonce": "n",
        "mode": "test",
        "problem": "p",
        "problem_digest": "d",
        "lang": "py",
        "gpu": "cpu",
        "files": {"reference.py": PROBLEM.format(check=check)},
        "runner_files": [],
        "source": "",
        "tests": [],
        "benchmarks": [],
        "hidden": [],
        "secret_seed": "s",
        "ranking_by": "geom",
    }
    script = SCRIPT.format(eval=str(EVAL), told=json.dumps(told), n=n, spoilt=spoilt, last=last, dtype=dtype)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("check", [TAKES_MUCH, KEEPS_IT])
@pytest.mark.parametrize("last", [True, False])
def test_what_a_failed_check_has_allocated_is_free_when_the_problem_is_asked(check: str, last: bool) -> None:
    """The answer has a number that makes the check take nearly all that it may, and fail then."""
    n = 8_000_000
    taken = f"output[0] = {((512 << 20) - (40 << 20)) // 8}"  # numbers, of which the limit holds little more
    found = checked(check, taken, n=n, last=last)
    assert found.startswith("False the check failed on this output: "), found


def test_what_a_failed_check_has_written_to_its_input_is_not_there_when_the_problem_is_asked() -> None:
    assert checked(WRITES, "output[7] = 5000").startswith("False the check failed on this output: IndexError")


def test_nor_when_an_answer_is_compared_with_the_references() -> None:
    found = checked(LARGE, "output[-1] = 1e30", dtype="f8")
    assert found == "False a number is larger by far than any of the reference's"


@pytest.mark.parametrize("last", [True, False])
def test_a_check_that_fails_on_the_references_answer_too_is_the_problems_fault(last: bool) -> None:
    said = "trouble check_implementation failed on the reference's own answer: IndexError: always"
    assert checked(FAILS, "", last=last).startswith(said)


def test_so_is_one_that_needs_more_memory_than_there_is_for_any_answer() -> None:
    assert checked(NEEDS_MUCH, "").startswith("trouble check_implementation failed on the reference's own answer: ")
