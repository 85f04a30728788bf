"""How often intervals and sets of ranks hold what is true, by simulation with fixed seeds: launches that are
independent, that drift within a job, and jobs that differ from one another.

The simulations are of what the harness hands on: a figure per launch, in a launch's order. `paired`: each call has the
baseline's beside it, so that what slows both cancels out.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kbslurm.domain.board import Entry, Ranking
from kbslurm_eval.shared import timing

PLANNED, MOST, PRECISION = 5, 20, 0.01
Launches = Callable[[random.Random, int], list[float]]  # logarithms of the times of so many launches of one job


def independent(draw: random.Random, many: int) -> list[float]:
    return [draw.gauss(0.0, 0.006) for _ in range(many)]


def scattered(draw: random.Random, many: int) -> list[float]:
    """Launches that differ by so much that three in four runs take more than are planned."""
    return [draw.gauss(0.0, 0.014) for _ in range(many)]


def drifting(draw: random.Random, many: int) -> list[float]:
    """A walk of the clocks by 2 % over five launches, unpaired."""
    at, found = 0.0, []
    for _ in range(many):
        at += draw.gauss(0.0, 0.009)
        found.append(at + draw.gauss(0.0, 0.006))
    return found


def drifting_paired(draw: random.Random, many: int) -> list[float]:
    """The same, of which a baseline measured in turns leaves a tenth."""
    walk = drifting(draw, many)
    return [draw.gauss(0.0, 0.006) + one / 10 for one in walk]


def jobs(draw: random.Random, many: int) -> list[float]:
    """Jobs differ by 1 %, unpaired."""
    job = draw.gauss(0.0, 0.01)
    return [job + draw.gauss(0.0, 0.003) for _ in range(many)]


def jobs_paired(draw: random.Random, many: int) -> list[float]:
    job = draw.gauss(0.0, 0.01) / 20
    return [job + draw.gauss(0.0, 0.003) for _ in range(many)]


def adapted(draw: random.Random, launches: Launches) -> list[float]:
    """The launches' times of one run that is to be as narrow as PRECISION."""
    every = [math.exp(one) for one in launches(draw, MOST)]
    return every[: timing.launches_for(PRECISION, every[:PLANNED], MOST)]


@pytest.mark.parametrize(
    ("launches", "least", "most"),
    [
        (independent, 0.94, 0.99),
        (scattered, 0.945, 0.99),
        (drifting_paired, 0.93, 0.99),
        (jobs_paired, 0.93, 0.99),
        # what no interval over launches can see: the reason for baselines
        (drifting, 0.3, 0.8),
        (jobs, 0.2, 0.7),
    ],
)
def test_an_interval_covers_the_truth_although_the_number_of_launches_adapts(
    launches: Launches, least: float, most: float
) -> None:
    draw, runs = random.Random(11), 1500
    held = 0
    for _ in range(runs):
        found = timing.interval(adapted(draw, launches), PLANNED)
        held += found.low <= 1.0 <= found.high
    assert least <= held / runs <= most, held / runs


def test_the_usual_interval_of_an_adapted_number_would_be_too_narrow() -> None:
    draw, runs, held, usual = random.Random(5), 2000, 0, 0
    for _ in range(runs):
        times = adapted(draw, scattered)
        for planned in (PLANNED, 0):
            found = timing.interval(times, planned)
            inside = found.low <= 1.0 <= found.high
            held, usual = (held + inside, usual) if planned else (held, usual + inside)
    assert held / runs >= 0.945 > 0.94 > usual / runs, (held / runs, usual / runs)


