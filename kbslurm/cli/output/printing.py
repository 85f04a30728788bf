"""How `kbslurm` prints: lines, tables, progress, errors, JSON; always in the same words."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from rich import markup
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbslurm.cli.chosen import chosen
from kbslurm.domain import spreadsheet
from kbslurm.domain.amounts import score as score
from kbslurm.domain.amounts import seconds as seconds
from kbslurm.domain.amounts import span as span
from kbslurm.errors import EXIT_INTERRUPTED, EXIT_OK, KbslurmError

T = TypeVar("T")
Tell = Callable[[Mapping[str, Any]], None]
TOLD_EACH = 100
NARROWEST = 12  # of a column that wraps
GAP = 2  # between columns
# What steers a terminal or changes the order of what it shows, and halves of surrogate pairs.
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

COLOURS = {
    "passed": "green",
    "wrong": "red",
    "error": "red",
    "timeout": "yellow",
    "memory": "yellow",
    "violation": "bold red",
    "infrastructure": "magenta",
    "queued": "dim",
    "launching": "cyan",
    "confirming": "cyan",
    "calibrating": "dim",
    "running": "cyan",
    "cancelled": "dim",
    "failed": "magenta",
}


def out() -> Console:
    """Where answers go. If it isn't a terminal: no colour, and lines are never cut."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 120)


def err() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def harmless(text: str) -> str:
    """The text without what would steer the reader's terminal: sources and services' answers may contain anything."""
    return _STEERS.sub("\ufffd", text.replace("\r\n", "\n"))


def escape(text: str) -> str:
    """Markup that shows the text as it is, harmless to the reader's terminal."""
    return markup.escape(harmless(text))


def say(text: str) -> None:
    """One line of plain text."""
    out().print(escape(text), soft_wrap=True)


def as_json(value: Any) -> None:
    """One JSON value on standard output, and nothing else."""
    _print_json(value)


def _print_json(value: Any) -> None:
    if chosen.form in ("csv", "name"):
        _print_rows(value, names_only=chosen.form == "name")
        return
    print(json.dumps(value, default=jsonable, indent=2 if sys.stdout.isatty() else None), flush=True)


def _print_rows(value: Any, *, names_only: bool) -> None:
    """What a command lists, as CSV or only what names each row."""
    where, _, name = chosen.lists.rpartition("/")
    plain = json.loads(json.dumps(value, default=jsonable))
    rows = plain[where] if where else plain
    if names_only:
        for row in rows:
            print(harmless(str(row[name])).replace("\n", " "))
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = [{column: _cell(row.get(column)) for column in columns} for row in rows]
    if rows:
        print(spreadsheet.as_csv(columns, table), end="", flush=True)


def _cell(value: Any) -> Any:
    """A value as a cell of CSV: what has parts in JSON."""
    match value:
        case str():
            return harmless(value)
        case None:
            return ""
        case list() if all(isinstance(one, str) for one in value):
            return harmless(" ".join(value))
        case bool() | list() | dict():
            return json.dumps(value)
        case _:
            return value


def jsonable(value: Any) -> Any:
    """A value converted to what JSON can represent."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


def error(found: KbslurmError, *, as_json: bool) -> None:
    """A kbslurm error: one sentence and what to do next."""
    if as_json:
        print(json.dumps({"error": {"kind": found.kind, "message": found.message, "hint": found.hint}}), flush=True)
        return
    console = err()
    console.print(f"[bold red]error[/]: {escape(found.message)}")
    if found.hint:
        console.print(f" [bold]hint[/]: {escape(found.hint)}")


def interrupted(what: str, then: str, *, as_json: bool) -> int:
    """^C where something goes on without us: what that is, and how to come back to it. Returns the exit code."""
    if as_json:
        print(json.dumps({"error": {"kind": "Interrupted", "message": what, "hint": then}}), flush=True)
    else:
        err().print(f"\n{what}. {then}")
    return EXIT_INTERRUPTED


def when(at: datetime | None) -> str:
    """A time in the reader's own time zone, with the zone."""
    return "–" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def when_told(at: str | None) -> str:
    """The same of a time as the service tells it."""
    return when(None if at is None else datetime.fromisoformat(at))


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """How long since: `12 s`, `3 min`, `2 h`, `4 d`."""
    return "–" if at is None else span(((now or datetime.now(UTC)) - at).total_seconds())


