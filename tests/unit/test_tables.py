"""Tables in terminals of any width: nothing is cut, and what fits stays on its line."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from kbslurm.cli.output import printing

HEADINGS = ("rank", "person", "score", "when", "submission", "file")
ROWS = [
    ("1 (1–2)", "adelaide-of-the-long-name", "41.8 µs +0.3 −0.2", "2026-05-01 12:00:00 UTC", "#412", "kernel_v17.py"),
    ("2", "[bold]bob[/]", "43.1 µs +0.3 −0.2", "2026-05-01 12:00:00 UTC", "#9", "a b c d e f g h i j k l m n o p q.py"),
]


def shown(width: int, rows: Sequence[Sequence[str]] = ROWS) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(printing.laid_out(HEADINGS, rows, width, title="transpose · H100"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", range(16, 150))
def test_a_table_fits_and_cuts_nothing(width: int) -> None:
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    letters = sorted(re.sub(r"\s", "", text.replace("transpose · H100", "", 1)))
    told = "".join(cell for row in ROWS for cell in row).replace("[bold]", "").replace("[/]", "")
    for letter in set(re.sub(r"\s", "", told)):
        assert letters.count(letter) >= told.count(letter), (letter, text)
    assert "…" not in text and "[bold]" not in text


def test_at_eighty_columns_a_row_keeps_its_short_cells_on_one_line() -> None:
    lines = shown(80).splitlines()
    assert any(line.startswith("1 (1–2)") and "41.8 µs" in line and "#412" in line for line in lines), lines
    assert lines[1].split() == list(HEADINGS)


def test_a_table_that_fits_is_on_one_line_each() -> None:
    assert len(shown(140).splitlines()) == 2 + len(ROWS)


def test_in_a_sliver_each_cell_stands_behind_its_heading() -> None:
    lines = [line.split() for line in shown(36, [("1", "ada", "1 s", "now", "#1", "k.py")]).splitlines()]
    assert [line[:2] for line in lines[1:]] == [
        ["rank", "1"], ["person", "ada"], ["score", "1"], ["when", "now"], ["submission", "#1"], ["file", "k.py"],
    ]  # fmt: skip
