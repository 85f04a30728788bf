"""A page's tables as files, from the page's own handler: whoever may not see the page has no file either.

A page that is registered by `page_and_files` is also at its address with `.json` and `.csv` behind it. What its handler
would show is then written as a file; of several tables the one that `?table=` names, else the first. JSON is a list of
objects, CSV has the same names as its first line; a spreadsheet takes nothing in it for a formula.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kbslurm.domain import spreadsheet
from kbslurm.errors import NotFound

Form = Literal["json", "csv"]
FORMS: Mapping[Form, str] = {"json": "application/json", "csv": "text/csv; charset=utf-8"}
MOST = 10_000  # rows of a file whose page shows them by the fifty; `from` gives those after them
_PAGED = ("table", "from", "before")
Rows = Iterable[Mapping[str, Any]]
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Table:
    """One of a page's tables. `at`: what stands between the page's address and the file's ending."""

    columns: Sequence[str]
    rows: Rows
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where a table's files are."""

    json: str
    csv: str


def page_and_files(router: APIRouter, path: str, *, at: str = "") -> Callable[[_Handler], _Handler]:
    """A page at this path, and its tables as files."""

    def registered(handler: _Handler) -> _Handler:
        for form in FORMS:  # before the page: its last parameter would take the ending for its own
            router.get(f"{path}{at}.{form}")(handler)
        return router.get(path)(handler)

    return registered


def form_wanted(request: Request) -> Form | None:
    """As what the page's table is wanted; None: the page is. By the route, since a name may end in `.csv`."""
    path = str(getattr(request.scope.get("route"), "path", ""))
    return next((form for form in FORMS if path.endswith(f".{form}")), None)


def most(request: Request, shown: int) -> int:
    """How many rows are read at once: `shown` for the page."""
    return shown if form_wanted(request) is None else MOST


def links(request: Request, tables: Mapping[str, Table]) -> dict[str, Links]:
    """Where the tables of this page are to be had, chosen as the page is."""
    chosen = [(name, value) for name, value in request.query_params.multi_items() if name not in _PAGED]
    first = next(iter(tables), None)
    found = {}
    for name, table in tables.items():
        query = urlencode([*chosen, *([] if name == first else [("table", name)])])
        address = f"{request.url.path}{table.at}.%s{'?' if query else ''}{query.replace('%', '%%')}"
        found[name] = Links(json=address % "json", csv=address % "csv")
    return found


def answer(request: Request, form: Form, tables: Mapping[str, Table], headers: Mapping[str, str]) -> Response:
    """The table that is wanted, as a file."""
    if not tables:
        raise NotFound("file", request.url.path, hint="Its page shows no table now.")
    name = request.query_params.get("table") or next(iter(tables))
    if name not in tables:
        raise NotFound("table", name, known=list(tables))
    told = dict(headers)
    if form == "csv":
        told["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9_.-]", "-", name)}.csv"'
    return Response(written(form, tables[name].columns, tables[name].rows), media_type=FORMS[form], headers=told)


def written(form: Form, columns: Sequence[str], rows: Rows) -> bytes:
    """These columns of the rows. A time is in ISO format; a list is words in CSV."""
    if form == "csv":
        cells = ({name: _cell(row.get(name)) for name in columns} for row in rows)
        return spreadsheet.as_csv(columns, cells).encode("utf-8", "replace")
    # A line for each row: the encoder that indents is ten times slower.
    lines = [json.dumps({name: _value(row.get(name)) for name in columns}) for row in rows]
    return "".join(("[\n", ",\n".join(lines), "\n]\n")).encode()


def _value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(value)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else _value(value)
