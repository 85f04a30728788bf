"""Ranking: total, stable, one line per person, honest about what can't be told apart."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.board import TIES_TOLD, TOP, Entry, Ranking, ranked, separated

START = datetime(2026, 1, 1, tzinfo=UTC)


def entry(person: int, score: float, *, wide: float = 0.0, minute: int = 0, run: int = 1) -> Entry:
    return Entry(
        person_id=person,
        person=f"p{person}",
        submission_id=run,
        run_id=run,
        score_s=score,
        low_s=score - wide,
        high_s=score + wide,
        at=START + timedelta(minutes=minute),
        file_name="a.py",
    )


def test_each_person_stands_once_with_the_best() -> None:
    rows = ranked([entry(1, 3.0, run=1), entry(2, 2.0, run=2), entry(1, 1.0, run=3), entry(1, 5.0, run=4)])
    assert [(row.rank, row.entry.person_id, row.entry.run_id) for row in rows] == [(1, 1, 3), (2, 2, 2)]
    assert [row.tied_with for row in rows] == [(), ()]


def test_the_earlier_of_two_equals_is_ahead() -> None:
    rows = ranked([entry(1, 1.0, minute=5, run=1), entry(2, 1.0, minute=4, run=2)])
    assert [row.entry.person_id for row in rows] == [2, 1]
    assert [row.tied_with for row in rows] == [(2,), (1,)]


def test_overlap_is_no_chain() -> None:
    """a can't be told from b, nor b from c, yet a and c can be told apart."""
    rows = ranked([entry(1, 1.0, wide=0.05), entry(2, 1.06, wide=0.05), entry(3, 1.12, wide=0.05)])
    assert [row.tied_with for row in rows] == [(2,), (1, 3), (2,)]
    assert [(row.best_rank, row.worst_rank) for row in rows] == [(1, 2), (1, 3), (2, 3)]


def test_whoever_stands_within_an_interval_is_tied_with_it() -> None:
    """A score of 1 whose interval reaches to 3, as that of work put off until a few calls, was told apart from 2.9."""
    put_off = replace(entry(1, 1.0, run=1), low_s=0.99, high_s=3.0)
    rows = ranked([put_off, entry(2, 2.9, wide=0.01, run=2), entry(3, 9.0, wide=0.01, run=3)])
    assert [row.tied_with for row in rows] == [(2,), (1,), ()]


def test_the_difference_decides_and_no_rank_hangs_on_half_a_percent() -> None:
    """Two intervals may touch and their difference still leave zero out; and of two sure times nearly alike neither
    leads."""
    touching = [entry(1, 1.0, wide=0.05), entry(2, 1.09, wide=0.05)]
    assert [row.tied_with for row in ranked(touching)] == [(), ()]
    for score, tied in ((1.004, True), (1.006, False)):
        rows = ranked([entry(1, 1.0, wide=0.0001), entry(2, score, wide=0.0001)])
        assert (rows[0].tied_with == (2,)) is tied


entries = st.lists(
    st.builds(
        entry,
        person=st.integers(1, 6),
        score=st.floats(1e-6, 10, allow_nan=False),
        wide=st.floats(0, 2),
        minute=st.integers(0, 5),
        run=st.integers(1, 1000),
    ),
    unique_by=lambda found: found.run_id,
    max_size=30,
)


@given(entries, st.randoms(use_true_random=False))
def test_ranking_is_a_pure_function_of_the_set(found: list[Entry], draw: object) -> None:
    rows = ranked(found)
    mixed = list(found)
    draw.shuffle(mixed)  # type: ignore[attr-defined]
    assert ranked(mixed) == rows
    assert [row.rank for row in rows] == list(range(1, len(rows) + 1))
    assert {row.entry.person_id for row in rows} == {one.person_id for one in found}
    assert len({row.entry.person_id for row in rows}) == len(rows)
    assert [row.entry.score_s for row in rows] == sorted(row.entry.score_s for row in rows)
    for row in rows:
        assert row.entry.score_s == min(one.score_s for one in found if one.person_id == row.entry.person_id)
        assert row.rank not in row.tied_with
        for other in rows:
            if other is not row:
                assert other.rank in row.tied_with or separated(row.entry, other.entry)
                assert (other.rank in row.tied_with) == (row.rank in other.tied_with)


