"""Grades as the files that course platforms import. Pure: rows as the service gives them, text out.

| format | what its importer wants | what identifies somebody |
|---|---|---|
| csv | nothing: it is for reading and for other programs | all columns |
| canvas | Student, ID, SIS User ID, SIS Login ID, Section, one column per assignment; a row of points possible | ID, else SIS User ID |
| moodle | any columns, mapped by hand while importing | Email address or ID number |
| gradescope-roster | Name, Email, SID, Section; other columns are left out while importing | Email |

The columns that a platform gave the roster are written as they came.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from kbslurm.domain.spreadsheet import lines_as_csv

Format = Literal["csv", "canvas", "moodle", "gradescope-roster"]
Row = Mapping[str, Any]

COLUMNS = (
    "name", "full_name", "email", "student_id", "section", "team", "points", "of", "submission", "score_s", "late_s",
    "slip_days", "lost_percent", "before_penalty", "handed_in", "why",
)  # fmt: skip


def as_file(rows: Sequence[Row], form: Format, title: str) -> str:
    """The grades in this format; `title` is the name of the graded column."""
    head: tuple[str, ...]
    match form:
        case "csv":
            return lines_as_csv([COLUMNS, *([_plain(row, name) for name in COLUMNS] for row in rows)])
        case "canvas":
            head = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", title)
            possible = rows[0]["of"] if rows else 0
            first = ["    Points Possible", "", "", "", "", _number(possible)]
            return lines_as_csv([head, first, *([*_canvas(row), _number(row["points"])] for row in rows)])
        case "moodle":
            head = ("First name", "Last name", "ID number", "Email address", title, f"{title} feedback")
            return lines_as_csv([head, *([*_moodle(row), _number(row["points"]), _why(row)] for row in rows)])
        case "gradescope-roster":
            head = ("Name", "Email", "SID", "Section", title)
            return lines_as_csv([head, *([*_gradescope(row), _number(row["points"])] for row in rows)])


def _canvas(row: Row) -> list[str]:
    get = _given(row)
    return [
        get("Student") or _name(row),
        get("ID"),
        get("SIS User ID") or row["student_id"] or "",
        get("SIS Login ID") or row["email"] or "",
        get("Section") or row["section"] or "",
    ]


def _moodle(row: Row) -> list[str]:
    get = _given(row)
    first, _, last = _name(row).rpartition(" ")
    return [
        get("First name") or first or last,
        get("Last name", "Surname") or (last if first else ""),
        get("ID number") or row["student_id"] or "",
        get("Email address") or row["email"] or "",
    ]


def _gradescope(row: Row) -> list[str]:
    return [_name(row), row["email"] or "", row["student_id"] or "", row["section"] or ""]


def _given(row: Row) -> Callable[..., str]:
    """What the roster's file had in a column with one of these headings."""
    extra = {str(name).strip().lower(): str(value) for name, value in (row.get("extra") or {}).items()}
    return lambda *names: next((extra[name.lower()] for name in names if extra.get(name.lower())), "")


def _name(row: Row) -> str:
    return str(row["full_name"] or row["name"])


def _plain(row: Row, name: str) -> Any:
    if name == "why":
        return _why(row)
    found = row[name]
    return "" if found is None else _number(found) if isinstance(found, float) else found


def _why(row: Row) -> str:
    return "; ".join(row["why"])


def _number(value: float) -> str:
    return f"{value:.10g}"
