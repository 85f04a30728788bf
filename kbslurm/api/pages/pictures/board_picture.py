"""A board in one picture, for whoever follows a link to it from elsewhere: the leaders with their intervals."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageDraw

from kbslurm.api.pages.charts.scales import axis_of
from kbslurm.api.pages.pictures.fonts import Face, Lettering
from kbslurm.api.pages.pictures.palette import light
from kbslurm.domain.amounts import seconds

WIDTH, HEIGHT = 1200, 630
MOST = 5
LEFT, RIGHT = 64, WIDTH - 64
NAMES, BARS, SCORES = 122, 480, RIGHT - 168  # where the columns of the table begin
HEADING, RULE, FIRST, ROW, FOOT = 40, 222, 250, 58, 566
_MARK = ((1, 3, 12), (5, 9, 9), (9, 15, 12))  # as in icon.svg: left, top and width, each 4 high, of 22


@dataclass(frozen=True, kw_only=True)
class Leader:
    """One of the first, as everybody sees them."""

    rank: int
    name: str
    score_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class Shown:
    """All that the picture says."""

    board: str
    gpu: str
    people: int
    state: str
    leaders: Sequence[Leader]


@cache
def _lettering(face: Face, size: int) -> Lettering:
    return Lettering(face, size)


def board_picture(shown: Shown) -> bytes:
    """It as PNG."""
    image = Image.new("RGB", (WIDTH, HEIGHT), light()["paper"])
    draw = ImageDraw.Draw(image)
    figures = [("people", str(shown.people))]
    if shown.leaders:
        figures.insert(0, ("record", seconds(shown.leaders[0].score_s)))
    left = _figures(draw, figures)
    _heading(draw, shown, left - 40)
    draw.rectangle((LEFT, RULE, RIGHT, RULE + 1), fill=light()["line"])
    if shown.leaders:
        _leaders(draw, shown.leaders[:MOST])
    else:
        _write(draw, (WIDTH / 2, 390), "Nobody has ranked here yet.", "DejaVuSans", 32, "quiet", "mm")
    draw.rectangle((LEFT, FOOT - 16, RIGHT, FOOT - 15), fill=light()["line"])
    _brand(draw)
    _write(draw, (RIGHT, FOOT + 18), shown.state, "DejaVuSans", 22, "quiet", "rm", width=700)
    out = io.BytesIO()
    image.quantize(64, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _heading(draw: ImageDraw.ImageDraw, shown: Shown, right: float) -> None:
    size = next((one for one in (68, 56, 46) if _width(shown.board, "DejaVuSans-Bold", one) <= right - LEFT), 38)
    _write(draw, (LEFT, HEADING + 64), shown.board, "DejaVuSans-Bold", size, "ink", "ls", width=right - LEFT)
    _write(draw, (LEFT, HEADING + 128), f"on {shown.gpu}", "DejaVuSans", 34, "quiet", "ls", width=right - LEFT)


def _figures(draw: ImageDraw.ImageDraw, figures: Sequence[tuple[str, str]]) -> float:
    """From the right edge to the left; where the last one begins."""
    right = float(RIGHT)
    for name, value in reversed(figures):
        width = max(_width(value, "DejaVuSansMono-Bold", 44), _width(name, "DejaVuSans", 22))
        _write(draw, (right - width, HEADING + 20), name, "DejaVuSans", 22, "quiet", "ls")
        _write(draw, (right - width, HEADING + 70), value, "DejaVuSansMono-Bold", 44, "ink", "ls")
        right -= width + 48
    return right + 48


def _leaders(draw: ImageDraw.ImageDraw, leaders: Sequence[Leader]) -> None:
    colours = light()
    # One with a wide interval doesn't squeeze the others into a corner.
    most = 2 * max(one.score_s for one in leaders)
    axis = axis_of([value for one in leaders for value in (max(0.0, one.low_s), min(one.high_s, most))])
    length = SCORES - 24 - BARS

    def x(value: float) -> float:
        return BARS + axis.at(value) / 100 * length

    for n, one in enumerate(leaders):
        middle = FIRST + n * ROW + ROW // 2 - 4
        first = n == 0
        _write(
            draw, (LEFT + 34, middle), str(one.rank), "DejaVuSansMono-Bold" if first else "DejaVuSansMono", 28,
            "ink" if first else "quiet", "rm",
        )  # fmt: skip
        face: Face = "DejaVuSans-Bold" if first else "DejaVuSans"
        _write(draw, (NAMES, middle), one.name, face, 28, "ink", "lm", width=BARS - NAMES - 28)
        draw.rectangle((BARS, middle, BARS + length, middle + 1), fill=colours["line"])
        left, right = x(max(0.0, one.low_s)), x(min(one.high_s, most))
        draw.rounded_rectangle((left - 4, middle - 11, right + 4, middle + 12), 6, fill=colours["mark-soft"])
        at = x(one.score_s)
        draw.rectangle((at - 2, middle - 15, at + 2, middle + 16), fill=colours["mark"])
        _write(draw, (RIGHT, middle), seconds(one.score_s), "DejaVuSansMono", 28, "ink", "rm")


def _brand(draw: ImageDraw.ImageDraw) -> None:
    scale, top = 32 / 22, FOOT + 2
    for left, down, width in _MARK:
        corner = (LEFT + left * scale, top + down * scale)
        draw.rectangle(
            (*corner, corner[0] + width * scale - 1, corner[1] + 4 * scale - 1), fill=light()["mark"]
        )  # fmt: skip
    _write(draw, (LEFT + 44, FOOT + 18), "kbslurm", "DejaVuSans-Bold", 24, "ink", "lm")


def _write(
    draw: ImageDraw.ImageDraw, at: tuple[float, float], text: str, face: Face, size: int, colour: str, anchor: str,
    *, width: float = WIDTH,
) -> None:  # fmt: skip
    letters = _lettering(face, size)
    draw.text(at, letters.fitting(text, width), font=letters.font, fill=light()[colour], anchor=anchor)


def _width(text: str, face: Face, size: int) -> float:
    return _lettering(face, size).font.getlength(text)
