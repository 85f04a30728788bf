"""Two texts line by line beside each other. Pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["same", "changed", "gone", "new", "gap"]

CONTEXT = 3  # unchanged lines shown around a change
MATCHED_CAP = 2_000  # lines of either side that are matched one by one: the effort grows with their product
ROWS_CAP = 4_000
LINE_CAP = 1_000  # characters of a line
ALIKE = 0.3  # of the longer line: of two that have less in common no part is marked


@dataclass(frozen=True, kw_only=True)
class Side:
    """A line: its number, and its text in three parts, of which the middle one differs from the other side."""

    number: int
    before: str
    changed: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of both sides; of a `gap`, `skipped` lines are the same and left out."""

    kind: Kind
    old: Side | None = None
    new: Side | None = None
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Diff:
    """`added` and `removed` count lines; `cut`: there were more rows."""

    rows: tuple[Row, ...]
    added: int
    removed: int
    cut: bool


def side_by_side(old: str, new: str) -> Diff:
    """What changed from one text to the other."""
    one, other = old.splitlines(), new.splitlines()
    steps = list(_steps(one, other))
    added = sum(j2 - j1 for tag, _, _, j1, j2 in steps if tag != "equal")
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in steps if tag != "equal")
    rows = list(itertools.islice(_rows(steps, one, other), ROWS_CAP + 1))
    return Diff(rows=tuple(rows[:ROWS_CAP]), added=added, removed=removed, cut=len(rows) > ROWS_CAP)


Step = tuple[str, int, int, int, int]


def _steps(one: Sequence[str], other: Sequence[str]) -> Iterator[Step]:
    """What is equal, replaced, deleted or inserted, as difflib says; a middle that is too long for it is replaced as a
    whole."""
    most = min(len(one), len(other))
    head = next((n for n in range(most) if one[n] != other[n]), most)
    tail = next((n for n in range(most - head) if one[-1 - n] != other[-1 - n]), most - head)
    end, stop = len(one) - tail, len(other) - tail
    if head:
        yield "equal", 0, head, 0, head
    if head < end or head < stop:
        if max(end - head, stop - head) > MATCHED_CAP:
            yield "replace", head, end, head, stop
        else:
            found = difflib.SequenceMatcher(None, one[head:end], other[head:stop]).get_opcodes()
            yield from ((tag, i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in found)
    if tail:
        yield "equal", end, len(one), stop, len(other)


def _rows(steps: Sequence[Step], one: Sequence[str], other: Sequence[str]) -> Iterator[Row]:
    for n, (tag, i1, i2, j1, j2) in enumerate(steps):
        if tag == "equal":
            yield from _same(one, i1, i2, j1, first=n == 0, last=n == len(steps) - 1)
            continue
        both = min(i2 - i1, j2 - j1)
        for k in range(both):
            yield _changed(i1 + k, one[i1 + k], j1 + k, other[j1 + k])
        yield from (Row(kind="gone", old=_side(i, one[i])) for i in range(i1 + both, i2))
        yield from (Row(kind="new", new=_side(j, other[j])) for j in range(j1 + both, j2))


def _same(one: Sequence[str], i1: int, i2: int, j1: int, *, first: bool, last: bool) -> Iterator[Row]:
    head, tail = 0 if first else CONTEXT, 0 if last else CONTEXT
    skipped = i2 - i1 - head - tail
    lines = range(i1, i2)
    shown = lines if skipped < 2 and not (first and last) else [*lines[:head], *lines[len(lines) - tail :]]
    for n, i in enumerate(shown):
        if skipped >= 2 and n == head:
            yield Row(kind="gap", skipped=skipped)
        side, beside = _side(i, one[i]), _side(j1 + i - i1, one[i])
        yield Row(kind="same", old=side, new=beside)
    if len(shown) < i2 - i1 and len(shown) == head:
        yield Row(kind="gap", skipped=skipped)


def _side(index: int, text: str) -> Side:
    return Side(number=index + 1, before=text[:LINE_CAP], changed="", after="")


def _changed(i: int, old: str, j: int, new: str) -> Row:
    """A line that became another: what stands before and after the difference is the same on both sides."""
    old, new = old[:LINE_CAP], new[:LINE_CAP]
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    if head + tail < ALIKE * max(len(old), len(new)):
        return Row(kind="changed", old=_side(i, old), new=_side(j, new))

    def side(index: int, text: str) -> Side:
        end = len(text) - tail
        return Side(number=index + 1, before=text[:head], changed=text[head:end], after=text[end:])

    return Row(kind="changed", old=side(i, old), new=side(j, new))
