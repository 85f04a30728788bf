"""Grades as a pure function: what must hold for any class, any scheme and any times."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.grades import Basis, Grade, Handed, Scheme, Step, Student, graded, points_for, rank_among
from kbslurm.domain.grading_scheme import parsed_scheme
from kbslurm.domain.lateness import LatePolicy
from kbslurm.errors import Invalid

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
TIME = parsed_scheme("""
by = "time"
passed = 40
[[steps]]
at_most = "2 ms"
points = 100
[[steps]]
at_most = "4 ms"
points = 80
""")
RANKS = parsed_scheme("""
by = "rank"
[[steps]]
up_to = 1
points = 100
[[steps]]
up_to = 3
points = 90
[[steps]]
up_to = 10
points = 50
""")


def student(n: int, **more: Any) -> Student:
    return Student(person_id=n, side=f"person:{n}", name=f"p{n}", **more)


def handed(n: int, submission: int, score_s: float | None, doubt: float = 0.0, **more: Any) -> Handed:
    told = {"low_s": score_s * (1 - doubt), "high_s": score_s * (1 + doubt)} if score_s is not None else {}
    return Handed(
        submission=submission,
        side=f"person:{n}",
        person=f"p{n}",
        at=START + timedelta(minutes=submission),
        score_s=score_s,
        **{"verdict": "passed" if score_s is not None else "wrong", **told, **more},
    )


def grades(scheme: Scheme, given: list[Handed], people: int = 3, late: LatePolicy | None = None) -> list[Grade]:
    basis = Basis(students=tuple(student(n) for n in range(people)), handed=tuple(given), late=late or LatePolicy())
    return graded(basis, scheme)


def schemes() -> st.SearchStrategy[Scheme]:
    def made(by: Any, values: list[float], points: list[float], between: Any, passed: float) -> Scheme:
        ordered = sorted(values, reverse=by in ("speedup", "light"))
        steps = [Step(value=v, points=p) for v, p in zip(ordered, sorted(points, reverse=True), strict=False)]
        return Scheme(by=by, steps=tuple(steps), points=100, passed=passed, between=between, baseline_s=1.0)

    amounts = st.lists(st.floats(1e-3, 10), min_size=1, max_size=6, unique=True)
    points = st.lists(st.floats(0, 100), min_size=6, max_size=6)
    lines = st.sampled_from(["steps", "line"])
    return st.builds(made, st.sampled_from(["time", "speedup"]), amounts, points, lines, st.floats(0, 100))


times = st.floats(1e-4, 20)
policies = st.builds(
    LatePolicy, percent=st.floats(0, 100), per=st.sampled_from(["hour", "day"]), slip_days=st.integers(0, 3),
    grace_s=st.floats(0, 7_200),
)  # fmt: skip


@given(schemes(), times, times)
def test_faster_never_gets_fewer_points(scheme: Scheme, one: float, other: float) -> None:
    fast, slow = sorted((one, other))
    first, second, _ = grades(scheme, [handed(0, 1, fast), handed(1, 2, slow)])
    assert first.points >= second.points


@given(schemes(), times, policies, st.floats(0, 2e6), st.floats(0, 2e6))
def test_later_never_gets_more_points_and_nobody_fewer_than_none(
    scheme: Scheme, score_s: float, late: LatePolicy, one: float, other: float
) -> None:
    sooner, later = sorted((one, other))
    first, second, nobody = grades(
        scheme, [handed(0, 1, score_s, late_s=sooner), handed(1, 2, score_s, late_s=later)], late=late
    )
    assert 100 >= first.points >= second.points >= 0
    assert (nobody.points, nobody.submission) == (0, None)


@given(schemes(), times, times, policies, st.floats(0, 2e6))
def test_another_submission_never_costs_anything(
    scheme: Scheme, score_s: float, other_s: float, late: LatePolicy, late_s: float
) -> None:
    before = grades(scheme, [handed(0, 1, score_s)], late=late)[0].points
    assert grades(scheme, [handed(0, 1, score_s), handed(0, 2, other_s, late_s=late_s)], late=late)[0].points >= before


@given(st.lists(st.tuples(times, st.floats(0, 0.5)), min_size=2, max_size=12))
def test_a_better_time_never_gets_fewer_points(measured: list[tuple[float, float]]) -> None:
    given_ = [handed(n, n, score_s, doubt) for n, (score_s, doubt) in enumerate(measured)]
    found = grades(RANKS, given_, people=len(measured))
    for one in found:
        for other in found:
            mine, theirs = given_[one.student.person_id], given_[other.student.person_id]
            assert mine.score_s is not None and theirs.score_s is not None
            if mine.score_s <= theirs.score_s:
                assert one.points >= other.points


@given(times, st.floats(0.001, 0.5), st.integers(2, 9))
def test_equal_times_measured_alike_are_tied(score_s: float, doubt: float, people: int) -> None:
    found = grades(RANKS, [handed(n, n, score_s, doubt) for n in range(people)], people=people)
    assert {one.points for one in found} == {100}


@given(st.lists(st.tuples(times, st.floats(0, 0.5)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_the_records_means_nothing(measured: list[tuple[float, float]], draw: Any) -> None:
    given_ = [handed(n % 4, n, score_s, doubt) for n, (score_s, doubt) in enumerate(measured)]
    mixed = draw.sample(given_, len(given_))
    for scheme in (TIME, RANKS):
        assert grades(scheme, given_, people=4) == grades(scheme, mixed, people=4)


@given(schemes(), st.floats(0, 1e9))
def test_points_lie_between_nothing_and_the_best_step(scheme: Scheme, value: float) -> None:
    assert 0 <= points_for(value, scheme) <= scheme.steps[0].points


def test_what_a_person_is_told() -> None:
    late = LatePolicy(percent=10, slip_days=1)
    found = grades(
        TIME,
        [
            handed(0, 1, None),
            handed(0, 2, 0.0035, 0.01),
            handed(0, 3, 0.0015, 0.01, late_s=2.5 * 86_400),
            handed(1, 4, 0.5),
            handed(1, 5, None),
        ],
        late=late,
    )
    assert [one.points for one in found] == [80, 40, 0]
    assert found[0].submission == 2, "the late one is worth 80 too, and this one came first"
    assert found[0].why == (
        "#2: the one that is worth most of 3 ranked submissions",
        "3.500 ms +0.035 −0.035: 80 of 100 points",
        "grade: 80",
    )
    assert found[1].why[1] == "500 ms; passing alone is worth 40: 40 of 100 points"
    assert found[2].why == ("no ranked submission: 0 points",)
    last = grades(dataclasses.replace(TIME, counts="last"), [handed(0, 3, 0.0015, late_s=2.5 * 86_400)], late=late)[0]
    assert (last.points, last.why[2]) == (80, "late by 2 d 12 h, 1 slip day used: 20 % of the points lost")
    failed = grades(TIME, [handed(0, 7, None)])[0]
    assert failed.why == ("1 ranked submission, none with a time that counts (the last, #7: wrong): 0 points",)


def test_a_team_has_one_grade_and_whoever_is_banned_none() -> None:
    blue = [dataclasses.replace(student(n), side="team:blue", team="blue") for n in (0, 1)]
    hers = dataclasses.replace(handed(0, 1, 0.0015), side="team:blue")
    one, other, eve = graded(Basis(students=(*blue, student(2, banned=True)), handed=(hers, handed(2, 2, 0.001))), TIME)
    assert one.points == other.points == 100 and "by p0 for team blue" in other.why[0]
    assert (eve.points, eve.why) == (0, ("banned: nothing counts, 0 points",))


def test_a_late_submission_has_the_rank_that_it_would_have_had_and_moves_nobody() -> None:
    rows = [handed(0, 1, 0.5), handed(1, 2, 0.4), handed(2, 3, 0.1, late_s=60)]
    ada, bea, cyd = grades(RANKS, rows)
    assert (ada.points, bea.points, cyd.points) == (90, 100, 100)


def test_ties_are_those_whose_intervals_overlap() -> None:
    a, b, c, d = handed(0, 1, 1.0, 0.1), handed(1, 2, 1.15, 0.1), handed(2, 3, 1.3, 0.1), handed(3, 4, 2.0, 0.1)
    assert [rank_among(one, [x for x in (a, b, c, d) if x is not one]) for one in (a, b, c, d)] == [
        (1, 1), (1, 2), (2, 1), (4, 0),
    ]  # fmt: skip


def test_whose_kernel_wavers_gains_no_rank_and_gives_nobody_one() -> None:
    """Launches that are slow on purpose make an interval as wide as one likes. It was tied with the best one then, and
    everybody between the two as well."""
    best, second, third = handed(0, 1, 1.0, 0.01), handed(1, 2, 1.5, 0.02), handed(2, 3, 2.0, 0.02)
    wide = dataclasses.replace(handed(3, 4, 3.0), low_s=0.4, high_s=25.0)
    every = (best, second, third, wide)
    assert [rank_among(one, [x for x in every if x is not one])[0] for one in every] == [1, 2, 3, 4]
    assert rank_among(best, [second, third, wide])[1] == 0


def test_light_and_speedup_are_told_where_they_are_unknown() -> None:
    light = parsed_scheme('by = "light"\n[[steps]]\nat_least = 0.5\npoints = 100\n')
    assert grades(light, [handed(0, 1, 0.5, light=0.6)])[0].points == 100
    unknown = grades(light, [handed(0, 1, 0.5)])[0]
    assert unknown.points == 0 and "isn't known" in unknown.why[1]
    speedup = parsed_scheme('by = "speedup"\nbetween = "line"\n[[steps]]\nat_least = 3\npoints = 100\n'
                            '[[steps]]\nat_least = 1\npoints = 50\n')  # fmt: skip
    found = grades(speedup, [handed(0, 1, 0.5, baseline_s=1.0), handed(1, 2, 2.0, baseline_s=1.0)])
    assert [one.points for one in found] == [75, 0, 0]
    assert "2 times as fast as the baseline's" in found[0].why[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("by = ", "isn't valid TOML"),
        ("points = 100", "no `by`"),
        ('by = "luck"', "`by` can't be 'luck'"),
        ('by = ["time"]', "`by` can't be"),
        ('by = "time"', "no `steps`"),
        ('by = "time"\nsteps = []', "no `steps`"),
        ('by = "time"\nsteps = 3', "no `steps`"),
        ('by = "time"\nsteps = [3]', "no `steps`"),
        ('by = "time"\n[[steps]]\npoints = 3', "`steps[1].at_most` is missing"),
        ('by = "time"\n[[steps]]\nat_most = "2 ms"', "`steps[1].points` is missing"),
        ('by = "time"\n[[steps]]\nat_most = 2\npoints = 3', "`steps[1].at_most` must be a time"),
        ('by = "time"\n[[steps]]\nat_most = "e ms"\npoints = 3', "`steps[1].at_most` must be a time"),
        ('by = "time"\n[[steps]]\nat_most = "2 ms"\npoints = 101', "`steps[1].points` must be between 0 and 100"),
        ('by = "time"\n[[steps]]\nat_most = "2 ms"\npoints = nan', "`steps[1].points` must be a number"),
        ('by = "time"\n[[steps]]\nat_most = "2 ms"\npoints = true', "`steps[1].points` must be a number"),
        ('by = "time"\n[[steps]]\nat_least = 2\npoints = 1', "no key `steps[1].at_least`"),
        ('by = "rank"\n[[steps]]\nup_to = 0\npoints = 1', "`steps[1].up_to` must be a rank"),
        ('by = "rank"\nbetween = "line"\n[[steps]]\nup_to = 1\npoints = 1', "`between` can't be a line"),
        ('by = "light"\n[[steps]]\nat_least = 2\npoints = 1', "`steps[1].at_least` must be between 0 and 1"),
        ('by = "speedup"\n[[steps]]\nat_least = inf\npoints = 1', "`steps[1].at_least` must be a number"),
        ('by = "time"\nbaseline = "1 s"\n[[steps]]\nat_most = "1 s"\npoints = 1', "`baseline` is only for"),
        ('by = "time"\ndecimals = 2.5\n[[steps]]\nat_most = "1 s"\npoints = 1', "`decimals` must be"),
        ('by = "time"\npassed = -1\n[[steps]]\nat_most = "1 s"\npoints = 1', "`passed` must be between"),
        ('by = "time"\ngpu = 3\n[[steps]]\nat_most = "1 s"\npoints = 1', "`gpu` must be"),
        ('by = "time"\nextra = 3', "no key `extra`"),
        ('by = "time"\ncounts = "worst"', "`counts` can't be 'worst'"),
        (
            'by = "rank"\n[[steps]]\nup_to = 1\npoints = 1\n[[steps]]\nup_to = 2\npoints = 2',
            "a better result can't be worth less",
        ),
        ('by = "rank"\n[[steps]]\nup_to = 1\npoints = 1\n[[steps]]\nup_to = 1\npoints = 1', "twice"),
        ("x = " + "[" * 5_000, "isn't valid TOML"),
        ("#" * 70_000, "too long"),
    ],
)
def test_a_hostile_scheme_gets_one_sentence_with_the_keys_name(text: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed_scheme(text)
    assert words in refused.value.message and "\n" not in refused.value.message


@given(st.text(max_size=200))
def test_any_text_is_a_scheme_or_one_sentence(text: str) -> None:
    told = ""
    try:
        parsed_scheme(text)
    except Invalid as refused:
        told = refused.message
    assert "\n" not in told
