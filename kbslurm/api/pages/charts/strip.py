"""The raw samples of one timed case: a dot per call and a lane per launch, with the median and its interval."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbslurm.api.pages.charts.scales import Axis, Tick, axis_of, round_values

DOTS_CAP = 240  # of a case; a launch keeps its shortest and its longest call
FAR = 3.0  # times the median: what is beyond that is counted, or a single call would flatten all others
LANE = 22  # pixels


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A launch: its dots and its median, in percent, and where its middle is, in pixels."""

    y: int
    dots: tuple[float, ...]
    median: float
    said: str


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The chart of a case. `null`: where a null call stands, if that is within the axis."""

    lanes: tuple[Lane, ...]
    height: int
    along: tuple[Tick, ...]
    low: float | None
    high: float | None
    median: float | None
    null: float | None
    calls: int
    far: str


def strip(
    launches: Sequence[Sequence[float]],
    *,
    written: Callable[[float], str],
    median: float | None = None,
    low: float | None = None,
    high: float | None = None,
    null: float | None = None,
) -> Strip | None:
    """Each launch's samples, at least one, in seconds, less the null call. None without any."""
    launches = [one for one in launches if one]
    every = [value for one in launches for value in one]
    if not every:
        return None
    most = FAR * statistics.median(every)
    near = [value for value in every if value <= most] or every
    marked = [value for value in (median, low, high) if value is not None]
    # A null call that is taken off is worth a place on the axis only if the times are of its size.
    close = [null] if null is not None and 3 * null >= min(near) else []
    axis = axis_of([*near, *(value for value in marked if value <= most), *close])
    each = max(2, DOTS_CAP // len(launches))
    lanes = tuple(
        Lane(
            y=LANE * n + LANE // 2,
            dots=tuple(axis.at(value) for value in some([v for v in one if v <= most], each)),
            median=axis.at(statistics.median(one)),
            said=f"Launch {n + 1}: {len(one)} calls, median {written(statistics.median(one))}, "
            f"{written(min(one))} to {written(max(one))}",
        )
        for n, one in enumerate(launches)
    )
    beyond = [value for value in every if value > most]
    return Strip(
        lanes=lanes,
        height=LANE * len(lanes),
        along=tuple(Tick(at=axis.at(value), text=written(value)) for value in round_values(axis)),
        low=_place(axis, low),
        high=_place(axis, high),
        median=_place(axis, median),
        null=_place(axis, null) if close else None,
        calls=len(every),
        far=_far(beyond, written),
    )


def some(values: Sequence[float], most: int) -> list[float]:
    """At most so many of these, in order, evenly chosen, the shortest and the longest among them."""
    found = sorted(values)
    if len(found) <= most:
        return found
    return [found[round(n * (len(found) - 1) / (most - 1))] for n in range(most)]


def _place(axis: Axis, value: float | None) -> float | None:
    return None if value is None else axis.at(value)


def _far(beyond: Sequence[float], written: Callable[[float], str]) -> str:
    if not beyond:
        return ""
    if len(beyond) == 1:
        return f"One call isn't drawn: it took {written(beyond[0])}."
    return f"{len(beyond)} calls aren't drawn: they took {written(min(beyond))} to {written(max(beyond))}."
