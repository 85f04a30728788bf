"""The two texts that cross the trust line: strict in both directions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground

REPORT = wire.Report(
    version=wire.WIRE_VERSION,
    token="t0ken",
    attempt=1,
    nonce="n0nce",
    mode="test",
    problem_digest="d",
    harness_digest="h",
    verdict="passed",
    reason="all phases passed",
    score_s=None,
    interval_s=None,
    tests=[wire.TestResult(phase="test", index=0, spec="n: 1", status="pass")],
    benchmarks=[],
    phases=[wire.PhaseResult(name="test", passed=True, started_at_ns=1, ended_at_ns=2)],
    isolation=wire.Isolation(level=2, means="unshare"),
    started_at_ns=1,
    ended_at_ns=2,
    samples=[
        wire.LaunchSamples(
            phase="benchmark", index=0, launch=0, own=wire.CallTimes(calls_ns=[5, 6], trusted_null_ns=[1, 2])
        )
    ],
)
TIMED = dataclasses.replace(
    REPORT,
    mode="benchmark",
    score_s=0.5,
    interval_s=[0.4, 0.6],
    phases=[*REPORT.phases, wire.PhaseResult(name="benchmark", passed=True, started_at_ns=2, ended_at_ns=3)],
)


def test_both_texts_come_back_as_they_went() -> None:
    told = ground.manifest("x", tests=[{"n": 1, "flag": True, "list": [1, 2.5, "a"], "name": "é\u2028"}])
    assert wire.read_manifest(wire.dumps(told)) == told
    assert wire.read_report(wire.dumps(REPORT)) == REPORT
    assert wire.unseal(wire.seal(TIMED, b"key"), b"key") == TIMED


@pytest.mark.parametrize("value", [True, 1, 1.0, "1"])
def test_a_parameters_type_survives(value: Any) -> None:
    found = wire.read_manifest(wire.dumps(ground.manifest("x", tests=[{"p": value}]))).tests[0]["p"]
    assert type(found) is type(value)


def _raw(change: Callable[[dict[str, Any]], Any], report: wire.Report = REPORT) -> str:
    raw = json.loads(wire.dumps(report))
    change(raw)
    return json.dumps(raw)


def part(size: int, *, phase: str = "test", index: int | None = 0) -> dict[str, Any]:
    return {"phase": phase, "index": index, "size": size}


REFUSED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an unknown field": lambda r: r.update(more=1),
    "a missing field": lambda r: r.pop("log"),
    "another version": lambda r: r.update(version=wire.WIRE_VERSION + 1),
    "a number as text": lambda r: r.update(attempt="1"),
    "a bool as number": lambda r: r.update(attempt=True),
    "a float as int": lambda r: r.update(attempt=1.0),
    "a verdict that isn't one": lambda r: r.update(verdict="fine"),
    "a verdict of another type": lambda r: r.update(verdict=["passed"]),
    "a status that isn't one": lambda r: r["tests"][0].update(status="ok"),
    "an unknown field within": lambda r: r["tests"][0].update(expected=[1]),
    "null for a text": lambda r: r.update(reason=None),
    "a score without an interval": lambda r: r.update(score_s=1.0),
    "a passed run without its phases": lambda r: r.update(phases=[]),
    "a passed run with a failed phase": lambda r: r["phases"][0].update(passed=False),
    "an end before the start": lambda r: r.update(ended_at_ns=0),
    "a log over the cap": lambda r: r.update(log="x" * (3 * wire.LOG_CAP)),
    "a log's parts that aren't all of it": lambda r: r.update(log="abc", log_parts=[part(2)]),
    "a log's parts that are more than it": lambda r: r.update(log="abc", log_parts=[part(3), part(1, index=1)]),
    "parts of no log": lambda r: r.update(log="", log_parts=[part(1)]),
    "a part of a hidden case": lambda r: r.update(log="abc", log_parts=[part(3, phase="hidden")]),
    "a part of a ranked measurement": lambda r: r.update(log="abc", log_parts=[part(3, phase="ranked")]),
    "a part of a case below the first": lambda r: r.update(log="abc", log_parts=[part(3, index=-1)]),
    "a part of nothing": lambda r: r.update(log="abc", log_parts=[part(3), part(0, index=1)]),
    "more parts than the cap": lambda r: r.update(
        log="x" * (wire.LOG_PARTS_CAP + 1), log_parts=[part(1, index=n) for n in range(wire.LOG_PARTS_CAP + 1)]
    ),
    "a text among the samples": lambda r: r["samples"][0]["own"]["calls_ns"].append("1"),
    "a sample without its null calls": lambda r: r["samples"][0]["own"].pop("trusted_null_ns"),
    "a score in a test run": lambda r: r.update(score_s=1.0, interval_s=[1.0, 1.0]),
}


def test_what_another_release_sends_is_told_by_its_version_and_not_by_a_field() -> None:
    older = _raw(lambda r: (r.update(version=wire.WIRE_VERSION - 1), r["samples"][0].pop("alone_ns")))
    with pytest.raises(wire.WireError, match=rf"report of version {wire.WIRE_VERSION - 1}; this service speaks"):
        wire.read_report(older)
    newer = json.loads(wire.dumps(ground.manifest("x"))) | {"version": wire.WIRE_VERSION + 1, "more": 1}
    with pytest.raises(wire.WireError, match=rf"manifest of version {wire.WIRE_VERSION + 1}; this harness speaks"):
        wire.read_manifest(json.dumps(newer))


def test_a_log_may_be_in_parts_or_in_one_piece() -> None:
    for parts in ([], [part(1, index=None), part(2, phase="benchmark")]):
        found = wire.read_report(_raw(lambda r, parts=parts: r.update(log="abc", log_parts=parts)))  # type: ignore[misc]
        assert [one.size for one in found.log_parts] == [one["size"] for one in parts]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_report_that_isnt_exact_is_refused(name: str) -> None:
    with pytest.raises(wire.WireError):
        wire.read_report(_raw(REFUSED[name]))


@pytest.mark.parametrize(
    ("score", "interval"),
    [(0.5, [0.6, 0.7]), (0.0, [0.0, 0.0]), (-1.0, [-2.0, 0.0]), (0.5, [0.5]), (0.5, [0.4, 0.6, 0.7]), (0.5, "0.4")],
)
def test_a_score_must_be_positive_and_in_its_interval(score: float, interval: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.read_report(_raw(lambda r: r.update(score_s=score, interval_s=interval), TIMED))


def test_a_score_needs_a_passed_run() -> None:
    with pytest.raises(wire.WireError):
        wire.read_report(_raw(lambda r: r.update(verdict="wrong"), TIMED))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"version": NaN}',
        '{"version": Infinity}',
        "[" * 100_000,
        '{"a": 1, "a": 2}',
        b"\xff\xfe",
    ],
)
def test_a_text_that_isnt_the_json_it_must_be_is_refused(text: str | bytes) -> None:
    for read in (wire.read_report, wire.read_manifest):
        with pytest.raises(wire.WireError):
            read(text)


def test_a_huge_number_is_not_finite() -> None:
    text = wire.dumps(TIMED).replace('"score_s":0.5', '"score_s":1e400')
    with pytest.raises(wire.WireError):
        wire.read_report(text)


def test_a_text_over_the_cap_is_refused() -> None:
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.read_report(" " * (wire.REPORT_CAP + 1))


def test_no_number_that_isnt_finite_is_sent() -> None:
    with pytest.raises(wire.WireError):
        wire.dumps(dataclasses.replace(TIMED, score_s=float("nan")))


def test_a_seal_is_of_one_key_and_one_text() -> None:
    sealed = wire.seal(REPORT, b"key")
    for broken, key in (
        (sealed, b"other"),
        (sealed.replace("all phases passed", "all phases Passed"), b"key"),
        (json.dumps({**json.loads(sealed), "more": 1}), b"key"),
        (json.dumps({"report": json.loads(sealed)["report"], "mac": None}), b"key"),
        (json.dumps({"report": json.loads(sealed)["report"], "mac": "é"}), b"key"),
        (json.loads(sealed)["report"], b"key"),
    ):
        with pytest.raises(wire.WireError):
            wire.unseal(broken, key)
