"""Figures follow from samples: the service counts again what the harness says; what can't be timed can't rank."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
import statistics
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from kbslurm.domain.problem import Problem
from kbslurm.domain.verdict import of_report, too_short
from kbslurm.flow import recount
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import Budget, Report, WireError, commitment, read_report
from kbslurm_eval.shared.wire import dumps as text_of
from tests.timed import a_launch, timed
from tests.unit.test_verdict import report

SOURCE, SEED = "x = 1\n", "5eed"
PAIRED = Problem(
    name="p",
    files={"reference.py": ""},
    tests=({"seed": 1},),
    benchmarks=({"n": 1}, {"n": 2}),
    ranking_by="geom",
    budget=Budget(launches=5, calls=6),
    config={"baseline": "b = 1\n"},
)
PLAIN = dataclasses.replace(PAIRED, config={})


def an_honest(problem: Problem, **chosen: Any) -> Report:
    base = {"baseline_s": 0.25} if problem.baseline else {}
    told = timed("leaderboard", 2, launches=5, calls=6, **{**base, **chosen})
    return report(
        **told, submission_sha256=hashlib.sha256(SOURCE.encode()).hexdigest(), seed_commitment=commitment(SEED)
    )


@pytest.mark.parametrize("problem", [PAIRED, PLAIN])
def test_an_honest_report_is_counted_again_and_comes_out_the_same(problem: Problem) -> None:
    given = an_honest(problem)
    assert read_report(text_of(given)) == given
    recount.check(given, problem, source=SOURCE, secret_seed=SEED)
    raw, digest = recount.archived(given)
    text = zlib.decompress(raw)
    assert hashlib.sha256(text).hexdigest() == digest
    assert len(json.loads(text)) == len(given.samples) == 2 * (2 + 5)


def test_samples_without_a_leeway_keep_the_digest_that_they_had() -> None:
    given = an_honest(PLAIN)
    before = zlib.decompress(recount.archived(given)[0])
    assert b"leeway_ns" not in before
    given.samples[0].own.leeway_ns.append(1_700)
    told = json.loads(zlib.decompress(recount.archived(given)[0]))
    assert told[0]["own"].pop("leeway_ns") == [1_700]
    assert told == json.loads(before)


def test_samples_without_calls_alone_keep_the_digest_that_they_had() -> None:
    given = an_honest(PLAIN)
    before = zlib.decompress(recount.archived(given)[0])
    assert b"alone_ns" not in before
    given.samples[0].alone_ns.append(1_700)
    told = json.loads(zlib.decompress(recount.archived(given)[0]))
    assert told[0].pop("alone_ns") == [1_700]
    assert told == json.loads(before)


def test_an_interval_that_leaves_the_leeway_out_is_refused() -> None:
    given = an_honest(PLAIN)
    for one in given.samples:
        one.own.leeway_ns[:] = [100_000_000] * 8
    with pytest.raises(WireError, match="low_ns"):
        recount.check(given, PLAIN, source=SOURCE, secret_seed=SEED)


def _result(given: Report, **changes: Any) -> Report:
    rows = list(given.benchmarks)
    rows[-1] = dataclasses.replace(rows[-1], **changes)
    return dataclasses.replace(given, benchmarks=rows)


def _without_last_launch(given: Report) -> Report:
    left = [s for s in given.samples if s.launch != 4]
    rows = [dataclasses.replace(b, **timing.figures(timing.nets(left, b.phase, b.index))) for b in given.benchmarks]
    return dataclasses.replace(given, samples=left, benchmarks=rows)


LIES: dict[str, Callable[[Report], Report]] = {
    "another submission": lambda r: dataclasses.replace(r, submission_sha256="0"),
    "another secret seed": lambda r: dataclasses.replace(r, seed_commitment="0"),
    "says median_ns": lambda r: _result(r, median_ns=1.0),
    "says launch_medians_ns": lambda r: _result(r, launch_medians_ns=[1.0] * 5),
    "says flags": lambda r: _result(r, flags=["UNRESOLVED"]),
    "says p95_ns": lambda r: _result(r, p95_ns=None),
    "reports a score": lambda r: dataclasses.replace(r, score_s=r.interval_s[0]),  # type: ignore[index]
    "has no samples": lambda r: dataclasses.replace(r, samples=r.samples[:-5]),
    "appears twice": lambda r: dataclasses.replace(r, samples=[*r.samples, r.samples[-1]]),
    "not in 5": _without_last_launch,
    "benchmarks, each once": lambda r: dataclasses.replace(r, benchmarks=r.benchmarks[:-1]),
    "has an invalid duration": lambda r: dataclasses.replace(
        r, samples=[*r.samples, a_launch("ranked", 0, 9, -5000.0, calls=6)]
    ),
    "must have a score": lambda r: dataclasses.replace(r, score_s=None, interval_s=None),
}


@pytest.mark.parametrize("said", LIES)
def test_a_report_that_disagrees_with_its_samples_is_refused(said: str) -> None:
    with pytest.raises(WireError, match=said):
        recount.check(LIES[said](an_honest(PLAIN)), PLAIN, source=SOURCE, secret_seed=SEED)


def test_a_report_that_measured_less_or_otherwise_than_declared_is_refused() -> None:
    for given, problem, said in (
        (an_honest(PLAIN), PAIRED, "whether there is a baseline"),
        (an_honest(PAIRED), PLAIN, "whether there is a baseline"),
        (an_honest(PLAIN), dataclasses.replace(PLAIN, budget=Budget(launches=5, calls=5)), "the budget"),
    ):
        with pytest.raises(WireError, match=said):
            recount.check(given, problem, source=SOURCE, secret_seed=SEED)


def test_what_cannot_be_timed_does_not_rank_and_says_so() -> None:
    noisy = [
        timing.LaunchTimes(calls_ns=[7_000] * 6, trusted_null_ns=[1_000, 2_000, 3_000, 4_000] * 2) for _ in range(5)
    ]
    found = [timing.net(times) for times in noisy]
    assert all(n.resolved for n in found) and not timing.is_resolved(found)
    assert timing.figures(found)["flags"] == [timing.UNRESOLVED]
    calm = timing.net(timing.LaunchTimes(calls_ns=[7_000] * 6, trusted_null_ns=[1_000] * 8))
    assert timing.is_resolved([calm, *found[1:]]), "a busy neighbour doesn't make a kernel short"
    floored = timing.net(timing.LaunchTimes(calls_ns=[900] * 6, trusted_null_ns=[1_000] * 8))
    assert not floored.resolved and timing.is_resolved([calm, calm, floored])
    assert not timing.is_resolved([calm, floored]) and not timing.is_resolved([floored] * 3)
    given = an_honest(PLAIN)
    for ranking_by, index, counts in (("last", 0, False), ("last", 1, True), ("geom", 0, True), ("mean", 1, True)):
        rows = [
            dataclasses.replace(b, flags=[timing.UNRESOLVED]) if (b.phase, b.index) == ("ranked", index) else b
            for b in given.benchmarks
        ]
        short = dataclasses.replace(given, benchmarks=rows)
        verdict = of_report(short, {}, min_isolation=0, ranking_by=ranking_by)  # type: ignore[arg-type]
        assert verdict.name == "passed" and verdict.ranked is not counts
        assert ("too short to be timed" in verdict.reason) is counts
    assert too_short(dataclasses.replace(given, mode="benchmark"), "geom") is None


@pytest.mark.parametrize("ranking_by", ["last", "mean", "geom"])
def test_a_score_in_reference_units_is_covered_as_often_as_it_says(ranking_by: timing.RankingBy) -> None:
    """A true ratio of 2 on a node whose clock walks and whose launches differ: 95 % of the intervals hold it."""
    source, hits, rounds = random.Random(11), 0, 1000
    truth = {"last": 20e6, "mean": 15e6, "geom": math.sqrt(10e6 * 20e6)}[ranking_by]
    for _ in range(rounds):
        node = math.exp(source.gauss(0, 0.05))  # what slows everything there is in no ratio
        cases = []
        for unit in (5e6, 10e6):
            nets = []
            for _ in range(5):
                near = node * math.exp(source.gauss(0, 0.02))
                ours = 2 * unit * near * math.exp(source.gauss(0, 0.01))
                nets.append(
                    timing.Net(median_ns=ours, null_ns=1.0, samples_ns=[ours], resolved=True, baseline_ns=unit * near)
                )
            cases.append(nets)
        found = timing.in_units(cases, [5e6, 10e6], ranking_by)
        hits += found.low <= truth <= found.high
    assert 0.93 <= hits / rounds <= 0.97


def test_without_a_baseline_there_are_no_reference_units() -> None:
    net = timing.Net(median_ns=1.0, null_ns=1.0, samples_ns=[1.0], resolved=True)
    with pytest.raises(ValueError):
        timing.in_units([[net, net]], [5e6], "geom")


def test_diagnostics_are_what_they_are_called() -> None:
    assert timing.quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert timing.quantile([7.0], 0.95) == 7.0
    assert timing.lag1([1.0, 1.0, 1.0]) == 0.0
    assert timing.lag1([1.0, 2.0] * 20) < -0.9
    assert timing.lag1([float(n) for n in range(40)]) > 0.8
    assert timing.far_out([1.0, 1.1, 0.9, 1.0, 1.05, 50.0]) == pytest.approx(1 / 6)
    source = random.Random(3)
    walk, likes = 0.0, []
    for _ in range(300):
        walk = 0.9 * walk + source.gauss(0, 1)
        likes.append(100 + walk)
    plain = statistics.stdev(likes) / math.sqrt(len(likes))
    found = timing.batch_means_error([likes])
    assert found is not None and found > 2 * plain  # neighbours are alike: the plain error is far too small
    assert timing.batch_means_error([[1.0]]) is None


def test_the_spread_falls_into_that_between_launches_and_that_within() -> None:
    draw = random.Random(3)
    found = []
    for _ in range(200):
        launch = 1e6 * math.exp(draw.gauss(0, 0.02))
        calls = [int(launch * math.exp(draw.gauss(0, 0.05))) + 1000 for _ in range(40)]
        found.append(timing.net(timing.LaunchTimes(calls_ns=calls, trusted_null_ns=[1000] * 8)))
    told = timing.components(found)
    assert told is not None
    assert math.isclose(told["between"], 0.02, rel_tol=0.2)
    assert math.isclose(told["within"], 0.05, rel_tol=0.05)
    assert timing.components(found[:1]) is None
