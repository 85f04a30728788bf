"""Failed tests for people: what failed alike is one line; and a trace stands in a log once."""

from __future__ import annotations

from typing import Any

from kbslurm.domain import failed_tests
from kbslurm_eval.judge import run_log


def row(index: int, message: str, status: str = "error", phase: str = "test") -> dict[str, Any]:
    return {"phase": phase, "index": index, "spec": f"n: {index}", "status": status, "message": message}


def test_what_failed_alike_is_one_line_with_the_tests_numbers() -> None:
    rows = [row(n, "boom") for n in (0, 1, 2, 5)] + [row(3, "other", "fail"), row(4, "fine", "pass")]
    assert failed_tests.in_words(rows, 3) == ["tests 1-3, 6, first (n: 0): boom", "test 4 (n: 3): other"]
    assert failed_tests.in_words(rows, 1) == ["tests 1-3, 6, first (n: 0): boom"]
    hidden = {**row(0, "an answer is wrong", "fail", "hidden"), "spec": "hidden cases"}
    assert failed_tests.in_words([hidden], 3) == ["hidden 1 (hidden cases): an answer is wrong"]


def test_a_table_has_each_message_once() -> None:
    rows = [row(0, "boom"), row(1, "boom"), row(2, ""), row(3, "other"), row(1, "boom", phase="benchmark")]
    assert failed_tests.once(rows) == ["boom", "as in test 1", "", "other", "boom"]


TRACE = """Traceback (most recent call last):
  File "/tmp/job/submission.py", line 3, in custom_kernel
    raise ValueError("boom")
ValueError: boom
"""


def test_a_trace_that_stood_before_is_one_line() -> None:
    assert run_log.without_repeats(f"a\n{TRACE}b\n") == f"a\n{TRACE}b\n"
    said = run_log.without_repeats(f"{TRACE}{TRACE}{TRACE}b\n{TRACE}")
    assert said == f"{TRACE}b\nValueError: boom  [the trace is above]\n"
    assert run_log.without_repeats(TRACE, TRACE) == "ValueError: boom  [the trace is above]\n"
    other = TRACE.replace("boom", "bang")
    assert run_log.without_repeats(other, TRACE) == other
    assert run_log.without_repeats(f"{run_log.HEAD}\n" * 3) == f"{run_log.HEAD}\n", "one that was cut short"
    assert run_log.without_repeats("") == ""
