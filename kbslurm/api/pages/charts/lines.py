"""Values over time: the record of a board, somebody's history, two of them beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kbslurm.api.pages.charts.scales import Axis, Tick, axis_of, moments, round_values

Kind = Literal["", "other"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value, and what is said of it."""

    at: datetime
    value: float
    said: str


@dataclass(frozen=True, kw_only=True)
class Dot:
    x: float
    y: float
    said: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line with its dots; `kind` is the class that colours it."""

    kind: Kind
    dots: tuple[Dot, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A whole chart: ticks up its side and along its foot, and its series."""

    up: tuple[Tick, ...]
    along: tuple[Tick, ...]
    series: tuple[Series, ...]


def lines(
    data: Sequence[Sequence[Point]],
    *,
    written: Callable[[float], str],
    zone: str = "UTC",
    steps: bool = False,
    until: datetime | None = None,
) -> Lines:
    """Each series oldest first; higher is slower. `steps`: a value holds until the next, and the last one to the end.
    `until`: where the axis ends, if that is later than the last point."""
    points = [point for series in data for point in series]
    if not points:
        return Lines(up=(), along=(), series=())
    up = axis_of([point.value for point in points])
    first, last = min(point.at for point in points), max(point.at for point in points)
    last = last if until is None else max(last, until)
    along = Axis(low=first.timestamp(), high=last.timestamp())
    drawn = [
        _series(series, up, along, kind, steps=steps) for series, kind in zip(data, _kinds(len(data)), strict=True)
    ]
    return Lines(
        up=tuple(Tick(at=round(100 - up.at(value), 2), text=written(value)) for value in round_values(up)),
        along=tuple(Tick(at=along.at(at.timestamp()), text=text) for at, text in moments(first, last, zone)),
        series=tuple(drawn),
    )


def _kinds(count: int) -> list[Kind]:
    return ["" if n % 2 == 0 else "other" for n in range(count)]


def _series(points: Sequence[Point], up: Axis, along: Axis, kind: Kind, *, steps: bool) -> Series:
    dots = tuple(
        Dot(x=along.at(point.at.timestamp()), y=round(100 - up.at(point.value), 2), said=point.said) for point in points
    )
    pieces: list[Piece] = []
    for one, after in itertools.pairwise(dots):
        if steps:
            pieces += [
                Piece(x1=one.x, y1=one.y, x2=after.x, y2=one.y),
                Piece(x1=after.x, y1=one.y, x2=after.x, y2=after.y),
            ]
        else:
            pieces.append(Piece(x1=one.x, y1=one.y, x2=after.x, y2=after.y))
    if steps and dots:
        pieces.append(Piece(x1=dots[-1].x, y1=dots[-1].y, x2=100.0, y2=dots[-1].y))
    return Series(kind=kind, dots=dots, pieces=tuple(pieces))
