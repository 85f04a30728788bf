"""Benchmarks' times with their intervals, as an SVG that stands alone: for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from kbslurm.domain.amounts import score

ROW, LABELS, BARS, VALUES, PAD = 26, 220, 260, 190, 8
LABEL_CAP = 34
STYLE = (
    'xmlns="http://www.w3.org/2000/svg" role="img" font-family="sans-serif" font-size="12" fill="currentColor"'
    ' stroke="currentColor"'
)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One benchmark: its median, and the interval around it if there is one, in seconds."""

    label: str
    median_s: float
    low_s: float | None
    high_s: float | None


def svg(rows: Sequence[Timed]) -> str:
    """A line for each: from the interval's lower to its upper end, with the median as a dot; from 0 on."""
    if not rows:
        return ""
    most = max(row.high_s or row.median_s for row in rows) or 1.0
    width, height = LABELS + BARS + VALUES + 2 * PAD, ROW * len(rows) + 2 * PAD
    parts = [
        f'<svg {STYLE} viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>Times of {len(rows)} benchmark{'s' if len(rows) != 1 else ''}, with their intervals</title>",
    ]
    for number, row in enumerate(rows):
        parts += _line(row, PAD + ROW * number + ROW / 2, most)
    return "".join([*parts, "</svg>"])


def _line(row: Timed, y: float, most: float) -> list[str]:
    def x(took_s: float) -> float:
        return round(PAD + LABELS + BARS * min(1.0, max(0.0, took_s / most)), 1)

    cut = row.label if len(row.label) <= LABEL_CAP else f"{row.label[: LABEL_CAP - 1]}…"
    drawn = [
        f'<text x="{PAD}" y="{y + 4}" stroke="none">{html.escape(cut)}<title>{html.escape(row.label)}</title></text>',
        f'<line x1="{x(0)}" y1="{y}" x2="{x(most)}" y2="{y}" opacity="0.15"/>',
    ]
    if row.low_s is not None and row.high_s is not None:
        drawn.append(f'<line x1="{x(row.low_s)}" y1="{y}" x2="{x(row.high_s)}" y2="{y}" stroke-width="4"/>')
    words = html.escape(score(row.median_s, row.low_s, row.high_s))
    drawn += [
        f'<circle cx="{x(row.median_s)}" cy="{y}" r="4"/>',
        f'<text x="{PAD + LABELS + BARS + 12}" y="{y + 4}" stroke="none">{words}</text>',
    ]
    return drawn