def coloured(word: str) -> str:
    """A state or verdict in its colour."""
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/]" if colour else escape(word)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None, wrap: int = -1) -> None:
    """A plain table. Cells may contain markup. The column `wrap` wraps; in a terminal too narrow for that, others do as
    well, the widest first."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(laid_out(headings, rows, console.width, title=title, wrap=wrap))


def laid_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    title: str | None = None,
    wrap: int = -1,
) -> Table:
    """The table as it fits that width; where no wrapping helps, each row as lines of its own. No cell is ever cut."""
    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    wide = [max(map(cell_len, (heading, *_lines(cells, n)))) for n, heading in enumerate(headings)]
    wrapped = {wrap % len(headings)}
    while len(wrapped) < len(headings) and _least(wide, wrapped) > width:
        wrapped.add(max(set(range(len(headings))) - wrapped, key=lambda n: wide[n]))
    if _least(wide, wrapped) > width:
        return _as_lines(headings, cells, title)
    found = Table.grid(padding=(0, GAP, 0, 0))
    found.title, found.title_justify, found.title_style = title, "left", "bold"
    for given in _widths(wide, wrapped, width):
        found.add_column(overflow="fold", width=given)
    found.add_row(*(Text(heading, style="bold") for heading in headings))
    for row in cells:
        found.add_row(*row)
    return found


def _widths(wide: Sequence[int], wrapped: Collection[int], width: int) -> list[int]:
    """Each column's width: what is left after those that don't wrap is shared by those that do, as far as they need
    it."""
    found = list(wide)
    left = width - GAP * (len(wide) - 1) - sum(one for n, one in enumerate(wide) if n not in wrapped)
    for still, n in enumerate(sorted(wrapped, key=lambda n: wide[n])):
        found[n] = min(wide[n], left // (len(wrapped) - still))
        left -= found[n]
    return found


def _lines(cells: Sequence[Sequence[Text]], column: int) -> Iterator[str]:
    return (line for row in cells for line in row[column].plain.split("\n"))


def _least(wide: Sequence[int], wrapped: Collection[int]) -> int:
    """How narrow a table can be if these columns wrap."""
    return sum(min(one, NARROWEST) if n in wrapped else one for n, one in enumerate(wide)) + GAP * (len(wide) - 1)


def _as_lines(headings: Sequence[str], cells: Sequence[Sequence[Text]], title: str | None) -> Table:
    """Each cell on a line of its own behind its heading, and a blank line between rows."""
    found = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False, title_style="bold")
    found.add_column(overflow="fold", style="bold")
    found.add_column(overflow="fold")
    for nth, row in enumerate(cells):
        if nth:
            found.add_row("", "")
        for heading, cell in zip(headings, row, strict=True):
            found.add_row(heading, cell)
    return found


@contextmanager
def progress(quiet: bool) -> Iterator[Tell]:
    """A live progress line on standard error; silent without a terminal or when told to be."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda beat: None
        return
    with console.status("starting") as status:

        def tell(beat: Mapping[str, Any]) -> None:
            done, of = beat.get("done"), beat.get("of")
            count = f" {done}/{of}" if done is not None and of else ""
            status.update(escape(f"{beat.get('label', '')}{beat.get('phase', 'working')}{count}"))

        yield tell


def counting(rows: Iterable[T], tell: Tell, phase: Callable[[T], str]) -> Iterator[T]:
    """The same rows; the progress line says which phase the last one belonged to, and how many it was of that."""
    now, count = "", 0
    for row in rows:
        which = phase(row)
        now, count = which, count + 1 if which == now else 1
        if count % TOLD_EACH == 1:
            tell({"phase": f"{which}, {count - 1} rows so far" if count > 1 else which})
        yield row


def command() -> str:
    """How to call kbslurm again from here: by name if the shell finds it, else by this one's path."""
    called = Path(sys.argv[0])
    if called.name != "kbslurm" or shutil.which("kbslurm") is not None:
        return "kbslurm"
    return path(Path.cwd() / called)


def path(found: Path) -> str:
    """The shortest form of a path from here."""
    try:
        return str(found.relative_to(Path.cwd()))
    except ValueError:
        return str(found)


def answer(as_json: bool, text: str, /, **facts: object) -> int:
    """Print a command's result as one JSON object or as a line of text; returns the exit code."""
    if as_json:
        _print_json(facts)
    else:
        say(text)
    return EXIT_OK


def note(text: str) -> None:
    """A remark beside the answer, on standard error."""
    err().print(f"[dim]·[/] {escape(text)}")


def caution(warning: str) -> None:
    """A warning, although the command succeeded."""
    err().print(f"[yellow]caution[/]: {escape(warning)}")
