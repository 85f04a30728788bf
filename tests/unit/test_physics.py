"""What hardware can't do: formulas that are read and never run, and times held to what they come to."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import physics
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
