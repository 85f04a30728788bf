"""From a report to a verdict, to the folder's word and to popcorn's; and where a run's time went."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from kbslurm.domain.verdict import FOLDERS, POPCORN, of_report
from kbslurm.domain.waterfall import Stamps, moment, waterfall
from kbslurm_eval.shared.wire import PHASES, WIRE_VERSION, Isolation, PhaseResult, Report, VerdictName

START = datetime(2026, 5, 1, tzinfo=UTC)


def report(**changes: Any) -> Report:
    told: dict[str, Any] = {
        "version": WIRE_VERSION,
        "token": "kb-x",
        "attempt": 1,
        "nonce": "n",
        "mode": "leaderboard",
        "problem_digest": "d",
        "harness_digest": "h",
        "verdict": "passed",
        "reason": "",
        "score_s": 0.5,
        "interval_s": [0.4, 0.6],
        "tests": [],
        "benchmarks": [],
        "phases": [PhaseResult(name=n, passed=True, started_at_ns=1, ended_at_ns=2) for n in PHASES["leaderboard"]],
        "isolation": Isolation(level=2, means="namespaces"),
        "started_at_ns": 1,
        "ended_at_ns": 2,
    }
    return Report(**{**told, **changes})


@pytest.mark.parametrize(
    ("changes", "ranked"),
    [
        ({}, True),
        ({"mode": "benchmark"}, False),
        ({"verdict": "wrong", "score_s": None, "interval_s": None}, False),
        ({"score_s": None, "interval_s": None}, False),
        ({"isolation": Isolation(level=1, means="limits")}, False),
    ],
)
def test_only_a_passed_leaderboard_run_that_was_isolated_enough_ranks(changes: dict[str, Any], ranked: bool) -> None:
    given = report(**changes)
    verdict = of_report(given, dataclasses.asdict(given), min_isolation=2)
    assert verdict.ranked is ranked
    assert (verdict.name, verdict.score_s, verdict.isolation) == (given.verdict, given.score_s, given.isolation.level)
    assert (verdict.low_s, verdict.high_s) == tuple(given.interval_s or (None, None))


@pytest.mark.parametrize(
    ("gpu", "device", "ranked"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100-SXM", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H200", False),
        ("a100-40gb", "NVIDIA A100-SXM4-40GB", True),
        ("a100-40gb", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("h100_1g.10gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", True),
        ("A10", "NVIDIA A10G", True),
        ("L40", "NVIDIA L40S", False),
        ("B200", "NVIDIA B300 SXM6 AC", False),
        ("MI300X", "AMD Instinct MI300X", True),
        ("MI300", "AMD Instinct MI300X", True),
        ("MI300", "AMD Instinct MI325X", False),
        ("MI300A", "AMD Instinct MI300X", False),
        ("big", "NVIDIA H200", True),
        ("H100", "a device of the lab's own", True),
        ("H100", "", True),
    ],
)
def test_what_ran_on_another_device_than_its_board_ranks_doesnt_rank(gpu: str, device: str, ranked: bool) -> None:
    given = report(host={"device": {"name": device}} if device else {})
    verdict = of_report(given, dataclasses.asdict(given), min_isolation=0, gpu=gpu)
    assert (verdict.name, verdict.ranked) == ("passed", ranked)
    assert verdict.reason == (
        "" if ranked else f"passed, but the place gave it a {device} instead of the {gpu} that this board ranks"
    )


def test_every_verdict_has_its_word_in_each_vocabulary() -> None:
    names = set(get_args(VerdictName))
    assert set(POPCORN) == names
    assert set(FOLDERS) == names - {"infrastructure"}
    assert len(set(FOLDERS.values())) == len(FOLDERS)


def test_a_waterfall_adds_up_and_says_when_a_clock_is_off() -> None:
    def at(s: float) -> datetime:
        return START + timedelta(seconds=s)

    whole = waterfall(
        Stamps(
            accepted_at=START,
            claimed_at=at(1),
            submitted_at=at(3),
            harness_started_at=at(2),
            harness_ended_at=at(10),
            scored_at=at(11),
        )
    )
    assert [(s.name, s.took_s, s.skewed) for s in whole] == [
        ("queue", 1, False),
        ("launch", 2, False),
        ("start", 0, True),
        ("run", 7, False),
        ("score", 1, False),
    ]
    assert sum(s.took_s for s in whole) == 11
    assert waterfall(Stamps(accepted_at=START)) == []
    assert moment(None) is None
    assert moment(int(START.timestamp() * 1e9)) == START
