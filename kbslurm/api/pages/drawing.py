"""Turns numbers into coordinates of small charts. Pure; the templates draw them, with a table of the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain.waterfall import Stage

WIDTH, HEIGHT, EDGE = 640.0, 160.0, 12.0
BAR = 22.0


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One data point and where it is drawn."""

    x: float
    y: float
    at: datetime
    score_s: float
    title: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Dots and the line through them; higher is slower."""

    dots: tuple[Dot, ...]
    path: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A stage of a waterfall chart."""

    x: float
    y: float
    width: float
    stage: Stage


def curve(points: Sequence[tuple[datetime, float, str]], *, steps: bool) -> Curve:
    """These times, scores and titles, oldest first. `steps`: each value holds until the next."""
    if not points:
        return Curve(dots=(), path="")
    first, last = points[0][0], points[-1][0]
    span = (last - first).total_seconds()
    low, high = min(score for _, score, _ in points), max(score for _, score, _ in points)
    dots = tuple(
        Dot(
            x=round(_spread((at - first).total_seconds(), 0.0, span, WIDTH), 1),
            y=round(HEIGHT - _spread(score, low, high, HEIGHT), 1),
            at=at,
            score_s=score,
            title=title,
        )
        for at, score, title in points
    )
    path = f"M{dots[0].x} {dots[0].y}"
    for dot in dots[1:]:
        path += f" H{dot.x} V{dot.y}" if steps else f" L{dot.x} {dot.y}"
    if steps:
        path += f" H{WIDTH - EDGE}"
    return Curve(dots=dots, path=path)


def bars(stages: Sequence[Stage]) -> list[Bar]:
    """A waterfall chart: each stage begins where the previous one ended; very short ones still show."""
    total = sum(stage.took_s for stage in stages) or 1.0
    found, x = [], 0.0
    for n, stage in enumerate(stages):
        width = stage.took_s / total * WIDTH
        found.append(Bar(x=round(min(x, WIDTH - 2), 1), y=n * BAR, width=round(max(2.0, width), 1), stage=stage))
        x += width
    return found


def _spread(value: float, low: float, high: float, length: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return EDGE + share * (length - 2 * EDGE)
