"""Charts of what was measured: everything within its axis, and what isn't drawn is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.api.pages.charts import strip as strips
from kbslurm.api.pages.charts.ranges import Range, ranges
from kbslurm.api.pages.charts.ratios import ratio_bars
from kbslurm.api.pages.charts.strip import some, strip
from kbslurm.api.pages.charts.waterfall import STAGES, waterfall
from kbslurm.api.pages.rendering import took
from kbslurm.domain.waterfall import Stage

AT = datetime(2026, 1, 12, tzinfo=UTC)
TIMES = st.lists(st.lists(st.floats(1e-9, 1e3), max_size=400), max_size=12)


def stages(*took_s: float) -> list[Stage]:
    found, at = [], AT
    for name, one in zip(STAGES, took_s, strict=False):
        at += timedelta(seconds=one)
        found.append(Stage(name=name, ended_at=at, took_s=one))  # type: ignore[arg-type]
    return found


def test_each_stage_begins_where_the_one_before_it_ended() -> None:
    drawn = waterfall(stages(10, 0, 30, 60))
    assert [(bar.name, bar.x) for bar in drawn.bars] == [("queue", 0), ("launch", 10), ("start", 10), ("run", 40)]
    assert [bar.width for bar in drawn.bars] == [10, 0.4, 30, 60]
    assert drawn.whole == "100 s"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6))
def test_a_waterfall_stays_within_its_width(took_s: list[float]) -> None:
    for bar in waterfall(stages(*took_s)).bars:
        assert bar.x >= 0 and bar.x + bar.width <= 100.02 and bar.width >= 0.4


def test_a_strip_has_a_lane_per_launch_and_says_which_calls_it_leaves_out() -> None:
    drawn = strip(
        [[1e-3, 1.1e-3, 9e-3], [1.2e-3, 1.0e-3]], written=took, median=1.1e-3, low=1e-3, high=1.2e-3, null=1e-6
    )
    assert drawn is not None and drawn.calls == 5 and drawn.height == 2 * strips.LANE
    assert [len(lane.dots) for lane in drawn.lanes] == [2, 2], "one call took nine times as long as the others"
    assert drawn.far == "One call isn't drawn: it took 9 ms."
    assert drawn.null is None, "a null call that short would only squeeze the others"
    assert drawn.low is not None and drawn.median is not None and drawn.high is not None
    assert 0 < drawn.low < drawn.median < drawn.high < 100
    assert "3 calls, median 1.1 ms, 1 ms to 9 ms" in drawn.lanes[0].said


def test_a_null_call_of_the_size_of_the_times_is_drawn() -> None:
    drawn = strip([[2e-6, 2.1e-6]], written=took, null=1e-6)
    assert drawn is not None and drawn.null is not None and drawn.null < min(drawn.lanes[0].dots)


def test_without_samples_there_is_no_strip() -> None:
    assert strip([], written=took) is None and strip([[]], written=took) is None


@given(TIMES)
def test_a_strip_draws_a_bounded_number_of_dots_within_its_axis(launches: list[list[float]]) -> None:
    drawn = strip(launches, written=took)
    if drawn is None:
        assert not any(launches)
        return
    assert sum(len(lane.dots) for lane in drawn.lanes) <= max(strips.DOTS_CAP, 2 * len(drawn.lanes))
    assert all(0 <= dot <= 100 for lane in drawn.lanes for dot in (*lane.dots, lane.median))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(2, 60))
def test_a_choice_of_samples_keeps_the_shortest_and_the_longest(values: list[float], most: int) -> None:
    found = some(values, most)
    assert len(found) == min(most, len(values))
    assert (found[0], found[-1]) == (min(values), max(values))


def test_ranges_share_an_axis_and_need_two() -> None:
    one = Range(name="a", value=2.0, low=1.9, high=2.1, score="2 s")
    other = Range(name="b", value=3.0, low=2.0, high=4.0, score="3 s", kind="other")
    assert ranges([one], written=took) is None
    drawn = ranges([one, other], written=took)
    assert drawn is not None
    first, last = drawn.rows
    assert first.low < last.low < first.low + first.width, "they overlap, and it is seen"
    assert first.low <= first.at <= first.low + first.width
    assert drawn.along and all(0 <= tick.at <= 100 for tick in drawn.along)


def test_twice_as_fast_is_as_long_as_half_as_fast() -> None:
    (fast, width), (slow, other) = ratio_bars([2.0, 0.5])
    assert (fast, slow) == (50, 0) and width == other == 50
    ((at, small),) = ratio_bars([1.01])
    assert at == 50 and small == pytest.approx(2.2, abs=0.1), "a small difference isn't blown up to the whole width"
