"""Who may do what, how often and until when, as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import eta, policy
from kbslurm.domain.eta import Service
from kbslurm.domain.policy import LimitsAndUse
from kbslurm.errors import Invalid, NotFound, QuotaSpent, Refused

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ago(*minutes: float) -> list[datetime]:
    return [NOW - timedelta(minutes=m) for m in minutes]


@pytest.mark.parametrize(
    ("most", "recent", "free_in_min"),
    [
        (None, ago(1, 2, 3), None),
        (3, ago(1, 2), None),
        (2, ago(10, 59), 1),
        (2, ago(10, 61), None),
        (2, ago(10, 60), None),
        (1, ago(10), 50),
        (1, ago(10, 20, 30), 50),
        (2, ago(10, 20, 30), 40),
        (0, [], 60),
        (0, ago(5), 60),
    ],
)
def test_rates(most: int | None, recent: list[datetime], free_in_min: float | None) -> None:
    limits = LimitsAndUse(most_per_hour=most, recent_at=recent)
    if free_in_min is None:
        policy.check_rate("b", "test", limits, NOW)
        return
    with pytest.raises(QuotaSpent) as refused:
        policy.check_rate("b", "test", limits, NOW)
    assert refused.value.resets_at == NOW + timedelta(minutes=free_in_min)


@given(st.integers(1, 5), st.lists(st.integers(0, 3599), max_size=12))
def test_when_a_rate_says_come_again_the_next_one_passes(most: int, seconds: list[int]) -> None:
    recent = [NOW - timedelta(seconds=s) for s in seconds]
    limits = LimitsAndUse(most_per_hour=most, recent_at=recent)
    if len(recent) < most:
        policy.check_rate("b", "test", limits, NOW)
        return
    with pytest.raises(QuotaSpent) as refused:
        policy.check_rate("b", "test", limits, NOW)
    free_at = refused.value.resets_at
    assert free_at is not None and free_at > NOW
    policy.check_rate("b", "test", limits, free_at)
    with pytest.raises(QuotaSpent):
        policy.check_rate("b", "test", limits, free_at - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("quota", "used", "passes"),
    [(None, 1e9, True), (10.0, 0.0, True), (10.0, 9.9, True), (10.0, 10.0, False), (0.0, 0.0, False)],
)
def test_quotas(quota: float | None, used: float, passes: bool) -> None:
    oldest = NOW - timedelta(hours=20)
    limits = LimitsAndUse(quota_gpu_s=quota, used_gpu_s=used, oldest_use_at=oldest)
    if passes:
        policy.check_quota("b", limits, NOW)
        return
    with pytest.raises(QuotaSpent) as refused:
        policy.check_quota("b", limits, NOW)
    assert refused.value.resets_at == NOW + timedelta(hours=4)
    policy.check("b", "test", limits, NOW, staff=True)


@pytest.mark.parametrize(
    ("board", "extended", "closes"),
    [
        (None, None, None),
        (None, NOW, None),
        (NOW, None, NOW),
        (NOW, NOW + timedelta(days=1), NOW + timedelta(days=1)),
        (NOW, NOW - timedelta(days=1), NOW),
    ],
)
def test_an_extension_only_gives(board: datetime | None, extended: datetime | None, closes: datetime | None) -> None:
    assert policy.deadline(board, extended) == closes


@pytest.mark.parametrize(
    ("mode", "category"),
    [("test", "test"), ("benchmark", "test"), ("profile", "test"), ("leaderboard", "leaderboard")],
)
def test_categories(mode: Literal["test", "benchmark", "profile", "leaderboard"], category: str) -> None:
    assert policy.category(mode) == category


def test_what_is_no_category_limit_or_invitation_is_refused() -> None:
    assert policy.category_named(" Leaderboard ") == "leaderboard"
    for call in (
        lambda: policy.category_named("profile"),
        lambda: policy.per_hour(-1),
        lambda: policy.check_invites([], 1),
        lambda: policy.check_invites(["b"], 0),
        lambda: policy.check_invites(["b"], 10_001),
    ):
        with pytest.raises(Invalid):
            call()


def test_an_invitation_is_one_persons() -> None:
    assert policy.check_claim("c", revoked=False, claimed_by=None, person=1)
    assert not policy.check_claim("c", revoked=False, claimed_by=1, person=1)
    with pytest.raises(Refused):
        policy.check_claim("c", revoked=False, claimed_by=2, person=1)
    with pytest.raises(NotFound):
        policy.check_claim("c", revoked=True, claimed_by=1, person=1)


@pytest.mark.parametrize(
    ("ahead", "open_now", "slots", "expected"),
    [
        (0, 0, 0, None),
        (0, 0, 1, (0.0, 30.0)),
        (0, 1, 2, (0.0, 30.0)),
        (0, 1, 1, (0.0, 130.0)),
        (3, 1, 1, (30.0, 430.0)),
        (3, 2, 2, (10.0, 230.0)),
    ],
)
def test_starts(ahead: int, open_now: int, slots: int, expected: tuple[float, float] | None) -> None:
    assert eta.starts_in_s(ahead, open_now, slots, Service(quick_s=10, slow_s=100)) == expected


def test_without_history_nobody_knows() -> None:
    assert eta.starts_in_s(0, 1, 1, None) is None
    assert eta.starts_in_s(0, 0, 1, None) == (0.0, eta.LAUNCH_S)


def test_a_planned_start_may_come_sooner_and_is_never_before_now() -> None:
    assert eta.planned_in_s(600) == (0.0, 630.0)
    assert eta.planned_in_s(-50) == (0.0, 30.0)
