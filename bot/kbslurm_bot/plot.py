"""A history as a picture that is readable on dark and on light: nothing but greys that both show, and one colour.

matplotlib is imported when one is drawn: the bot starts without it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain.amounts import seconds

OWN, OTHERS, INK = "#F0B232", "#8E9297", "#949BA4"
SIZE, DPI = (7.2, 3.6), 150


@dataclass(frozen=True, kw_only=True)
class Point:
    """A score at a moment."""

    at: datetime
    score_s: float


def history(mine: Sequence[Point], others: Sequence[Point], title: str) -> bytes:
    """A PNG with a transparent ground: one's own scores with a bold line, records marked, the others' bests behind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.scatter([one.at for one in others], [one.score_s for one in others], s=18, color=OTHERS, alpha=0.7)  # type: ignore[arg-type]
    axes.plot([one.at for one in mine], [one.score_s for one in mine], color=OWN, linewidth=2.4)  # type: ignore[arg-type]
    marked = records(mine)
    axes.scatter([one.at for one in marked], [one.score_s for one in marked], s=70, marker="*", color=OWN, zorder=3)  # type: ignore[arg-type]
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: seconds(value)))
    locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_title(title.replace("$", "\\$"), color=INK, fontsize=11)
    axes.tick_params(which="both", colors=INK, labelsize=9)
    axes.xaxis.get_offset_text().set_color(INK)
    axes.grid(visible=True, color=INK, alpha=0.25, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(INK)
    drawn = io.BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def records(points: Sequence[Point]) -> list[Point]:
    """Those that were better than all before them."""
    found: list[Point] = []
    for one in points:
        if not found or one.score_s < found[-1].score_s:
            found.append(one)
    return found
