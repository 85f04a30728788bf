"""A week by the rules: what the contract with a cluster's other people promises holds in every hour of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from kbslurm.domain.keepers import LOOK_EVERY_S, MOST_IDLE, KeeperEnding, Warm
from tests.bench.warm_week import BEGINS, STEP_S, WEEK_S, Week, in_words, play, quantile, svg

ALLOWED = Warm(max=2)
LAST_EVENING_S = WEEK_S - 6 * 3_600


@pytest.fixture(scope="module")
def weeks() -> Mapping[str, Week]:
    return {"cold": play(Warm(max=0)), "warm": play(ALLOWED), "hidden": play(ALLOWED, hidden=True)}


@pytest.mark.parametrize("name", ["warm", "hidden"])
def test_what_is_held_is_used(weeks: Mapping[str, Week], name: str) -> None:
    week = weeks[name]
    assert len(week.keepers) > 5, "nothing was tried"
    assert week.idle_s <= MOST_IDLE * week.held_s, in_words(name, week)
    assert week.worst_share(ALLOWED.idle_s) <= MOST_IDLE, in_words(name, week)
    assert not week.blocked_s, "the bound is a backstop: the rules stay below it by themselves"


@pytest.mark.parametrize("name", ["warm", "hidden"])
def test_never_more_than_allowed_and_none_beyond_its_life(weeks: Mapping[str, Week], name: str) -> None:
    spans = []
    for one in weeks[name].keepers:
        assert one.ended_at is not None
        if one.keeper.started_at is None:
            continue
        began = (one.keeper.started_at - BEGINS).total_seconds()
        assert one.ended_at - began <= ALLOWED.life_s
        longest = max(
            (b - a for (_, a), (b, _) in pairwise([(began, began), *one.runs, (one.ended_at, 0.0)])), default=0.0
        )
        assert longest <= ALLOWED.idle_s + 2 * STEP_S, "it waited too long for work"
        spans += [(began, 1), (one.ended_at, -1)]
    held = most = 0
    for _, change in sorted(spans, key=lambda span: (span[0], span[1])):
        held += change
        most = max(most, held)
    assert 0 < most <= ALLOWED.max


def test_it_looks_no_more_than_allowed_and_goes_when_others_wait(weeks: Mapping[str, Week]) -> None:
    for name in ("warm", "hidden"):
        looks = weeks[name].looks
        assert looks
        assert all(later - before >= LOOK_EVERY_S for before, later in pairwise(looks))
    assert any(one.ending is KeeperEnding.GAVE_BACK for one in weeks["warm"].keepers)
    for one in weeks["hidden"].keepers:
        if one.keeper.started_at is not None and one.ended_at is not None:
            began, last = (one.keeper.started_at - BEGINS).total_seconds(), max((b for _, b in one.runs), default=0.0)
            assert one.ended_at <= max(began + 2 * LOOK_EVERY_S, last) + 2 * STEP_S, "unknown means that others wait"


def test_who_submits_on_the_last_evening_waits_less(weeks: Mapping[str, Week]) -> None:
    cold, warm = (weeks[name].waits(since_s=LAST_EVENING_S) for name in ("cold", "warm"))
    assert len(cold) == len(warm) > 1_000
    assert quantile(warm, 0.95) < quantile(cold, 0.95)
    mine = weeks["warm"].waits(warm=True, since_s=LAST_EVENING_S)
    assert len(mine) > 500
    assert sum(warm) < sum(cold)


def test_the_figure_in_the_documents_is_this_week(weeks: Mapping[str, Week]) -> None:
    kept = Path(__file__).parents[2] / "docs" / "warm-week.svg"
    assert kept.read_text(encoding="utf-8") == svg(weeks["warm"], weeks["cold"]), (
        "the rules have changed: python -m tests.bench.warm_week --svg docs/warm-week.svg"
    )
