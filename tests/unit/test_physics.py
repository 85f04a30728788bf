"""What hardware can't do: formulas that are read and never run, and times held to what they come to."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import access, physics
from kbslurm.domain.physics import Peak, amount
from kbslurm.domain.verdict import of_report
from kbslurm.errors import Invalid
from tests.timed import timed
from tests.unit.test_samples import PLAIN
from tests.unit.test_verdict import report


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("2*m*n*k", 2 * 3 * 4 * 5),
        ("m + n * k", 23),
        ("(m + n) * k", 35),
        ("m - 1 - 1", 1),
        ("k / 2 / 2.5", 1),
        ("2 * n ** 2", 32),
        ("-m + n", 1),
        ("n * log2(n) + sqrt(n)", 10),
        ("max(m, n) * min(m, n)", 12),
        ("1.5e3", 1500),
        ("flag * 7", 7),
        (" 4 * ( m*k+n ) ", 76),
    ],
)
def test_a_formula_is_arithmetic(formula: str, expected: float) -> None:
    assert amount(formula, {"m": 3, "n": 4, "k": 5, "flag": True, "name": "x"}) == pytest.approx(expected)


@pytest.mark.parametrize(
    "formula",
    [
        "", "m +", "(m", "m)", "m n", "1 // 2", "other", "name", "many", "__import__('os')", "m.real", "m[0]",
        "log2(0)",
        "m / 0", "9 ** 9 ** 9 ** 9", "9 ** 99", "0 ** -1", "0 - m", "f(m)", "min(m)", "log2(m, 2)",
        "(" * 99 + "1", "1" * 600,
        "1e400", "lambda: 1", "m if m else 1", "m\0", "1e308 * 1e308",
    ],
)  # fmt: skip
def test_whatever_else_it_is_it_is_refused_in_a_sentence(formula: str) -> None:
    with pytest.raises(Invalid, match="can't be used"):
        amount(formula, {"m": 3, "name": "x", "many": [1, 2]})


@given(st.text(max_size=60) | st.text(alphabet="0123456789mn+-*/(),. elogmax2", max_size=60))
def test_any_text_is_a_finite_amount_or_refused(formula: str) -> None:
    try:
        found = amount(formula, {"m": 3, "n": 0.5})
    except Invalid:
        return
    assert 0 <= found < float("inf")


def test_a_time_is_held_to_what_the_hardware_can_do() -> None:
    problem = dataclasses.replace(
        PLAIN, config={"flops": "1e12 * n", "bytes": "1e9 * n"}, benchmarks=({"n": 1}, {"n": 2})
    )
    peak = Peak(flops_per_s=1e14, bytes_per_s=1e12)  # 10 ms and 20 ms by operations; bytes need a tenth of that
    assert physics.least_s(problem, {"n": 2}, peak) == pytest.approx(0.02)
    assert physics.least_s(problem, {"n": 2}, Peak()) is None

    def held(score_s: float, peak: Peak | None = peak) -> Any:
        given = report(**timed("leaderboard", 2, launches=5, calls=6, score_s=score_s))
        verdict = of_report(given, {"flags": []}, min_isolation=0)
        return physics.held_to(verdict, given, problem, peak)

    fine = held(0.03)
    assert (
        fine.ranked
        and fine.detail["flags"] == []
        and fine.detail["physics"][-1]["share"] == pytest.approx(2 / 3, rel=0.01)
    )
    odd = held(0.015)
    assert odd.ranked and odd.detail["flags"] == [physics.FLAG]
    impossible = held(0.00001)
    assert (impossible.name, impossible.ranked, impossible.score_s) == ("violation", False, None)
    assert "thousandth" in impossible.reason
    assert held(0.00001, None).ranked and held(0.00001, Peak()).ranked


def test_a_verdict_says_how_near_it_came_to_the_limit() -> None:
    problem = dataclasses.replace(PLAIN, config={"bytes": "1e9 * n"}, benchmarks=({"n": 1}, {"n": 4}))
    peak = Peak(bytes_per_s=1e11)  # 10 ms and 40 ms

    def light(mode: Any, score_s: float, baseline_s: float | None = None) -> Any:
        given = report(mode=mode, **timed(mode, 2, launches=5, calls=6, score_s=score_s, baseline_s=baseline_s))
        return physics.held_to(of_report(given, {}, min_isolation=0), given, problem, peak).detail

    alone = light("leaderboard", 0.08)
    assert alone[physics.SPEED_OF_LIGHT] == {"share": pytest.approx(0.25, rel=0.01)}  # √(1/8 · 1/2)
    assert physics.light_in_words(alone) == "25 % of the speed of light"
    beside = light("leaderboard", 0.08, 0.12)[physics.SPEED_OF_LIGHT]
    assert beside["score"] == pytest.approx((1 / (1 + 7 / 11) + 1 / (1 + 4 / 8)) / 2, rel=0.01)
    assert light("leaderboard", 0.12, 0.12)[physics.SPEED_OF_LIGHT]["score"] == pytest.approx(0.5, rel=0.01)
    assert "score" not in light("leaderboard", 0.08, 0.02)[physics.SPEED_OF_LIGHT]
    assert physics.light_in_words(light("benchmark", 0.08)) == "25 % of the speed of light"
    assert physics.SPEED_OF_LIGHT not in light("test", 0.08)
    assert physics.light_in_words(None) == physics.light_in_words({}) == ""


def test_bytes_can_be_counted_by_the_shapes_of_a_case() -> None:
    problem = dataclasses.replace(PLAIN, config={"bytes": "shapes"}, benchmarks=({"n": 1}, {"n": 4}))
    peak = Peak(bytes_per_s=1e11)
    counted = {"moved_bytes": {"ranked": {"0": 1_000_000_000, "1": 4_000_000_000}, "benchmark": {"0": True, "1": -4}}}

    def light(mode: Any, host: Any) -> Any:
        given = report(mode=mode, host=host, **timed(mode, 2, launches=5, calls=6, score_s=0.08))
        return physics.held_to(of_report(given, {}, min_isolation=0), given, problem, peak).detail

    assert light("leaderboard", counted)[physics.SPEED_OF_LIGHT] == {"share": pytest.approx(0.25, rel=0.01)}
    for host in ({}, {"moved_bytes": None}, {"moved_bytes": {"ranked": 3}}):
        assert physics.SPEED_OF_LIGHT not in light("leaderboard", host)
    assert physics.SPEED_OF_LIGHT not in light("benchmark", counted)


def test_operations_can_be_counted_by_the_shapes_of_a_case() -> None:
    work = {"flops": "shapes(matmul)", "bytes": "shapes"}
    problem = dataclasses.replace(PLAIN, config=work, benchmarks=({"n": 1}, {"n": 4}))
    peak = Peak(flops_per_s=1e11, bytes_per_s=1e11)
    counted = {"counted_flops": {"ranked": {"0": 1e9, "1": 4e9}}, "moved_bytes": {"ranked": {"0": 2e9, "1": 2e9}}}
    given = report(mode="leaderboard", host=counted, **timed("leaderboard", 2, launches=5, calls=6, score_s=0.08))
    told = physics.held_to(of_report(given, {}, min_isolation=0), given, problem, peak).detail
    assert told is not None
    assert [row["least_s"] for row in told["physics"]] == pytest.approx([0.02, 0.04])
    assert physics.least_s(problem, {"n": 1}, peak) is None, "nothing was counted"


def test_verify_says_in_which_case_a_trusted_kernel_beats_the_formulas() -> None:
    problem = dataclasses.replace(PLAIN, config={"bytes": "1e9 * n"}, benchmarks=({"n": 1}, {"n": 4}))

    def beyond(score_s: float, baseline_s: float | None, peak: Peak) -> list[str]:
        told = timed("leaderboard", 2, launches=5, calls=6, score_s=score_s, baseline_s=baseline_s)
        return physics.beyond(report(mode="leaderboard", **told), problem, peak)

    peak = Peak(bytes_per_s=1e11)  # 10 ms and 40 ms
    assert beyond(0.08, 0.12, peak) == []
    (own,) = beyond(0.03, 0.12, peak)
    assert own.startswith("benchmark 1 (") and "it took 0.03 s" in own and "no less than 0.04 s" in own
    (baseline,) = beyond(0.08, 0.03, peak)
    assert "the baseline took 0.03 s" in baseline
    assert len(beyond(0.001, 0.001, peak)) == 4
    assert beyond(0.001, 0.001, Peak()) == []


def test_a_case_without_a_limit_leaves_the_share_unsaid() -> None:
    problem = dataclasses.replace(PLAIN, config={"bytes": "1e9 * n"}, benchmarks=({"n": 0}, {"n": 4}))
    given = report(**timed("leaderboard", 2, launches=5, calls=6, score_s=0.08))
    held = physics.held_to(of_report(given, {}, min_isolation=0), given, problem, Peak(bytes_per_s=1e11))
    assert held.detail is not None and physics.SPEED_OF_LIGHT not in held.detail


def test_nobody_learns_a_hidden_cases_least_time() -> None:
    rows = [{"phase": "ranked", "index": 0, "least_s": 0.01}, {"phase": "hidden", "index": 0, "least_s": 0.02}]
    shown = access.shown_report({"physics": rows})
    assert shown is not None and shown["physics"] == rows[:1]


def test_a_trusted_kernel_beyond_the_limit_shows_that_the_formulas_are_wrong() -> None:
    assert "can be avoided" in str(physics.wrong_formula({"flags": [physics.FLAG]}))
    assert physics.wrong_formula({"flags": []}) is physics.wrong_formula(None) is None
