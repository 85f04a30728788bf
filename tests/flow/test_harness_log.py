"""A report's log says which case wrote what; of hidden cases and ranked calls nothing is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm_eval.shared.wire import Report
from tests.flow import harness_ground as ground

SPEAKS = """import os, sys
print("loaded")


def custom_kernel(data):
    os.write(2, f"called with {len(data)}\\n".encode())
    %s
    return sorted(data)
"""


def parts(report: Report) -> dict[tuple[str, int | None], str]:
    found: dict[tuple[str, int | None], str] = {}
    at = 0
    for one in report.log_parts:
        key = one.phase, one.index
        found[key] = found.get(key, "") + report.log[at : at + one.size]
        at += one.size
    assert at == len(report.log)
    return found


def test_each_case_has_what_it_wrote(tmp_path: Path) -> None:
    told = ground.manifest(SPEAKS % "", benchmarks=[{"n": 300, "seed": 7}, {"n": 301, "seed": 8}])
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    found = parts(report)
    assert set(found) == {
        ("test", None), ("test", 0), ("test", 1), ("benchmark", None), ("benchmark", 0), ("benchmark", 1)
    }  # fmt: skip
    assert set(found["test", None].split("\n")) <= {"loaded", ""}
    assert set(found["test", 0].splitlines()) == {"called with 40"}
    assert set(found["test", 1].splitlines()) == {"called with 0"}
    assert set(found["benchmark", 0].splitlines()) == {"called with 300"}
    assert set(found["benchmark", 1].splitlines()) == {"called with 301"}
    assert "91" not in report.log and "called with 91" in report.secret_log
    assert {one.phase for one in report.log_parts} == {"test", "benchmark"}


@pytest.mark.parametrize("ending", ["os.abort()", "while True: pass"])
def test_a_case_that_ends_its_process_has_its_last_words(tmp_path: Path, ending: str) -> None:
    source = SPEAKS % f'if len(data) == 0:\n        print("last words")\n        {ending}'
    told = ground.manifest(source, mode="test", limits=ground.limits(test_s=3.0))
    report = ground.judged(tmp_path, told).told
    assert report.verdict in ("error", "timeout")
    assert "last words" in parts(report)["test", 1]
    assert "last words" not in parts(report)["test", 0]
