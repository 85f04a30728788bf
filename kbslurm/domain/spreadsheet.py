"""Tables as CSV that people open in a spreadsheet, which must not take what somebody wrote for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
QUOTE = "'"


def inert(value: Any) -> Any:
    """A cell that a spreadsheet shows and doesn't run: people choose their own names and file names."""
    return f"{QUOTE}{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_written(cell: str) -> str:
    """The text of a cell that `inert` may have quoted, so that what we export can be imported again."""
    return cell[1:] if cell.startswith(QUOTE) and cell[1:].startswith(FORMULA) else cell


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """The table as CSV, with its headings."""
    return lines_as_csv([columns, *([row.get(name) for name in columns] for row in rows)])


def lines_as_csv(lines: Iterable[Sequence[Any]]) -> str:
    """These lines as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(inert, line) for line in lines)
    return text.getvalue()
