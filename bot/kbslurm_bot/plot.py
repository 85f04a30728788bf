"""A history plot that is readable on dark and light backgrounds: one grey and one colour that work on both.

matplotlib is imported only for drawing, so the bot starts without it. One dedicated thread draws, since matplotlib
isn't thread-safe and the connection's heartbeat mustn't wait for it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from kbslurm.domain.amounts import seconds

# Both colours have a contrast of 3 : 1 against Discord's white and its lightest dark background.
OWN, INK = "#D96A10", "#868A92"
SIZE, DPI = (7.2, 3.6), 150
KEPT = 32
_drawing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plot")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A score at a moment, with its interval."""

    at: datetime
    score_s: float
    low_s: float | None = None
    high_s: float | None = None


async def picture(mine: Sequence[Point], others: Sequence[Point], title: str) -> bytes | None:
    """The history as a PNG; None if there is none yet. Cached, so the same plot isn't drawn twice."""
    if len(mine) < 2:
        return None
    return await asyncio.get_running_loop().run_in_executor(_drawing, _kept, tuple(mine), tuple(others), title)


@lru_cache(maxsize=KEPT)
def _kept(mine: tuple[Point, ...], others: tuple[Point, ...], title: str) -> bytes:
    return history(mine, others, title)


def history(mine: Sequence[Point], others: Sequence[Point], title: str) -> bytes:
    """A PNG with a transparent background: one's own scores as a bold line, the best marked, the others' bests
    behind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    at = [float(date2num(one.at)) for one in mine]  # type: ignore[no-untyped-call]
    axes.scatter([date2num(one.at) for one in others], [one.score_s for one in others], s=14, color=INK)  # type: ignore[no-untyped-call]
    axes.plot(at, [one.score_s for one in mine], color=OWN, linewidth=2.6, marker="o", markersize=5)
    below = [one.score_s - (one.score_s if one.low_s is None else min(one.low_s, one.score_s)) for one in mine]
    above = [(one.score_s if one.high_s is None else max(one.high_s, one.score_s)) - one.score_s for one in mine]
    axes.errorbar(
        at, [one.score_s for one in mine], yerr=[below, above], fmt="none", ecolor=OWN, elinewidth=1.6, capsize=4
    )
    first = best(mine)
    axes.scatter([date2num(first.at)], [first.score_s], s=190, marker="*", color=OWN, zorder=3)  # type: ignore[no-untyped-call]
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: seconds(value)))
    locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_title(title.replace("$", "\\$"), color=INK, fontsize=13, fontweight="bold")
    axes.tick_params(which="both", colors=INK, labelsize=11)
    axes.xaxis.get_offset_text().set_color(INK)
    axes.grid(visible=True, color=INK, alpha=0.25, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(INK)
    drawn = io.BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def best(points: Sequence[Point]) -> Point:
    """The best score; the earliest if several are equal."""
    return min(points, key=lambda one: one.score_s)
