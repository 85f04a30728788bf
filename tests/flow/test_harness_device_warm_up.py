"""`kb_warm_up` where a call's arrays lie on a device: what a runner may do there before the clock runs."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.flow.test_harness_device import AFTER_DONE, IN_C, KERNEL, ONE_BY_ONE, gpu, on_device

__all__ = ["gpu"]

# Changes all that it is given, and says in the log what it saw.
WARMED = (
    KERNEL
    + """
calls = warmed = 0


def kb_warm_up(data):
    global warmed
    x, y, k = data
    warmed += x.ptr != y.ptr and x.shape == y.shape and k == 3
    view(x)[:] = view(y)[:] = [7.0] * x.shape[0]
    x.ptr = y.ptr = 0


def custom_kernel(data):
    global calls
    calls += 1
    print(calls, warmed)
    return kernel(data)
"""
)
COMPILED = (
    IN_C.replace("KB_ENTRY", "#include <cstdio>\nstatic int calls = 0, warmed = 0;\nKB_ENTRY").replace(
        "  if (inputs", '  std::printf("%d %d\\n", ++calls, warmed);\n  std::fflush(stdout);\n  if (inputs'
    )
    + """
KB_ENTRY int kb_warm_up(const kb_array *in, int inputs, kb_array *out, int outputs) {
  ++warmed;
  for (long long i = 0; i < in[0].size; ++i) ((double *)in[0].data)[i] = ((double *)out[0].data)[i] = 7;
  return 0;
}
"""
)


def _timed(folder: Path, env: dict[str, str], source: str, **more: Any) -> wire.Report:
    cold = more.pop("cold", False)
    told: dict[str, Any] = {"mode": "benchmark", "tests": [], "benchmarks": [{"n": 50, "seed": 7}], **more}
    told |= {"budget": wire.Budget(launches=1, calls=5), "config": {"arrays": "device", "cold": cold}}
    return ground.judged(folder, on_device(source, **told), env=env).told


def _counts(report: wire.Report) -> tuple[int, int]:
    """How many calls there were, and how often it was called before them."""
    said = [line for line in report.log.splitlines() if re.fullmatch(r"\d+ \d+", line)]
    calls, warmed = map(int, said[-1].split())
    return calls, warmed


# A wait for the whole device that takes so long makes the reference slow, and slow calls are made one by one.
def _settings(*, cold: bool) -> dict[str, int]:
    return {"copies_wait": 1, "sync_ns": 50_000_000 if cold else 0}


@ONE_BY_ONE
@pytest.mark.parametrize("lang", ["py", "cu"])
def test_it_is_called_with_the_device_s_arrays_and_changes_none_of_them(
    tmp_path: Path, gpu: Any, cold: bool, lang: str
) -> None:
    """Whoever replaces the runner's `_Ahead` has that moment: 2 ms of device work before each call were free."""
    source, more = (WARMED, {}) if lang == "py" else (COMPILED, {"lang": "cu", "entry": "submission.cu"})
    report = _timed(tmp_path, gpu(**_settings(cold=cold)), source, cold=cold, **more)
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    calls, warmed = _counts(report)
    assert calls >= 7 and warmed >= calls - 2, report.log[-300:]


def test_it_is_called_where_arrays_are_copied_too(tmp_path: Path, gpu: Any) -> None:
    """A runner that is awake before the clock runs has the moment there, too."""
    report = _timed(tmp_path, gpu(export=0), WARMED.replace("x.ptr != y.ptr", "x.ptr"))
    assert report.verdict == "passed", report.reason
    assert "HOST_COPIES" in report.flags
    calls, warmed = _counts(report)
    assert calls >= 7 and warmed >= calls - 2, report.log[-300:]


@pytest.mark.parametrize("settings", [{}, {"export": 0}], ids=["lent", "copied"])
def test_what_goes_wrong_in_it_is_the_call_s(tmp_path: Path, gpu: Any, settings: dict[str, int]) -> None:
    source = WARMED.replace("    global warmed\n", "    raise ValueError('too cold')\n")
    report = _timed(tmp_path, gpu(**settings), source)
    assert report.verdict == "error"
    assert "kb_warm_up: ValueError: too cold" in report.reason


LEAVES = KERNEL + "\ndef kb_warm_up(data):\n    gpu.standin_busy(200_000_000)\n\n\ncustom_kernel = kernel\n"
# The same by a runner that doesn't wait for its device, neither here nor at the end of a call.
HURRIES = (
    AFTER_DONE.replace("AFTER", "0")
    + """
device_arrays.Side.finish = lambda side: None


def kb_warm_up(data):
    gpu.standin_busy(200_000_000)
"""
)
# A stream that waits for the judge to write into the output, with work that is done as soon as it has.
WAITS = (
    HURRIES.partition("def kb_warm_up")[0]
    + """
gpu.standin_wait.argtypes = [ctypes.c_uint64, ctypes.c_uint64]


def kb_warm_up(data):
    assert gpu.standin_wait(place(), 200_000_000) == 0
"""
)


@ONE_BY_ONE
@pytest.mark.parametrize("source", [LEAVES, HURRIES, WAITS], ids=["left", "not waited for", "begun by the judge"])
def test_work_that_it_leaves_on_the_device_counts(tmp_path: Path, gpu: Any, cold: bool, source: str) -> None:
    report = _timed(tmp_path, gpu(**_settings(cold=cold)), source, cold=cold)
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    # what passes of it while the judge itself waits for a core is seen by nobody
    assert statistics.median(report.samples[0].own.calls_ns) >= 100_000_000


def test_what_counts_of_it_is_no_dispute_about_the_call(tmp_path: Path, gpu: Any) -> None:
    """The runner's claim is of the call alone."""
    report = _timed(tmp_path, gpu(), LEAVES)
    assert report.verdict == "passed", report.reason
    assert "TIMING_DISPUTED" not in report.flags, report.host["device"]["times"]
