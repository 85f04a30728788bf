"""What being late means and costs, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import access, lateness
from kbslurm.domain.lateness import LatePolicy
from kbslurm.errors import Invalid

DUE = datetime(2026, 12, 24, 22, 59, 59, tzinfo=UTC)
HOUR, DAY = 3_600.0, 86_400.0

policies = st.builds(
    LatePolicy,
    grace_s=st.floats(0, 7 * DAY),
    percent=st.floats(0, 100),
    per=st.sampled_from(["hour", "day"]),
    slip_days=st.integers(0, 10),
)
late = st.floats(0, 60 * DAY)


@given(policies, late, late)
def test_being_later_never_costs_less(policy: LatePolicy, one: float, other: float) -> None:
    sooner, later = sorted((one, other))
    assert lateness.penalty(sooner, policy).percent <= lateness.penalty(later, policy).percent


@given(policies, late)
def test_a_penalty_is_between_nothing_and_everything_and_uses_no_slip_day_too_many(
    policy: LatePolicy, late_s: float
) -> None:
    found = lateness.penalty(late_s, policy)
    assert 0 <= found.percent <= 100
    assert 0 <= found.slip_days <= policy.slip_days
    assert (found.slip_days - 1) * DAY < late_s or found.slip_days == 0, "no day more than it was late"


@pytest.mark.parametrize(
    ("late_s", "policy", "percent", "slipped"),
    [
        (0, LatePolicy(percent=50), 0, 0),
        (1, LatePolicy(percent=10), 10, 0),
        (DAY, LatePolicy(percent=10), 10, 0),
        (DAY + 1, LatePolicy(percent=10), 20, 0),
        (900, LatePolicy(percent=10, grace_s=900), 0, 0),
        (901, LatePolicy(percent=10, grace_s=900), 10, 0),
        (2.5 * HOUR, LatePolicy(percent=5, per="hour"), 15, 0),
        (2.5 * DAY, LatePolicy(percent=10, slip_days=2), 10, 2),
        (1.5 * DAY, LatePolicy(percent=10, slip_days=2), 0, 2),
        (30 * DAY, LatePolicy(percent=10), 100, 0),
        (5 * DAY, LatePolicy(), 0, 0),
    ],
)
def test_what_being_late_costs(late_s: float, policy: LatePolicy, percent: float, slipped: int) -> None:
    found = lateness.penalty(late_s, policy)
    assert (found.percent, found.slip_days) == (percent, slipped)


def test_a_submission_at_the_deadline_is_in_time() -> None:
    assert lateness.late_s(DUE, DUE) == 0 and lateness.late_s(DUE, None) == 0
    assert lateness.late_s(DUE + timedelta(seconds=1), DUE) == 1
    assert lateness.remark(0) is None
    assert lateness.remark(7_500) == "late by 2 h 5 min: it counts for grades, not in the standings"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"until": DUE}, "before the deadline"),
        ({"grace_s": -1.0}, "grace period"),
        ({"grace_s": float("nan")}, "grace period"),
        ({"percent": 101.0}, "per cent"),
        ({"percent": float("nan")}, "per cent"),
        ({"per": "week"}, "unit of the late penalty"),
        ({"slip_days": -1}, "slip days"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        lateness.checked(LatePolicy(**{"until": DUE + timedelta(days=1), **change}), DUE, "Europe/Berlin")


def test_a_board_without_a_deadline_has_no_late_submissions() -> None:
    with pytest.raises(Invalid, match="without a deadline"):
        lateness.checked(LatePolicy(until=DUE), None, "UTC")


@pytest.mark.parametrize("text", ["", "15", "m", "-5m", "1.5h", "1 week", "9999999d"])
def test_a_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="isn't a length of time"):
        lateness.parsed_span(text)


def test_lengths_of_time_are_read_and_said() -> None:
    assert [lateness.parsed_span(text) for text in ("90s", "15m", " 2 h", "1d")] == [90, 900, 7_200, 86_400]
    assert [lateness.span_text(s) for s in (0.2, 59.6, 3_600, 90_000, 86_401)] == [
        "1 s",
        "1 min",
        "1 h",
        "1 d 1 h",
        "1 d",
    ]


def test_a_policy_is_said_with_its_zone() -> None:
    policy = LatePolicy(until=DUE + timedelta(days=2), grace_s=900, percent=10, slip_days=1)
    assert lateness.in_words(policy, "Europe/Berlin") == (
        "late submissions until 2026-12-26 23:59 Europe/Berlin, the first 15 min cost nothing,"
        " 1 slip day per person, 10 % of the points lost per day begun"
    )


def test_a_freeze_hides_from_others_what_came_after_it_and_from_hosts_nothing() -> None:
    assert access.shown_until(DUE) == DUE and access.shown_until(None) is None
    assert access.shown_until(DUE, host=True) is None
    after = DUE + timedelta(seconds=1)
    assert access.may_tell_others(DUE, DUE) and not access.may_tell_others(after, DUE)
    assert access.may_tell_others(after, None)
    assert access.is_frozen(DUE, DUE) and not access.is_frozen(after, DUE) and not access.is_frozen(None, DUE)
