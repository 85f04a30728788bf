"""Two texts beside each other: what is the same stands in one row, and nothing is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import side_by_side as sides
from kbslurm.domain.side_by_side import Row, Side, side_by_side

LINES = st.lists(st.sampled_from(["", "a", "b = 1", "  c", "d" * 5]), max_size=30).map("\n".join)


def text_of(side: Side | None) -> str | None:
    return None if side is None else side.before + side.changed + side.after


def kinds(rows: tuple[Row, ...]) -> list[str]:
    return [row.kind for row in rows]


def test_a_changed_line_says_where_it_changed() -> None:
    (row,) = side_by_side("x = blocks(32, 8)", "x = blocks(64, 8)").rows
    assert row.old == Side(number=1, before="x = blocks(", changed="32", after=", 8)")
    assert row.new == Side(number=1, before="x = blocks(", changed="64", after=", 8)")


def test_of_lines_with_little_in_common_no_part_is_marked() -> None:
    (row,) = side_by_side("return 1", "rows = [data[place] for place in range(size)]").rows
    assert row.kind == "changed" and row.old is not None and row.old.changed == ""


def test_lines_far_from_a_change_are_counted_and_left_out() -> None:
    before = [f"line {n}" for n in range(40)]
    after = [*before[:20], "new", *before[20:]]
    found = side_by_side("\n".join(before), "\n".join(after))
    assert (found.added, found.removed, found.cut) == (1, 0, False)
    assert kinds(found.rows) == ["gap", *["same"] * 3, "new", *["same"] * 3, "gap"]
    assert found.rows[0].skipped == found.rows[-1].skipped == 17
    new = found.rows[4].new
    assert new is not None and (new.number, new.before) == (21, "new")


def test_equal_texts_have_nothing_but_what_is_left_out() -> None:
    found = side_by_side("a\nb\nc", "a\nb\nc")
    assert (found.added, found.removed, kinds(found.rows)) == (0, 0, ["gap"])


def test_what_is_too_long_to_match_is_replaced_as_a_whole_and_cut() -> None:
    many = sides.MATCHED_CAP + 3_000
    one, other = ("\n".join(f"{word} {n}" for n in range(many)) for word in ("a", "b"))
    found = side_by_side(f"same\n{one}\nend", f"same\n{other}\nend")
    assert found.cut and len(found.rows) == sides.ROWS_CAP
    assert (found.added, found.removed) == (many, many)


@given(LINES, LINES)
def test_every_line_stands_in_one_row_or_in_a_gap(one: str, other: str) -> None:
    found = side_by_side(one, other)
    skipped = sum(row.skipped for row in found.rows)
    for side, text in (("old", one), ("new", other)):
        shown = [getattr(row, side) for row in found.rows if getattr(row, side) is not None]
        lines = text.splitlines()
        assert len(shown) + skipped == len(lines)
        assert [text_of(line) for line in shown] == [lines[line.number - 1] for line in shown]
        assert [line.number for line in shown] == sorted(line.number for line in shown)
    assert (found.added == found.removed == 0) == (one.splitlines() == other.splitlines())
