"""Axes and lines of charts: everything that is drawn has its place, and what is written beside it is round."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.api.pages.charts.lines import Point, lines
from kbslurm.api.pages.charts.scales import axis_of, moments, round_values
from kbslurm.api.pages.rendering import took

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
VALUES = st.lists(st.floats(min_value=1e-9, max_value=1e5), min_size=1, max_size=20)


@given(VALUES)
def test_every_value_is_within_its_axis_and_larger_ones_stand_higher(values: list[float]) -> None:
    axis = axis_of(values)
    places = [axis.at(value) for value in sorted(values)]
    assert all(0 <= place <= 100 for place in places)
    assert all(one <= other for one, other in pairwise(places))


@given(VALUES)
def test_a_few_round_values_stand_within_an_axis(values: list[float]) -> None:
    axis = axis_of(values)
    ticks = round_values(axis)
    assert 1 <= len(ticks) <= 12
    assert all(axis.low * 0.999 <= tick <= axis.high * 1.001 for tick in ticks)
    assert len(ticks) == len(set(ticks))
    for tick in ticks:
        digits = f"{abs(tick):.6e}".split("e")[0].rstrip("0").rstrip(".") if tick else "0"
        assert len(digits.replace(".", "")) <= 5, tick


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]),
        ([2e-6, 2e-6], [1.9e-6, 1.95e-6, 2e-6, 2.05e-6, 2.1e-6]),
        ([1e-6, 1e-3], [1e-6, 1e-5, 1e-4, 1e-3]),
        ([0.0, 0.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_axes_are_labelled_as_one_would_by_hand(values: list[float], expected: list[float]) -> None:
    assert round_values(axis_of(values)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(minutes=50), ["12:00", "12:15", "12:30", "12:45"]),
        (timedelta(hours=20), ["12:00", "18:00", "29 Mar", "06:00"]),
        (timedelta(days=4), ["29 Mar", "30 Mar", "31 Mar", "1 Apr"]),
        (timedelta(0), ["12:00"]),
    ],
)
def test_moments_are_written_as_on_a_clock_or_a_calendar(span: timedelta, expected: list[str]) -> None:
    assert [text for _, text in moments(NOON, NOON + span, "UTC")] == expected


def test_a_day_stays_a_day_when_clocks_change() -> None:
    found = moments(NOON, NOON + timedelta(days=3), "Europe/Berlin")
    assert [(at.hour, text) for at, text in found] == [(0, "29 Mar"), (0, "30 Mar"), (0, "31 Mar")]


@given(
    st.integers(min_value=0, max_value=40 * 366 * 86400), st.sampled_from(["UTC", "Asia/Kolkata", "America/St_Johns"])
)
def test_no_span_has_too_many_moments(seconds: int, zone: str) -> None:
    last = NOON + timedelta(seconds=seconds)
    found = moments(NOON, last, zone)
    assert len(found) <= 8 or seconds > 7 * 366 * 86400
    assert all(NOON <= at <= last for at, _ in found)


def test_a_record_is_drawn_as_steps_that_lead_to_the_end() -> None:
    points = [Point(at=NOON + timedelta(hours=n), value=v, said=str(n)) for n, v in enumerate((3.0, 2.0, 1.0))]
    (series,) = lines([points], written=took, steps=True, until=NOON + timedelta(hours=4)).series
    assert [dot.x for dot in series.dots] == [0, 25, 50]
    assert [dot.y for dot in series.dots] == sorted(dot.y for dot in series.dots)  # lower is better: it goes down
    assert (series.pieces[-1].x2, series.pieces[-1].y1) == (100, series.dots[-1].y)
    assert all((one.x2, one.y2) == (other.x1, other.y1) for one, other in pairwise(series.pieces))


def test_one_value_and_none_are_drawn_too() -> None:
    (series,) = lines([[Point(at=NOON, value=1e-3, said="")]], written=took).series
    assert [(dot.x, dot.y) for dot in series.dots] == [(50, 50)]
    assert lines([], written=took).series == () == lines([[]], written=took).up
    assert not any(math.isnan(dot.x) for dot in series.dots)
