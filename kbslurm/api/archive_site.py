"""An archive's pages: they open from disk, need no server, and load nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from kbslurm.api.pages.boards.board_rows import amount, gap
from kbslurm.api.pages.charts.intervals import intervals
from kbslurm.api.pages.rendering import STYLE, text_of, took
from kbslurm.domain.amounts import score
from kbslurm.domain.archive import Row
from kbslurm.domain.board import Measured

ON_A_PAGE = 500
CODE = "code"
Read = Callable[[str], Iterator[Row]]


class _Result(NamedTuple):
    gpu: str
    state: str
    score: str
    ranked: bool


def write_site(read: Read, folder: Path) -> None:
    """Write them beside the tables that they are made of."""
    board = next(read("board"))
    names = {int(row["person_id"]): str(row["name"]) for row in read("people")}
    results = _results(read)
    rows = read("submissions")
    pages = 0
    if board["private"]:
        (folder / CODE).mkdir()
    while chunk := list(islice(rows, ON_A_PAGE)):
        pages += 1
        told = []
        for row in chunk:
            number = int(row["submission"])
            who = names.get(int(row["person_id"]), "kbslurm")
            found = results.get(number, [])
            told.append({**row, "who": who, "results": found, "has_code": bool(row["source"])})
            if row["source"]:
                _write(folder / CODE / f"{number}.html", "archive/code.html", board, row=told[-1], up="../")
        more = {"rows": told, "page": pages, "up": "", "is_last": len(chunk) < ON_A_PAGE}
        _write(folder / f"submissions-{pages}.html", "archive/submissions.html", board, **more)
    tables: dict[str, list[dict[str, Any]]] = {gpu: [] for gpu in board["gpus"]}
    for row in read("standings"):
        tables[row["gpu"]].append(dict(row))
    problem = next((row for row in read("problems") if row["problem_version"] == board["problem_version"]), None)
    _write(
        folder / "index.html",
        "archive/board.html",
        board,
        tables={gpu: _with_bars(rows) for gpu, rows in tables.items()},
        problem=problem,
        pages=pages,
        images=list(read("images")),
        up="",
    )


def _with_bars(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One GPU type's standings with their intervals on a common axis."""
    times = [Measured(score_s=row["score_s"], low_s=row["low_s"], high_s=row["high_s"]) for row in rows]
    axis = intervals(times, written=took)
    shown = [
        {**row, **amount(time), "behind": "" if time is times[0] else gap(time, times[0]), "bar": bar}
        for row, time, bar in zip(rows, times, axis.bars, strict=True)
    ]
    return {"rows": shown, "axis": axis}


def _results(read: Read) -> dict[int, list[_Result]]:
    """How each submission went, by GPU type; of several runs those that count."""
    verdicts = {
        int(row["run"]): (
            str(row["verdict"]),
            ""
            if row["score_s"] is None
            else score(row["score_s"], row["low_s"], row["high_s"], ranked=bool(row["ranked"])),
            bool(row["ranked"]),
        )
        for row in read("verdicts")
    }
    found: dict[int, list[_Result]] = {}
    for row in read("runs"):
        if row["counts"]:
            state, shown, is_ranked = verdicts.get(int(row["run"]), (str(row["state"]), "", False))
            found.setdefault(int(row["submission"]), []).append(_Result(str(row["gpu"]), state, shown, is_ranked))
    return found


def _write(file: Path, template: str, board: Row, **told: Any) -> None:
    file.write_text(text_of(template, board=board, style=STYLE, **told), encoding="utf-8")
