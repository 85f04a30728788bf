"""Budgets in GPU-hours: their words, their times, and what hosts are told of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kbslurm.domain import gpu_budgets
from kbslurm.domain.gpu_budgets import GpuBudget, Held
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
COURSE = GpuBudget(course="gpu", scope="course", gpu_s=3_600)
EACH = replace(COURSE, scope="person")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (COURSE, "gpu: 1 GPU-hour"),
        (replace(COURSE, gpu="H100", gpu_s=1_800), "gpu on H100: 0.5 GPU-hours"),
        (replace(COURSE, gpu_s=3_600 * 12_345), "gpu: 12345 GPU-hours"),
        (replace(COURSE, scope="section"), "each section: 1 GPU-hour"),
        (replace(COURSE, scope="section", section="a"), "section a: 1 GPU-hour"),
        (EACH, "each person: 1 GPU-hour"),
        (replace(EACH, person_id=PersonId(7), person="ada"), "ada: 1 GPU-hour"),
        (
            replace(EACH, begins_at=NOW, ends_at=NOW + timedelta(days=1)),
            "each person: 1 GPU-hour from 2026-11-01 12:00 UTC until 2026-11-02 12:00 UTC",
        ),
    ],
)
def test_each_budget_in_words(budget: GpuBudget, words: str) -> None:
    assert gpu_budgets.in_words(budget) == words


@pytest.mark.parametrize(
    ("used_s", "open_s", "state"),
    [(0, 0, "ok"), (2_879, 0, "ok"), (2_880, 0, "low"), (0, 3_599, "ok"), (0, 3_600, "spent"), (3_600, 0, "spent")],
)
def test_what_is_left_of_it(used_s: float, open_s: float, state: str) -> None:
    held = Held(budget=COURSE, used_s=used_s, open_s=open_s)
    assert held.state == state
    assert held.left_s == 3_600 - used_s - open_s
    assert (held.state == "spent") == (held.left_s == 0)


def test_nothing_at_all_is_a_budget_too() -> None:
    held = Held(budget=replace(COURSE, gpu_s=0))
    assert (held.state, held.share) == ("spent", 1.0)


def test_a_date_alone_is_all_of_that_day() -> None:
    assert gpu_budgets.moment("2026-12-24", "from") == datetime(2026, 12, 24, tzinfo=UTC)
    assert gpu_budgets.moment("2026-12-24", "until") == datetime(2026, 12, 24, 23, 59, 59, tzinfo=UTC)
    assert gpu_budgets.moment("2026-12-24 18:00+01:00", "from") == datetime(2026, 12, 24, 17, tzinfo=UTC)
    for text in ("", "soon", "2026-13-01", "2026-12-2x"):
        with pytest.raises(Invalid, match="isn't a valid time for --from"):
            gpu_budgets.moment(text, "from")


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1_000_001])
def test_hours_have_bounds(value: float) -> None:
    with pytest.raises(Invalid, match="a budget must be between 0 and 1,000,000 GPU-hours"):
        gpu_budgets.hours(value)


def test_a_budget_begins_before_it_ends_and_hasnt_ended() -> None:
    day = timedelta(days=1)
    gpu_budgets.check_order(NOW - day, NOW + day, NOW)
    with pytest.raises(Invalid, match="before it begins"):
        gpu_budgets.check_order(NOW + day, NOW + day, NOW)
    with pytest.raises(Invalid, match="has passed already"):
        gpu_budgets.check_order(None, NOW, NOW)


def test_people_with_as_much_each_are_one_line_for_hosts() -> None:
    people = [Held(budget=EACH, name=f"p{n}", used_s=900 * n, used_at=NOW + timedelta(minutes=n)) for n in range(1, 6)]
    own = Held(budget=replace(EACH, person_id=PersonId(7), person="ada"), name="ada", open_s=3_600)
    over = Held(budget=replace(COURSE, ends_at=NOW), used_s=3_600)
    assert gpu_budgets.notices([*people, own, over], NOW) == [
        (
            "ada in course gpu has used 0 % of 1 GPU-hour, and open runs may use 1 GPU-hour: nothing more is accepted",
            NOW,
        ),
        (
            "2 people of course gpu have little or nothing left of 1 GPU-hour each; nothing more is accepted of 2",
            NOW + timedelta(minutes=4),
        ),
    ]
