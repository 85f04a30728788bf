"""The device's caches and clocks while calls are timed. Device and clocks are stand-ins (`tests/standin`); judge, cage
and runner are the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain import conditions
from kbslurm_eval.shared import wire
from tests import standin
from tests.flow import harness_ground as ground
from tests.flow.test_harness_device import HONEST, KERNEL, on_device

L2 = 1 << 20
CALLS = 12
# Slow whenever its table has been pushed out of the device's cache since the last call.
TABLE = (
    KERNEL
    + """
import time

gpu.standin_stamp.restype = ctypes.c_uint64
gpu.standin_cold.argtypes = [ctypes.c_uint64]
stamp = gpu.standin_stamp()


def custom_kernel(data):
    global stamp
    time.sleep(0.02 if gpu.standin_cold(stamp) else 0.0)
    found = kernel(data)
    stamp = gpu.standin_stamp()
    return found
"""
)
# Sets a part of the cache aside for itself, and refuses to load where that is still so.
CARVED = (
    KERNEL
    + """
held = ctypes.c_size_t(9)
assert gpu.cuCtxGetLimit(ctypes.byref(held), 6) == 0
if held.value:
    raise RuntimeError(f"{held.value} bytes were set aside before")
assert gpu.cuCtxSetLimit(6, ctypes.c_size_t(1 << 19)) == 0
custom_kernel = kernel
"""
)


def timed(folder: Path, env: dict[str, str], source: str = HONEST, **changed: Any) -> wire.Report:
    """The report of a benchmark run without tests."""
    told = {"mode": "benchmark", "tests": [], "budget": wire.Budget(launches=1, calls=CALLS, target_s=60), **changed}
    report = ground.judged(folder, on_device(source, **told), env=env).told
    assert report.verdict == "passed", report.reason
    return report


def device(folder: Path, **settings: Any) -> dict[str, str]:
    return standin.device(folder / "toolkit", l2=L2, **settings)


# ------------------------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize("cold", [True, False])
def test_what_a_call_left_in_the_cache_helps_the_next_one_only_where_it_is_warm(tmp_path: Path, cold: bool) -> None:
    config = {"arrays": "device", "cold": cold}
    report = timed(tmp_path, device(tmp_path), TABLE, config=config)
    took_ms = (report.score_s or 0) * 1e3
    assert (took_ms >= 20) == cold
    told = report.host["caches"]
    assert (told["flushed_bytes"], told["why"]) == (
        (2 * L2, "") if cold else (0, "the problem is timed with whatever the call before left in the caches")
    )
    said = conditions.in_words({"host": report.host, "benchmarks": [vars(one) for one in report.benchmarks]})
    assert said[0] == (
        "the device's caches were flushed before each call (2 MiB written)"
        if cold
        else "caches weren't flushed: the problem is timed with whatever the call before left in the caches"
    )


def test_the_flush_comes_between_the_inputs_arrival_and_the_clock(tmp_path: Path) -> None:
    env = device(tmp_path, log=1)
    timed(tmp_path, env, config={"arrays": "device", "cold": True})
    lines = [line.split() for line in (tmp_path / "toolkit" / "device.log").read_text().splitlines()]
    acts = [(name, int(size)) for name, size in lines if int(size) != 4]  # 4 bytes: whether the device is at rest
    size = 4000 * 8 * 2  # two arrays of the case
    calls = [n for n, act in enumerate(acts) if act == ("within", size)]  # a call's input to the runner
    assert len(calls) > CALLS
    for at in calls[-CALLS:]:  # the flush is the last thing before the clock, and the input was there before it
        assert acts[at - 2 : at] == [("unpersist", 0), ("fill", 2 * L2)]
        assert [("to_device", size // 2)] * 3 == acts[at - 5 : at - 2], "and what is written over the last output"


def test_no_launch_finds_a_part_of_the_cache_set_aside(tmp_path: Path) -> None:
    """What is set aside belongs to a context, and every launch, the baseline's too, is a process with its own."""
    config = {"arrays": "device", "cold": True, "baseline": CARVED}
    report = timed(tmp_path, device(tmp_path), CARVED, config=config, budget=wire.Budget(launches=3, calls=5))
    assert report.host["launches"] >= 6


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": 3}, "the submission has the device alone, so nobody else can flush it"),
        ({"l2": 0}, "the driver doesn't say how large the device's L2 cache is"),
    ],
)
def test_a_cache_that_cant_be_flushed_is_told(tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    report = timed(
        tmp_path, standin.device(tmp_path / "toolkit", **settings), config={"arrays": "device", "cold": True}
    )
    assert report.host["caches"] == {"flushed_bytes": 0, "why": why}


def test_a_device_without_room_to_flush_is_the_sites_trouble(tmp_path: Path) -> None:
    env = standin.device(tmp_path / "toolkit", l2=1 << 30)
    told = on_device(HONEST, mode="benchmark", config={"arrays": "device", "cold": True})
    report = ground.judged(tmp_path, told, env=env).told
    assert report.verdict == "infrastructure"
    assert "too little memory free to flush its caches (2048 MiB)" in report.reason


def test_on_a_processor_nothing_is_flushed_and_the_report_says_so(tmp_path: Path) -> None:
    source = "def custom_kernel(data):\n    return sorted(data)\n"
    report = ground.judged(tmp_path, ground.manifest(source, mode="benchmark", config={"cold": True})).told
    assert report.verdict == "passed", report.reason
    assert report.host["caches"]["flushed_bytes"] == 0
    assert report.host["caches"]["why"].startswith("no caches are flushed where no device is used")


# ------------------------------------------------------------------------------------------------------------- clocks


def watched(folder: Path, **settings: int) -> wire.Report:
    env = device(folder)
    standin.clocks(folder / "toolkit", **settings)
    return timed(folder, env, budget=wire.Budget(launches=1, calls=30, target_s=60))


def test_steady_clocks_cost_nothing(tmp_path: Path) -> None:
    report = watched(tmp_path)
    told = report.host["device"]["clocks"]
    assert (told["source"], told["sm_mhz"], told["memory_mhz"]) == ("nvml", [1410] * 3, [1593] * 3)
    assert (told["locked_mhz"], told["most_mhz"]) == ([1410, 1593], 1980)
    assert (told["discarded_calls"], told["kept_batches"]) == (0, 0)
    assert told["reasons"] == {"application clocks": told["readings"]}
    assert told["readings"] == 2 * 4, "both ends of each of four batches"
    assert "UNSTEADY_CLOCKS" not in report.flags


@pytest.mark.parametrize(
    ("settings", "discarded"),
    [
        # the first reading is made before the run, then two for each batch of eight calls
        ({"throttled_from": 5, "throttled_to": 5}, 8),  # at the second one's end
        ({"throttled_from": 5, "throttled_to": 7}, 16),  # and at both of the third one's
        ({"throttled_from": 2, "throttled_to": 2}, 8),
        ({"changed_from": 5, "changed_to": 1300}, 8),  # from then on it holds again
        ({"throttled_from": 5, "throttled_to": 5, "throttled": 4}, 0),  # its own draw of power
        ({"changed_from": 5, "changed_to": 1390}, 0),  # a step of 1.4 %
    ],
)
def test_calls_beside_which_the_clocks_did_not_hold_are_timed_again(
    tmp_path: Path, settings: dict[str, Any], discarded: int
) -> None:
    report = watched(tmp_path, **settings)
    told = report.host["device"]["clocks"]
    assert (told["discarded_calls"], told["kept_batches"]) == (discarded, 0)
    assert [len(one.own.calls_ns) for one in report.samples] == [30], "as many count as ever"
    assert "UNSTEADY_CLOCKS" not in report.flags
    lines = conditions.in_words({"host": report.host, "benchmarks": [vars(one) for one in report.benchmarks]})
    assert any(f"{discarded} calls were timed again" in line for line in lines) == (discarded > 0)


def test_with_a_baseline_both_sides_samples_are_taken_back(tmp_path: Path) -> None:
    env = device(tmp_path)
    standin.clocks(tmp_path / "toolkit", throttled_from=4, throttled_to=5)
    config = {"arrays": "device", "baseline": HONEST}
    report = timed(tmp_path, env, config=config, budget=wire.Budget(launches=2, calls=10, target_s=60))
    assert report.host["device"]["clocks"]["discarded_calls"] > 0
    for one in report.samples:
        assert one.baseline is not None
        assert len(one.own.calls_ns) == len(one.baseline.calls_ns) == 10


def test_clocks_that_never_hold_use_up_the_budget_and_are_flagged(tmp_path: Path) -> None:
    report = watched(tmp_path, throttled_from=1, throttled_to=1 << 20)
    told = report.host["device"]["clocks"]
    assert told["discarded_batches"] == 2, "half of the four"
    assert told["kept_batches"] == 4
    assert "UNSTEADY_CLOCKS" in report.flags
    assert "thermal slowdown" in report.host["evidence"]["UNSTEADY_CLOCKS"]
    assert [len(one.own.calls_ns) for one in report.samples] == [30]


def test_without_the_library_nothing_is_discarded_and_the_report_says_so(tmp_path: Path) -> None:
    report = timed(tmp_path, device(tmp_path))
    told = report.host["device"]["clocks"]
    assert told == {
        "source": "", "why": "this machine has no libnvidia-ml.so.1, the management library of NVIDIA's driver",
    }  # fmt: skip
    assert [len(one.own.calls_ns) for one in report.samples] == [CALLS]


def test_a_device_that_refuses_to_tell_is_no_error(tmp_path: Path) -> None:
    report = watched(tmp_path, error=3)
    why = report.host["device"]["clocks"]["why"]
    assert why == "libnvidia-ml.so.1 refused nvmlDeviceGetCurrentClocksThrottleReasons with error 3"
