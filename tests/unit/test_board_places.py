"""What stands beside a score on a board: bars on one axis, gaps, changes since yesterday, what somebody looks for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from kbslurm.api.pages.boards.board_rows import Around, amount, gap, language, languages, percent, rows_shown, times
from kbslurm.api.pages.boards.found_places import PLAIN, Wanted, chosen
from kbslurm.api.pages.charts.intervals import intervals
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.rendering import took
from kbslurm.domain.amounts import ordinal
from kbslurm.domain.board import Entry, Measured, Ranking
from kbslurm.domain.tracks import NO_MOVES, Moves, Track, day_before, moves
from kbslurm.errors import Invalid

START = datetime(2026, 5, 1, 12, 40, tzinfo=UTC)


def timed(score_s: float, doubt: float = 0.01) -> Measured:
    return Measured(score_s=score_s, low_s=score_s * (1 - doubt), high_s=score_s * (1 + doubt))


def entry(n: int, score_s: float, name: str = "", file_name: str = "k.py", team: str | None = None) -> Entry:
    return Entry(
        person_id=n, person=name or f"p{n}", submission_id=n, run_id=n, score_s=score_s, low_s=score_s * 0.99,
        high_s=score_s * 1.01, at=START + timedelta(hours=n), file_name=file_name, team=team,
    )  # fmt: skip


class TestIntervals:
    def test_bars_overlap_where_their_intervals_do_and_only_there(self) -> None:
        rows = [timed(1.0, 0.05), timed(1.04, 0.05), timed(1.5, 0.01)]
        first, second, third = intervals(rows, written=took).bars
        assert first.low + first.wide > second.low and second.low + second.wide < third.low
        for bar in (first, second, third):
            assert 0 <= bar.low <= bar.at <= bar.low + bar.wide <= 100

    def test_the_ticks_stand_where_their_values_would(self) -> None:
        drawn = intervals([timed(2e-3), timed(6e-3)], written=took)
        (tick,) = (one for one in drawn.ticks if one.text == "4 ms")
        (bar,) = intervals([timed(2e-3), timed(6e-3), timed(4e-3)], written=took).bars[2:]
        assert tick.at == pytest.approx(bar.at, abs=0.01)

    def test_far_apart_they_stand_on_a_logarithmic_axis(self) -> None:
        drawn = intervals([timed(1e-3), timed(1e-2), timed(1e-1)], written=took)
        one, two, three = (bar.at for bar in drawn.bars)
        assert drawn.is_log and two - one == pytest.approx(three - two, abs=0.1)
        assert not intervals([timed(1e-3), timed(2e-3)], written=took).is_log

    def test_a_noisy_one_doesnt_stretch_the_axis(self) -> None:
        quiet = [timed(1.0), timed(1.2)]
        noisy = Measured(score_s=1.1, low_s=1e-9, high_s=4000.0)
        drawn = intervals([*quiet, noisy], written=took)
        assert [one.at for one in drawn.bars[:2]] == [one.at for one in intervals(quiet, written=took).bars]
        assert drawn.bars[2].low == 0 and drawn.bars[2].wide == 100

    @pytest.mark.parametrize("high", [1.001, 1.3, 2.5, 7.0, 60.0, 5000.0])
    def test_no_two_ticks_are_written_over_one_another(self, high: float) -> None:
        drawn = intervals([timed(1.0), timed(high)], written=took)
        ends = 0.0
        for tick in drawn.ticks:
            begins = tick.at - {"start": 0.0, "middle": 8.5, "end": 17.0}[tick.anchor]
            assert begins >= ends, drawn.ticks
            ends = begins + 17.0
        assert ends <= 105 and len(drawn.ticks) >= 2

    def test_one_row_and_none_can_be_drawn(self) -> None:
        assert intervals([], written=took).bars == ()
        (bar,) = intervals([timed(1.0, 0.0)], written=took).bars
        assert 0 < bar.at < 100 and bar.wide > 0, "a score without an interval still shows"


def test_gaps_are_percentages_and_then_multiples() -> None:
    told = [gap(timed(score_s), timed(1.0)) for score_s in (1.0, 1.061, 1.99, 2.0, 31.96, 4321.0)]
    assert told == ["+0.0 %", "+6.1 %", "+99.0 %", "2.00×", "32.0×", "4,321×"]
    assert times(0.5) == "0.50×" and [percent(one) for one in (0.39333, 0.35, 0.00391)] == [
        "39.3 %",
        "35.0 %",
        "0.39 %",
    ]


def test_a_score_comes_in_two_pieces_that_are_the_whole() -> None:
    assert amount(timed(1.62e-3, 0.01)) == {
        "score": "1.620 ms +0.016 −0.016", "value": "1.620 ms", "doubt": "+0.016 −0.016",
    }  # fmt: skip
    noisy = amount(timed(1.0, 0.4))
    assert (noisy["value"], noisy["doubt"]) == ("1.00 s", "noisy: spread 40 %")
    assert amount(Measured(score_s=1.0, low_s=1.0, high_s=1.0)) == {"score": "1.00 s", "value": "1.00 s", "doubt": ""}


def test_languages_are_offered_where_there_are_several() -> None:
    files = ("k.py", "K.CU", "k.cuh", "k.cpp", "", "noending")
    assert [language(name) for name in files] == ["Python", "CUDA", "CUDA", "C++", "", ""]
    entries = [entry(n, 1.0, file_name=name) for n, name in enumerate(files)]
    assert languages(entries) == ["C++", "CUDA", "Python"]
    assert languages(entries[1:3]) == [] == languages([])


def test_the_time_that_is_left_is_said_as_people_say_it() -> None:
    for rest, words in (
        (timedelta(days=40), "40 days"),
        (timedelta(days=2, hours=23), "2 days 23 h"),
        (timedelta(days=1, minutes=4), "1 day"),
        (timedelta(hours=1, minutes=1), "1 h 1 min"),
        (timedelta(hours=3, seconds=7), "3 h"),
        (timedelta(minutes=12, seconds=59), "12 min"),
        (timedelta(seconds=5), "less than a minute"),
        (timedelta(0), ""),
        (timedelta(seconds=-5), ""),
    ):
        assert left(START + rest, START) == words
    assert left(None, START) == ""
    assert left(START + timedelta(days=26_696), START) == "", "nobody counts the days to that"
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1234)] == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1,234th".split()
    )


class TestMoves:
    def test_places_are_compared_with_those_of_the_day_before(self) -> None:
        now = Ranking([entry(1, 1.0), entry(2, 2.0), entry(3, 3.0)])
        before: dict[int | str, float] = {1: 9.0, 2: 2.0, 3: 3.0}
        found = moves(now, {side: Track(entries=1, before_s=score_s) for side, score_s in before.items()})
        assert found.ranks == {1: 3, 2: 1, 3: 2} and found.improved == 1 and found.changed

    def test_whoever_is_new_has_no_place_to_compare_with(self) -> None:
        now = Ranking([entry(1, 1.0), entry(2, 2.0)])
        tracks: dict[int | str, Track] = {1: Track(entries=1, before_s=None), 2: Track(entries=4, before_s=2.0)}
        found = moves(now, tracks)
        assert found.ranks == {2: 1} and found.improved is None and found.changed
        assert moves(now, {1: Track(entries=1, before_s=None)}) == NO_MOVES, "nobody ranked yesterday"

    def test_without_a_change_there_are_none(self) -> None:
        now = Ranking([entry(1, 1.0), entry(2, 1.0)])
        same: dict[int | str, Track] = {side: Track(entries=1, before_s=1.0) for side in (1, 2)}
        assert not moves(now, same).changed and moves(now, same).improved is None
        slightly: dict[int | str, Track] = {**same, 2: Track(entries=2, before_s=1.004)}
        assert moves(now, slightly).improved is None, "within what never decides a rank"

    def test_the_day_before_is_looked_up_once_an_hour(self) -> None:
        assert day_before(START) == datetime(2026, 4, 30, 12, tzinfo=UTC)
        assert day_before(START) == day_before(START + timedelta(minutes=19)) != day_before(START + timedelta(hours=1))


class TestWanted:
    ranking = Ranking([
        entry(1, 1.0, "Zoe", "a.cu"), entry(2, 2.0, "adam"), entry(3, 3.0, "Ada"), entry(4, 4.0, "Bea", "b.cu")
    ])  # fmt: skip
    tracks: Mapping[int | str, Track] = {
        n: Track(entries=entries, before_s=1.0) for n, entries in ((1, 1), (2, 9), (3, 3))
    }
    moved = Moves(ranks={1: 2, 2: 1, 4: 9}, improved=None, changed=True)

    def found(self, people: frozenset[int] | None = None, **asked: str) -> list[int]:
        wanted = Wanted.of(**{"q": "", "language": "", "section": "", "sort": "", **asked})
        return [n + 1 for n in chosen(self.ranking, wanted, self.tracks, self.moved, people)]

    def test_by_name_language_and_people(self) -> None:
        assert self.found() == [1, 2, 3, 4]
        assert self.found(q=" AD ") == [2, 3] and self.found(q="x") == []
        assert self.found(language="CUDA") == [1, 4] and self.found(language="Fortran") == []
        assert self.found(frozenset({2, 4})) == [2, 4] and self.found(frozenset(), q="a") == []

    def test_in_the_order_that_is_asked_for(self) -> None:
        assert self.found(sort="name") == [3, 2, 4, 1]
        assert self.found(sort="entries") == [2, 3, 1, 4]
        assert self.found(sort="newest") == [4, 3, 2, 1]
        assert self.found(sort="change") == [4, 1, 3, 2]
        with pytest.raises(Invalid, match="isn't an order of places"):
            self.found(sort="random")

    def test_an_address_says_all_of_it(self) -> None:
        assert PLAIN.is_plain and PLAIN.query(start=100) == "?from=100"
        wanted = Wanted.of(q="a&b", language="CUDA", section="", sort="name")
        assert wanted.query() == "?q=a%26b&language=CUDA&sort=name"
        assert wanted.query(sort="place", start=0) == "?q=a%26b&language=CUDA&from=0"
        assert wanted.narrows and not Wanted.of(q=" ", language="", section="", sort="name").narrows


def test_columns_stand_only_where_there_is_something_in_them() -> None:
    ranking = Ranking([entry(1, 1.0, file_name=""), entry(2, 2.0, file_name="")])
    found = [(ranking[0], None), (ranking[1], ranking.entries[0])]
    bare = rows_shown(found, Around())
    assert not (bare.moved or bare.files or bare.based or bare.lit or bare.counted)
    full = rows_shown(found, Around(leader=ranking.entries[0], first=2, record=1, base_s=4.0))
    assert full.based and [row["speed"] for row in full.rows] == ["4.00×", "2.00×"]
    assert [row["behind"] for row in full.rows] == ["", "2.00×"] == [row["next"] for row in full.rows]
    assert [row["is_record"] for row in full.rows] == [True, False] != [row["was_first"] for row in full.rows]
