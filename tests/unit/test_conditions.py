"""What people are told of how a run was timed."""

from __future__ import annotations

from typing import Any

import pytest

from kbslurm.domain.conditions import in_words

CLOCKS = {
    "source": "nvml", "why": "", "sm_mhz": [1410, 1410, 1410], "memory_mhz": [1593] * 3, "locked_mhz": [1410, 1593],
    "discarded_calls": 0, "kept_batches": 0,
}  # fmt: skip


def told(benchmarks: bool = True, **host: Any) -> list[str]:
    return in_words({"host": host, "benchmarks": [{"median_ns": 5.0}] if benchmarks else []})


def test_caches_and_clocks_are_told_of_a_device_only() -> None:
    caches = {"flushed_bytes": 100 << 20, "why": ""}
    assert told(caches=caches, device={"clocks": CLOCKS}) == [
        "the device's caches were flushed before each call (100 MiB written)",
        "clock 1410 MHz, set to 1410 MHz",
    ]
    assert told(caches={"flushed_bytes": 0, "why": "no caches are flushed there"}) == []
    assert told(benchmarks=False, caches=caches, device={"clocks": CLOCKS}) == []


def test_clocks_that_did_not_hold_are_told() -> None:
    moved = {**CLOCKS, "sm_mhz": [1300, 1400, 1410], "locked_mhz": None, "discarded_calls": 24, "kept_batches": 1}
    again = "24 calls were timed again because it changed or was throttled"
    kept = "some of what counts was timed while it changed or was throttled"
    assert told(device={"clocks": moved}) == [f"clock 1300 to 1410 MHz; {again}; {kept}"]
    assert told(device={"clocks": {"source": "", "why": "no library"}}) == ["clocks weren't watched: no library"]


def test_a_devices_times_are_told_without_and_with_the_way_there() -> None:
    short = {
        "phase": "ranked",
        "index": 0,
        "claimed_ns": 5_000.0,
        "judge_ns": 12_300.0,
        "raw_ns": 266_000,
        "trip_ns": 7,
    }
    before = {**short, "phase": "benchmark", "claimed_ns": 9e9}
    (line,) = told(device={"times": [before, short]})
    assert line == (
        "device 5.00 µs as the runner claims, 12.3 µs by the judge's clock less the way there; with launch, wait and "
        "copies 266 µs"
    )
    long = {**short, "index": 1, "claimed_ns": 1.4e6, "judge_ns": 1.5e6, "raw_ns": 2e6}
    (line,) = told(device={"times": [short, long]})
    assert line.startswith("device 5.00 µs to 1.40 ms as the runner claims, 12.3 µs to 1.50 ms by")
    assert told(device={"times": [{**short, "phase": "hidden"}]}) == []
    for wrong in (
        7,
        [7],
        [{**short, "raw_ns": None}],
        [{**short, "raw_ns": "x"}, short],
        [{**short, "raw_ns": 10**400}],
        [],
    ):
        assert told(device={"times": wrong}) == []


def test_a_precision_is_told_with_what_it_took() -> None:
    asked = {"asked": 0.01, "reached": 0.0094, "launches": 9, "why": ""}
    assert told(precision=asked) == ["±0.94 % after 9 launches (±1 % was asked for)"]
    late = {**asked, "reached": 0.02, "why": "the time limits allow no more launches"}
    assert told(precision=late)[0].endswith("asked for): the time limits allow no more launches")


@pytest.mark.parametrize("detail", [None, {}, {"host": 3}, {"host": {"device": {"clocks": {"source": "x", "sm_mhz": 7}},
    "precision": {"asked": "much"}, "caches": []}, "benchmarks": [{"median_ns": 1}]}])  # fmt: skip
def test_what_is_malformed_is_left_out(detail: Any) -> None:
    assert in_words(detail) == []
