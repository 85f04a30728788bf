"""The fonts of pictures: DejaVu, which matplotlib brings, so that a machine's own fonts don't matter."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from PIL import ImageFont

from kbslurm.api.pages.pictures.lettering import lettered

Face = Literal["DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold"]
CUT = "…"
MOST = 200  # letters of a name that are looked at


@cache
def folder() -> Path:
    """Where they are. matplotlib itself isn't loaded for that."""
    spec = find_spec("matplotlib")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


@cache
def font(face: Face, size: int) -> ImageFont.FreeTypeFont:
    """Lettered the same everywhere: whether a machine has a library that joins letters makes no difference."""
    return ImageFont.truetype(folder() / f"{face}.ttf", size, layout_engine=ImageFont.Layout.BASIC)


class Lettering:
    """One face at one size, for one thread at a time."""

    def __init__(self, face: Face, size: int) -> None:
        self.font = font(face, size)
        self._missing = bytes(self.font.getmask("\uffff"))
        self._known: dict[str, bool] = {}

    def fitting(self, text: str, width: float) -> str:
        """The text, ready to be drawn; cut where it is wider than that, in the order in which it is read."""
        text = text[:MOST]
        line = lettered(text, has=self._has)
        while self.font.getlength(line) > width and text:
            text = text[:-1]
            line = lettered(text.rstrip() + CUT, has=self._has)
        return line

    def _has(self, letter: str) -> bool:
        if letter.isspace():
            return True
        if letter not in self._known:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[letter] = bytes(self.font.getmask(letter)) != self._missing
        return self._known[letter]
