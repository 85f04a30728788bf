"""A frozen board opened step by step: it ends in the truth, moves one person at a time and tells nothing early."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.board import Entry, Ranking
from kbslurm.domain.reveal import Revealed, Side, revealed, step_of_top

START = datetime(2026, 1, 1, tzinfo=UTC)
FREEZE = START + timedelta(hours=5)
PEOPLE = st.integers(1, 12)
SCORES = st.integers(1, 9).map(float)  # few, so that there are equals


def entry(person: int, score: float, *, run: int = 0, after: bool = False) -> Entry:
    at = (FREEZE if after else START) + timedelta(minutes=run)
    return Entry(
        person_id=person, person=f"p{person}", submission_id=run, run_id=run, score_s=score, low_s=score,
        high_s=score, at=at, file_name="a.py",
    )  # fmt: skip


def board(scores: dict[int, float], *, after: bool = False) -> list[Entry]:
    return [entry(person, score, run=person, after=after) for person, score in scores.items()]


def best(before: Sequence[Entry], late: Sequence[Entry]) -> list[Entry]:
    return Ranking([*before, *late]).entries


def sides(shown: Revealed) -> list[Side]:
    return [one.side for one in shown.rows.entries]


def every_step(frozen: Sequence[Entry], true: Sequence[Entry], since: set[Side]) -> list[Revealed]:
    found = [revealed(frozen, true, since, 0)]
    while not found[-1].is_over:
        found.append(revealed(frozen, true, since, len(found)))
    return found


def test_the_lowest_who_waits_is_opened_first() -> None:
    frozen = board({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    late = board({4: 1.5, 2: 0.5, 5: 3.5, 3: 9.0}, after=True)
    steps = every_step(frozen, best(frozen, late), {2, 3, 4, 5})
    assert [sides(one) for one in steps] == [
        [1, 2, 3, 4],
        [1, 2, 3, 5, 4],  # a newcomer comes in
        [1, 4, 2, 3, 5],  # the last rises by three
        [1, 4, 2, 3, 5],  # 3 was slower than before: they keep what they have
        [2, 1, 4, 3, 5],
    ]
    assert [one.opened and (one.opened.side, one.opened.before, one.opened.after) for one in steps] == [
        None, (5, None, 4), (4, 5, 2), (3, 4, 4), (2, 3, 1),
    ]  # fmt: skip
    assert [one.following for one in steps] == [None, 4, 3, 2, None], "a newcomer isn't named beforehand"
    assert [sorted(map(int, one.waiting)) for one in steps] == [[2, 3, 4], [2, 3, 4], [2, 3], [2], []]


def test_beyond_the_last_step_is_the_last_step() -> None:
    frozen, true = board({1: 2.0, 2: 3.0}), board({2: 1.0, 1: 2.0})
    last = revealed(frozen, true, (), 99)
    assert last.is_over and last.step == 1 and sides(last) == [2, 1]
    assert revealed([], [], (), 7).is_over and revealed([], [], (), 7).step == 0


def test_one_may_begin_with_the_first_few() -> None:
    frozen = board({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    true = best(frozen, board({4: 1.5, 2: 0.5, 5: 3.5}, after=True))
    for top, step in ((0, 3), (1, 3), (2, 2), (3, 2), (4, 1), (9, 1)):
        assert step_of_top(frozen, true, {2, 4, 5}, top) == step
        assert all(one in (1, 2, 3, 4)[:top] for one in revealed(frozen, true, {2, 4, 5}, step).waiting)


def test_who_may_rank_by_their_last_may_fall() -> None:
    frozen, true = board({1: 1.0, 2: 2.0, 3: 3.0}), board({2: 2.0, 3: 3.0, 1: 9.0})
    last = revealed(frozen, true, {1}, 1)
    assert sides(last) == [2, 3, 1] and last.opened is not None and last.opened.rises == -2


@given(st.dictionaries(PEOPLE, SCORES), st.dictionaries(PEOPLE, SCORES))
def test_it_ends_in_the_truth_and_each_step_lifts_one_person_or_nobody(
    before: dict[int, float], late: dict[int, float]
) -> None:
    frozen = board(before)
    true = best(frozen, board(late, after=True))
    steps = every_step(frozen, true, set(late))
    assert steps[0].rows.entries == Ranking(frozen).entries
    assert steps[-1].rows.entries == true and not steps[-1].waiting
    assert len(steps) - 1 == len(late), "everybody who submitted since, once"
    for earlier, later in itertools.pairwise(steps):
        assert later.opened is not None
        moved = later.opened.side
        others = [one for one in sides(earlier) if one != moved]
        assert [one for one in sides(later) if one != moved] == others, "nobody else changes places"
        assert later.opened.rises >= 0 and (earlier.following in (None, moved))


@given(st.dictionaries(PEOPLE, SCORES), st.dictionaries(PEOPLE, SCORES, min_size=1), st.data())
def test_a_step_tells_nothing_of_who_still_waits(
    before: dict[int, float], late: dict[int, float], data: st.DataObject
) -> None:
    """Whatever those who still wait came to, what was shown until then is the same."""
    late = {person: score for person, score in late.items() if person in before}
    frozen = board(before)
    true = best(frozen, board(late, after=True))
    step = data.draw(st.integers(0, len(late)))
    shown = revealed(frozen, true, set(late), step)
    other = [replace(one, score_s=data.draw(SCORES), run_id=99) if one.side in shown.waiting else one for one in true]
    again = revealed(frozen, Ranking(other).entries, set(late), step)
    assert (again.rows.entries, again.waiting, again.following) == (shown.rows.entries, shown.waiting, shown.following)
    assert again.opened == shown.opened


@given(st.dictionaries(PEOPLE, SCORES), st.dictionaries(PEOPLE, SCORES), st.sets(PEOPLE))
def test_it_ends_in_the_truth_whatever_that_is(
    before: dict[int, float], after: dict[int, float], since: set[int]
) -> None:
    """Also where finals, a ban or a ranking by the last submission changed what doesn't follow from the freeze."""
    frozen, true = board(before), Ranking(board(after, after=True)).entries
    assert every_step(frozen, true, set(since))[-1].rows.entries == true
