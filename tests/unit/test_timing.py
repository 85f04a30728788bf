"""What times come to: no data may make a score zero, an interval miss its score, or a slowed null call flatter."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.board import Measured, separated
from kbslurm_eval.shared import timing

POSITIVE = st.floats(min_value=1.0, max_value=1e12)


def test_the_quantiles_are_students() -> None:
    assert timing.t95(1) == pytest.approx(12.7062)
    assert timing.t95(4) == pytest.approx(2.7764)
    assert timing.t95(30) == pytest.approx(2.0423)
    assert timing.t95(35) == timing.t95(30)
    assert timing.t95(1000) == pytest.approx(1.9799)
    with pytest.raises(ValueError):
        timing.t95(0)


@given(st.lists(POSITIVE, min_size=1, max_size=12))
def test_an_interval_contains_its_value(values: list[float]) -> None:
    found = timing.interval(values)
    assert 0 < found.low <= found.value <= found.high


def test_the_interval_covers_as_often_as_it_says() -> None:
    source, hits, rounds = random.Random(7), 0, 2000
    for _ in range(rounds):
        found = timing.interval([1000.0 * math.exp(source.gauss(0, 0.02)) for _ in range(5)])
        hits += found.low <= 1000.0 <= found.high
    assert 0.93 <= hits / rounds <= 0.97


@given(
    st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE), min_size=2, max_size=6), st.sampled_from(["last", "mean", "geom"])
)
def test_every_way_of_ranking_lies_between_the_cases(rows: list[tuple[float, float, float]], ranking_by: str) -> None:
    cases = [list(case) for case in zip(*rows, strict=True)]
    found = timing.combined([[_net(value) for value in case] for case in cases], ranking_by)  # type: ignore[arg-type]
    assert min(map(min, cases)) * 0.999 <= found.value <= max(map(max, cases)) * 1.001


def test_last_looks_at_the_last_case_only() -> None:
    one, four, five = ([_net(value)] * 2 for value in (1.0, 4.0, 5.0))
    assert timing.combined([one, five], "last").value == pytest.approx(5.0)
    assert timing.combined([one, five], "mean").value == pytest.approx(3.0)
    assert timing.combined([one, four], "geom").value == pytest.approx(2.0)


def _net(median_ns: float, leeway_ns: float = 0.0, baseline_ns: float | None = None) -> timing.Net:
    return timing.Net(
        median_ns=median_ns,
        null_ns=0.0,
        samples_ns=[median_ns],
        resolved=True,
        baseline_ns=baseline_ns,
        leeway_ns=leeway_ns,
    )


@given(
    hides=st.floats(min_value=1e3, max_value=1e9),
    share=st.floats(min_value=0, max_value=1),
    baseline=st.one_of(st.none(), st.floats(min_value=1e3, max_value=1e9)),
)
def test_who_hides_all_that_can_be_hidden_is_not_ahead_by_more_than_the_intervals(
    hides: float, share: float, baseline: float | None
) -> None:
    leeway = share * hides
    found = [timing.combined([[_net(t, leeway, baseline)] * 5], "geom") for t in (hides, hides + leeway)]
    seconds = [Measured(score_s=one.value, low_s=one.low, high_s=one.high) for one in found]
    assert not separated(*seconds)
    assert found[0].high >= found[1].low
    assert all(one.low <= one.value <= one.high for one in found)


def _beside(own: float, beside: float, alone: float | None) -> timing.Net:
    return replace(_net(own, baseline_ns=beside), baseline_alone_ns=alone)


NEARLY = (0.98, 1.01, 1.0, 1.02, 0.99)


@pytest.mark.parametrize("ranking_by", ["geom", "mean", "last"])
def test_who_slows_the_baseline_by_whatever_means_is_not_ahead_beyond_the_interval(
    ranking_by: timing.RankingBy,
) -> None:
    slows = [_beside(1e6 * x, 3e6 / x, 1e6) for x in NEARLY]
    twin = [_beside(1e6 * x, 1e6 / x, 1e6) for x in NEARLY]
    found, plain = (timing.in_units([nets], [1.0], ranking_by) for nets in (slows, twin))
    assert found.value == pytest.approx(plain.value / 3) and found.high > plain.value
    assert not separated(*(Measured(score_s=one.value, low_s=one.low, high_s=one.high) for one in (found, plain)))
    assert timing.figures(slows)["ratio_high"] == pytest.approx(found.high)
    assert timing.slower_beside([slows], ranking_by) == pytest.approx([3] * 5, rel=0.05)
    assert timing.in_units([twin], [1.0], ranking_by).high < 1.06
    # of two cases, where that is all that counts
    short = [_beside(1e3 * x, 1e3 / x, 1e3) for x in NEARLY]
    found, plain = (timing.in_units([short, nets], [1e3, 1e6], ranking_by) for nets in (slows, twin))
    assert found.high > plain.value


def test_a_busy_machine_makes_an_interval_hardly_wider() -> None:
    rng, wider = random.Random(7), []
    for _ in range(400):
        own, beside, alone = ([1e6 * math.exp(rng.gauss(0, 0.1)) for _ in range(5)] for _ in range(3))
        with_it = [_beside(*each) for each in zip(own, beside, alone, strict=True)]
        plain = [replace(one, baseline_alone_ns=None) for one in with_it]
        found = timing.in_units([with_it], [1.0], "geom")
        without = timing.in_units([plain], [1.0], "geom")
        assert (found.value, found.low) == (without.value, without.low) and found.high >= without.high
        wider.append(found.high / without.high)
    assert statistics.fmean(wider) < 1.03 and statistics.median(wider) == 1.0


@pytest.mark.parametrize(
    "found",
    [
        [_net(1e6)] * 5,  # there is no baseline
        [_beside(1e6, 3e6, 1e6)],  # one launch says nothing
        [],
    ],
)
def test_an_interval_reaches_no_further_where_nothing_is_known(found: list[timing.Net]) -> None:
    assert timing.before_it_came([found], "geom") == (0.0, 0.0)


def test_a_baseline_that_was_slower_before_changes_nothing() -> None:
    slower = [_beside(1e6 * x, 1e6 / x, 2e6) for x in NEARLY]
    plain = [replace(one, baseline_alone_ns=None) for one in slower]
    assert timing.in_units([slower], [1.0], "geom") == timing.in_units([plain], [1.0], "geom")
    assert timing.slower_beside([plain], "geom") == [1.0] * 5, "nobody has looked"


@pytest.mark.parametrize("times", [2, 4])
def test_a_launch_in_which_all_is_slow_hides_nothing(times: float) -> None:
    """It made the interval of how many times so wide that nothing could be told."""
    slows = [_beside(1e6 * x, times * 1e6, 1e6) for x in NEARLY]
    slows[2] = _beside(100e6, times * 100e6, 1e6)
    found = timing.in_units([slows], [1.0], "geom")
    assert found.value == pytest.approx(1 / times, rel=0.05) and found.high > 0.95


@pytest.mark.parametrize("launches", [5, 9, 10, 15, 20])
def test_nobody_is_ahead_by_slowing_the_baseline_in_some_launches_and_all_in_others(launches: int) -> None:
    rng = random.Random(launches)
    for _ in range(500):
        slower = [rng.choice([1, 1, 1.2, 2, 8, 1000]) for _ in range(launches)]
        own = [rng.choice([1, 1, 1, 1, 100]) for _ in range(launches)]
        nets = [_beside(1e6 * g, 1e6 * f * (1 if f == 1 else g), 1e6) for f, g in zip(slower, own, strict=True)]
        assert timing.in_units([nets], [1.0], "geom").high >= 0.999, (slower, own)


def _some_long(
    rng: random.Random, usual: float, long: float = 0.0, *, share: float = 0.1, calls: int = 30
) -> list[int]:
    """Calls in µs, of which a share takes so long."""
    many = round(share * calls) if long else 0
    return [5_000 + round(1e3 * us * math.exp(rng.gauss(0, 0.02))) for us in [long] * many + [usual] * (calls - many)]


@pytest.mark.parametrize(
    ("own", "beside"),
    [
        ((330, 7_030), (1_000, 7_000)),
        ((330, 7_030), (1_000, 11_000)),
        ((671, 4_290), (2_000, 0)),
        ((330, 7_030), (2_000, 0)),
    ],
)
def test_whoever_puts_work_off_and_slows_the_baseline_in_its_tail_or_at_all_is_not_ahead(
    own: tuple[float, float], beside: tuple[float, float]
) -> None:
    """It works 1,000 µs in the mean of its calls, as the baseline alone: a few long ones of that excused its own."""
    nets = [timing.net(one) for one in _launches(own, beside)]
    assert timing.in_units([nets], [1.0], "geom", 5).high > 0.97
    assert timing.in_units([nets, nets], [1.0, 1.0], "geom", 5).high > 0.97, "nor with two cases"


def test_what_is_put_off_is_in_an_interval_once() -> None:
    nets = [timing.net(one) for one in _launches((330, 7_030), (1_000, 0))]
    assert 0.97 < timing.in_units([nets], [1.0], "geom", 5).high < 1.05


def _launches(own: tuple[float, float], beside: tuple[float, float]) -> list[timing.LaunchTimes]:
    rng, launches = random.Random(5), []
    for _ in range(5):
        nulls = [round(5_000 * math.exp(rng.gauss(0, 0.02))) for _ in range(8)]
        base = timing.LaunchTimes(calls_ns=_some_long(rng, *beside), trusted_null_ns=nulls, bare_null_ns=nulls)
        alone = _some_long(rng, 1_000, calls=6)
        launches.append(
            timing.LaunchTimes(
                calls_ns=_some_long(rng, *own), trusted_null_ns=nulls, bare_null_ns=nulls, baseline=base, alone_ns=alone
            )
        )
    return launches


def test_honest_calls_that_are_long_now_and_then_make_an_interval_hardly_wider() -> None:
    rng, wider = random.Random(3), []
    for _ in range(200):
        found, plain = [], []
        for _ in range(5):
            slow, nulls = rng.uniform(0, 0.15), [5_000] * 8
            calls, beside, alone = (
                _some_long(rng, 1_000, rng.uniform(1_500, 6_000), share=slow, calls=many) for many in (30, 30, 6)
            )
            base = timing.LaunchTimes(calls_ns=beside, trusted_null_ns=nulls)
            one = timing.LaunchTimes(calls_ns=calls, trusted_null_ns=nulls, baseline=base, alone_ns=alone)
            found.append(timing.net(one))
            plain.append(timing.net(replace(one, alone_ns=[])))
        with_it, without = (timing.in_units([each], [1.0], "geom", 5) for each in (found, plain))
        assert (with_it.value, with_it.low) == (without.value, without.low)
        wider.append(with_it.high / without.high)
    assert statistics.fmean(wider) < 1.05 and statistics.median(wider) < 1.03


def test_what_a_baseline_takes_alone_is_less_the_same_null_call() -> None:
    base = timing.LaunchTimes(calls_ns=[9_000] * 9, trusted_null_ns=[1_000] * 8)
    times = timing.LaunchTimes(
        calls_ns=[5_000] * 9, trusted_null_ns=[700] * 8, baseline=base, alone_ns=[4_000, 5_000, 90_000]
    )
    found = timing.net(times)
    assert (found.baseline_ns, found.baseline_alone_ns) == (8_000, 4_000)
    assert timing.net(replace(times, alone_ns=[])).baseline_alone_ns is None
    sample = timing.of_launch("ranked", 0, 0, times)
    assert timing.nets([sample], "ranked", 0) == [found]


def test_what_is_shorter_than_what_could_be_hidden_is_not_resolved() -> None:
    times = timing.LaunchTimes(calls_ns=[2_500] * 9, trusted_null_ns=[300] * 8, leeway_ns=[3_100] * 8)
    found = timing.net(times)
    assert not found.resolved and found.median_ns == 3_100


def test_the_interval_grows_by_what_could_be_hidden_on_both_sides_and_only_there() -> None:
    without = timing.combined([[_net(t) for t in (99e3, 100e3, 101e3)]], "geom")
    with_it = timing.combined([[_net(t, 2e3) for t in (99e3, 100e3, 101e3)]], "geom")
    assert with_it.value == without.value
    assert with_it.high - without.high == pytest.approx(2e3 * timing.LEEWAY_SHARE, rel=0.02)
    assert without.low - with_it.low == pytest.approx(2e3 * timing.LEEWAY_SHARE, rel=0.02)
    figures = timing.figures([_net(t, 2e3, 50e3) for t in (99e3, 100e3, 101e3)])
    assert figures["ratio_high"] == pytest.approx(with_it.high / 50e3) and figures["high_ns"] == with_it.high
    assert timing.in_units([[_net(t, 2e3, 50e3) for t in (99e3, 100e3, 101e3)]], [50e3], "geom") == with_it


def _times(calls: list[int], trusted: list[int], seen: list[int]) -> timing.LaunchTimes:
    return timing.LaunchTimes(calls_ns=calls, trusted_null_ns=trusted, null_ns=seen)


def test_slowed_null_calls_gain_nothing_and_fast_ones_cost() -> None:
    plain = timing.net(_times([10_000] * 9, [2_000] * 9, [2_000] * 9))
    assert plain.median_ns == 8_000
    assert timing.net(_times([10_000] * 9, [2_000] * 9, [9_999] * 9)) == plain
    assert timing.net(_times([10_000] * 9, [2_000] * 9, [500] * 9)).median_ns == 9_500


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=9),
    st.lists(st.integers(1, 10**9), min_size=2, max_size=9),
    st.lists(st.integers(1, 10**9), max_size=5),
)
def test_a_net_time_is_never_zero(calls: list[int], trusted: list[int], seen: list[int]) -> None:
    found = timing.net(_times(calls, trusted, seen))
    assert found.median_ns >= timing.LEAST_NS
    if found.resolved:
        assert found.median_ns == statistics.median(found.samples_ns)


def test_a_call_as_short_as_the_null_call_is_marked_and_bounded() -> None:
    found = timing.net(_times([2_000] * 9, [2_000] * 9, []))
    assert not found.resolved
    assert found.median_ns == timing.LOOP_NS


def test_the_budget_depends_on_the_reference_only() -> None:
    def calls(reference_s: float) -> int:
        return timing.budgeted_calls(calls=30, max_calls=300, target_s=0.5, reference_s=reference_s)

    assert [calls(s) for s in (0.0, 1e-6, 0.01, 0.05, 1.0, 100.0)] == [30, 30, 30, 10, 5, 5]
    assert timing.budgeted_calls(calls=3, max_calls=300, target_s=0.5, reference_s=9.0) == 3


def test_what_slows_a_launch_as_a_whole_is_not_in_a_paired_score() -> None:
    def launch(factor: float) -> timing.Net:
        times = _times([int(9_000 * factor) + 1_000] * 5, [1_000] * 5, [])
        times.baseline = _times([int(3_000 * factor) + 1_000] * 5, [1_000] * 5, [])
        return timing.net(times)

    nets = [launch(f) for f in (1.0, 1.5, 2.0)]
    figures = timing.paired(nets)
    assert max(figures) == pytest.approx(min(figures))
    base = timing.baseline_of(nets)
    assert base is not None
    assert figures[0] == pytest.approx(3 * base)
    assert timing.baseline_of([timing.net(_times([9_000] * 3, [1_000] * 3, []))]) is None


def _uneven(calls: list[int], base: list[int]) -> timing.Net:
    trusted = [1_000] * 8
    times = timing.LaunchTimes(
        calls_ns=calls, trusted_null_ns=trusted, baseline=timing.LaunchTimes(calls_ns=base, trusted_null_ns=trusted)
    )
    return timing.net(times)


def test_who_does_the_work_of_three_calls_in_one_of_them_isnt_ahead_beyond_the_interval() -> None:
    """No median shows it. In the mean it is all there."""
    base = [10_001_000] * 12
    third = [25_001_000, 2_501_000, 2_501_000] * 4
    found = timing.figures([_uneven(third, base) for _ in range(5)])
    assert found["ratio"] == pytest.approx(1 / timing.TAIL_TIMES)
    assert found["ratio_low"] == pytest.approx(0.25)
    assert found["ratio_high"] > 0.85
    assert found["high_ns"] > 8_500_000


def test_a_burst_in_some_launches_makes_no_interval_wider() -> None:
    base = [10_001_000] * 30
    burst = [10_001_000] * 27 + [90_001_000] * 3
    found = timing.figures([_uneven(burst, base)] * 2 + [_uneven(base, base)] * 3)
    assert (found["ratio"], found["ratio_high"]) == (pytest.approx(1.0), pytest.approx(1.0))


def test_work_that_is_put_off_until_a_tenth_of_the_calls_isnt_ahead_beyond_the_interval() -> None:
    """Three of thirty calls clear the tables of all: those aren't in a launch's own mean."""
    base = [10_001_000] * 30
    tenth = [2_001_000] * 27 + [82_001_000] * 3
    found = timing.figures([_uneven(tenth, base) for _ in range(5)])
    assert found["ratio"] == pytest.approx(1 / timing.TAIL_TIMES)
    assert found["ratio_low"] == pytest.approx(0.2)
    assert found["ratio_high"] > 0.95
    assert found["high_ns"] > 9_500_000


def test_a_machine_that_is_busy_for_both_widens_no_ratio() -> None:
    burst = [10_001_000] * 27 + [90_001_000] * 3
    found = timing.figures([_uneven(burst, burst) for _ in range(5)])
    assert found["ratio_high"] == pytest.approx(1.0)


def test_means_are_no_narrower_than_medians() -> None:
    draw = random.Random(3)
    for _ in range(50):
        calls = [[int(1e6 * draw.lognormvariate(0, 0.2)) for _ in range(30)] for _ in range(10)]
        nets = [_uneven(one, other) for one, other in zip(calls[:5], calls[5:], strict=True)]
        plain = timing.interval(timing.ratios(nets) or [])
        found = timing.figures(nets)
        assert found["ratio"] == plain.value
        assert found["ratio_low"] <= plain.low and found["ratio_high"] >= plain.high


@pytest.mark.parametrize(("launches", "counts"), [(2, False), (3, True)])
def test_a_score_has_what_is_put_off_until_a_few_calls(launches: int, counts: bool) -> None:
    """Otherwise its author stands first on a board, as one that is tied with others. In one or two launches a busy
    machine does as much."""
    tenth = [201_000] * 27 + [98_001_000] * 3
    nets = [_uneven(tenth, TEN) for _ in range(launches)]
    for found in (timing.combined([nets], "geom"), timing.in_units([nets], [1e7], "geom")):
        assert found.value / found.high == pytest.approx(1 / timing.TAIL_TIMES if counts else 0.02, rel=0.05)
        assert found.low / found.high == pytest.approx(0.02, rel=0.05)


def test_calls_that_are_a_third_longer_in_the_mean_change_no_score() -> None:
    rare = [8_001_000] * 26 + [34_001_000] * 4
    found = timing.combined([[_uneven(rare, TEN) for _ in range(5)]], "geom")
    assert found.value == pytest.approx(8e6) and found.high > 11e6


def test_without_a_baseline_a_score_is_what_is_typical() -> None:
    calls = [201_000] * 27 + [98_001_000] * 3
    nets = [timing.net(_times(calls, [1_000] * 8, [])) for _ in range(5)]
    found = timing.combined([nets], "geom")
    assert found.value == pytest.approx(200_000) and found.high > 9e6


TEN, TWO = [10_001_000] * 30, [2_001_000] * 30
FOR_BOTH = [2_001_000] * 27 + [162_001_000] * 3  # the tables of all sixty calls are cleared here


@pytest.mark.parametrize("ranking_by", ["geom", "mean"])
def test_work_that_is_put_off_until_calls_of_another_case_in_each_launch_isnt_ahead_beyond_the_interval(
    ranking_by: timing.RankingBy,
) -> None:
    """No case shows it in most launches, all of them together do."""
    first = [_uneven(FOR_BOTH if n % 2 else TWO, TEN) for n in range(4)] + [_uneven(TWO, TEN)]
    second = [_uneven(TWO if n % 2 else FOR_BOTH, TEN) for n in range(4)] + [_uneven(TWO, TEN)]
    cases = [first, second]
    assert [timing.figures(case)["ratio_high"] for case in cases] == [pytest.approx(0.2)] * 2
    for found in (timing.in_units(cases, [1.0, 1.0], ranking_by), timing.combined(cases, ranking_by)):
        assert found.high / found.low > 4.8
        assert found.value == pytest.approx(found.high / timing.TAIL_TIMES)


FEW, MANY = [2_001_000] * 27 + [82_001_000] * 3, [2_001_000] * 18 + [22_001_000] * 12


@pytest.mark.parametrize(("some", "others"), [(FEW, MANY), (FEW, TEN), (MANY, TEN)])
def test_work_that_is_put_off_until_more_calls_in_some_launches_than_in_others_isnt_ahead_beyond_the_interval(
    some: list[int], others: list[int]
) -> None:
    """All launches take equally long. In those with many slow calls few seemed to be put off, and in those with few the
    mean without them seemed short."""
    nets, plain = [_uneven(some if n % 2 else others, TEN) for n in range(5)], [_uneven(TEN, TEN) for n in range(5)]
    for found, twin in (
        (timing.in_units([nets], [1.0], "geom"), timing.in_units([plain], [1.0], "geom")),
        (timing.combined([nets], "geom"), timing.combined([plain], "geom")),
    ):
        assert found.high > 0.99 * twin.value
        assert found.value > 0.99 * twin.value / timing.TAIL_TIMES


def test_a_longer_case_beside_it_hides_nothing_that_is_put_off_in_some_launches() -> None:
    """Together they took as long as one might think; where cases count alike the short one was ahead."""
    short, alike = [_uneven(FEW if n % 2 else MANY, TEN) for n in range(5)], [_uneven(TEN, TEN) for n in range(5)]
    long = [_uneven([1000 * ns for ns in TEN], [1000 * ns for ns in TEN]) for _ in range(5)]
    found, twin = (timing.in_units([one, long], [1.0, 1.0], "geom") for one in (short, alike))
    assert found.high > 0.99 * twin.value
    assert timing.put_off([short, long], "geom") == pytest.approx(5**0.5, rel=0.1)


def test_bursts_in_some_launches_make_no_interval_of_several_cases_wider() -> None:
    burst = [10_001_000] * 27 + [90_001_000] * 3
    cases = [[_uneven(burst if n == case else TEN, TEN) for n in range(5)] for case in range(2)]
    found = timing.in_units(cases, [1.0, 2.0], "geom")
    assert found.high == pytest.approx(found.value)


def test_a_machine_that_is_busy_for_both_in_turns_widens_no_ratio() -> None:
    burst = [10_001_000] * 27 + [90_001_000] * 3
    one = [_uneven(burst, burst) if n % 2 else _uneven(TEN, TEN) for n in range(5)]
    other = [_uneven(TEN, TEN) if n % 2 else _uneven(burst, burst) for n in range(5)]
    found = timing.in_units([one, other], [1.0, 1.0], "geom")
    assert found.high == pytest.approx(found.value)
    assert timing.combined([one, other], "geom").high > 1.1 * found.value, "without what it does to the baseline"


def test_one_case_is_counted_as_alone() -> None:
    nets = [_uneven([5_001_000 + 7 * n, *TWO], TEN) for n in range(5)]
    assert timing.in_turns([nets]) == timing.in_turns([nets], beside=True) == 1.0
    assert timing.in_units([nets], [1.0], "geom").high == pytest.approx(timing.figures(nets)["ratio_high"])


def test_how_much_is_put_off_until_a_few_calls_is_told_beside_the_baseline() -> None:
    third = [25_001_000, 2_501_000, 2_501_000] * 10
    put_off = [_uneven(third, TEN) for _ in range(5)]
    assert timing.put_off([put_off], "geom") == pytest.approx(4.0, abs=0.01)
    plain = [_uneven(TWO, TEN) for _ in range(5)]
    assert timing.put_off([plain], "last") == pytest.approx(1.0)
    assert timing.put_off([plain, put_off], "geom") == pytest.approx(2.0, abs=0.01)
    busy = [_uneven(third, third) for _ in range(5)]
    assert timing.put_off([busy], "geom") == pytest.approx(1.0)
    alone = [timing.net(_times([9_000] * 3, [1_000] * 3, []))]
    assert timing.put_off([alone], "geom") is None and timing.put_off([], "geom") is None