@given(
    st.lists(st.tuples(st.floats(0.9, 1.2), st.floats(0, 0.3) | st.floats(0, 0.89)), min_size=1, max_size=150),
    st.integers(0, 149),
)
def test_ties_are_those_of_all_pairs_and_the_nearest_are_told(found: list[tuple[float, float]], row: int) -> None:
    rows = Ranking([entry(n, score, wide=wide, run=n) for n, (score, wide) in enumerate(found)])
    row %= len(rows)
    tied = {n for n in range(len(rows)) if n != row and not separated(rows.entries[n], rows.entries[row])}
    if row < TOP:  # all pairs of the first are judged together, which can only leave more of them in doubt
        tied |= {one.rank - 1 for one in ranked(rows.entries[:TOP]) if row + 1 in one.tied_with}
    told = rows[row]
    assert (told.best_rank, told.worst_rank) == (min(tied | {row}) + 1, max(tied | {row}) + 1)
    nearest = sorted(tied, key=lambda n: (abs(n - row), n))[:TIES_TOLD]
    assert told.tied_with == tuple(sorted(n + 1 for n in nearest))


def test_thousands_that_tie_are_told_as_a_range() -> None:
    rows = Ranking(entry(n, 1.0 + n * 1e-7, wide=0.01, run=n) for n in range(5000))
    told = rows[2500]
    assert (told.best_rank, told.worst_rank) == (1, 5000)
    assert set(told.tied_with) == set(range(2476, 2527)) - {2501}
    assert rows[-1].rank == 5000 and [row.rank for row in rows[10:12]] == [11, 12]


def test_many_that_are_equally_fast_are_hardly_ever_told_apart() -> None:
    """By pairs alone some of twenty nearly always would be: each interval is right, and there are 190 pairs."""
    draw, boards, lucky, by_pairs = random.Random(7), 120, 0, 0
    for _ in range(boards):
        rows = []
        for person in range(20):
            launches = [draw.gauss(0.0, 0.01) for _ in range(5)]
            half = 2.7764 * statistics.stdev(launches) / math.sqrt(5)
            score = math.exp(statistics.fmean(launches))
            low, high = score * math.exp(-half), score * math.exp(half)
            rows.append(replace(entry(person, score, run=person), low_s=low, high_s=high))
        by_pairs += any(separated(a, b) for a, b in combinations(rows, 2))
        lucky += any(len(row.tied_with) < 19 for row in ranked(rows))
    assert lucky <= 0.1 * boards < by_pairs


def test_one_that_is_far_ahead_is_told_apart_from_nineteen() -> None:
    rows = ranked([entry(0, 0.9, wide=0.005), *(entry(n, 1.0, wide=0.005, run=n + 1) for n in range(1, 25))])
    assert rows[0].tied_with == ()
    assert rows[1].tied_with == tuple(range(3, 26))


@pytest.mark.parametrize("many", [TOP, TOP + 1, 60, 200])
def test_one_row_that_wavers_opens_nobody_elses_ranks_by_more_than_itself(many: int) -> None:
    rows = [entry(n, 1.1**n, wide=0.01 * 1.1**n, run=n) for n in range(many)]
    assert [row.ranks for row in ranked(rows)] == [(n + 1, n + 1) for n in range(many)]
    rows[2] = entry(2, 1.1**2, wide=0.5, run=2)
    told = ranked(rows)
    assert len(told) == many
    assert all(row.ranks[1] - row.ranks[0] <= 1 for n, row in enumerate(told) if n > 10), [row.ranks for row in told]


@given(
    st.lists(st.tuples(st.floats(0.9, 3), st.floats(0, 0.1) | st.floats(0, 0.89)), min_size=TOP + 1, max_size=150),
    st.integers(0, 149),
)
def test_whole_blocks_are_judged_as_their_rows_are(found: list[tuple[float, float]], row: int) -> None:
    rows = Ranking([entry(n, score, wide=wide, run=n) for n, (score, wide) in enumerate(found)])
    row %= len(rows)
    ahead = sum(rows._surely_apart(row, n) for n in range(row))
    behind = sum(rows._surely_apart(row, n) for n in range(row + 1, len(rows)))
    assert rows[row].ranks == (1 + ahead, len(rows) - behind)