def test_launches_are_added_until_the_interval_is_as_narrow_as_asked() -> None:
    draw, many, narrow = random.Random(3), [], 0
    for _ in range(300):
        times = adapted(draw, independent)
        found = timing.interval(times, PLANNED)
        many.append(len(times))
        reached = math.sqrt(found.high / found.low) - 1
        half = timing.t95(PLANNED - 1) * statistics.stdev(map(math.log, times[:PLANNED])) / math.sqrt(len(times))
        assert half <= math.log1p(PRECISION) + 1e-12 or len(times) == MOST
        narrow += reached <= PRECISION + 1e-9
    assert {PLANNED, *many} >= {PLANNED} and min(many) == PLANNED < max(many) <= MOST
    assert narrow > 270
    assert timing.launches_for(0.0, [1.0, 1.1, 1.2], 20) == 3, "nobody asked"
    assert timing.launches_for(0.01, [1.0, 1.0, 1.0], 20) == 3, "narrow enough at once"
    assert timing.launches_for(0.001, [1.0, 1.1, 1.2], 20) == 20, "as many as there may be"


def board(draw: random.Random, launches: Launches, many: int, step: float) -> Ranking:
    """Entries whose true times are so far from one another, number 0 the fastest."""
    rows = []
    for person in range(many):
        times = [math.exp(person * step + one) for one in launches(draw, PLANNED)]
        found = timing.interval(times)
        rows.append(
            Entry(
                person_id=person, person=f"p{person}", submission_id=person, run_id=person, score_s=found.value,
                low_s=found.low, high_s=found.high, at=datetime(2026, 1, 1, tzinfo=UTC), file_name="a.py",
            )
        )  # fmt: skip
    return Ranking(rows)


def all_held(found: Ranking) -> bool:
    """Whether every row's true rank is in its set."""
    return all(row.ranks[0] <= row.entry.person_id + 1 <= row.ranks[1] for row in found)


@pytest.mark.parametrize("many", [12, 60])
@pytest.mark.parametrize("launches", [independent, drifting_paired, jobs_paired])
def test_sets_of_ranks_hold_for_the_whole_board_at_once(launches: Launches, many: int) -> None:
    draw, boards = random.Random(17), 40
    for step in (1e-5, 0.01):
        held = sum(all_held(board(draw, launches, many, step)) for _ in range(boards))
        assert held >= 0.95 * boards - 1, (step, held)


def test_pairwise_ties_alone_would_not_hold_for_a_whole_board() -> None:
    draw, boards, by_ties = random.Random(17), 20, 0
    for _ in range(boards):
        rows = board(draw, independent, 60, 1e-5)
        by_ties += all(row.best_rank <= row.entry.person_id + 1 <= row.worst_rank for row in rows)
    assert by_ties < 0.9 * boards


def test_jobs_that_differ_by_more_than_their_launches_show_are_beyond_any_set_of_ranks() -> None:
    """Unpaired boards promise too much, and say that they are unpaired."""
    draw, boards = random.Random(17), 20
    assert sum(all_held(board(draw, jobs, 60, 1e-5)) for _ in range(boards)) < 0.95 * boards


def test_sets_are_no_wider_than_they_must_be() -> None:
    """Far apart from one another, every row has one rank; and the search by blocks finds what all pairs would."""
    draw = random.Random(2)
    apart = board(draw, lambda _, many: [0.0001 * n for n in range(many)], 60, 0.1)
    assert [row.ranks for row in apart] == [(n, n) for n in range(1, 61)]
    mixed = board(draw, lambda d, many: [d.gauss(0, d.choice((0.0005, 0.01))) for _ in range(many)], 150, 0.004)
    for row in range(0, 150, 7):
        sure = [n for n in range(150) if mixed._surely_apart(row, n)]
        ahead = sum(n < row for n in sure)
        assert mixed[row].ranks == (1 + ahead, 150 - (len(sure) - ahead))


def test_a_board_of_twenty_uses_holms_pairs() -> None:
    draw = random.Random(9)
    rows = board(draw, independent, 20, 0.03)
    for row in rows:
        faster = sum((row.rank - 1, n) in rows._apart for n in range(row.rank - 1))
        assert row.ranks[0] == 1 + faster
