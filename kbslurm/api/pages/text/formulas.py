"""Formulas as MathML, built anew from what the converter made: its own text holds markup that people wrote."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import lru_cache
from xml.etree.ElementTree import Element

from latex2mathml.converter import Converter
from markupsafe import Markup, escape

FORMULA_CAP = 2_000  # characters
DEPTH_CAP = 60
ELEMENTS_CAP = 4_000
KEPT = 256
_ELEMENTS = frozenset(
    "math mrow mi mo mn ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose msub msup msubsup"
    " munder mover munderover mmultiscripts mprescripts none mtable mtr mtd mlabeledtr".split()
)
_ATTRIBUTES = frozenset(
    "display displaystyle scriptlevel mathvariant stretchy fence separator form accent accentunder linethickness"
    " movablelimits minsize maxsize lspace rspace width height depth voffset columnalign columnspacing columnlines"
    " rowspacing rowlines frame notation symmetric largeop".split()
)
_VALUE = re.compile(r"[A-Za-z0-9 .%+-]{0,40}\Z")
_GROUP = re.compile(r"[{}]|\\left\b|\\right\b|\\begin\b|\\end\b")
_DEFINES = re.compile(r"\\(?:def|let|newcommand|renewcommand|providecommand|DeclareMathOperator)\b")


@lru_cache(maxsize=KEPT)
def formula(source: str, *, display: bool) -> Markup | None:
    """The formula as MathML; None if it isn't one that can be read."""
    if len(source) > FORMULA_CAP or _depth(source) > DEPTH_CAP or _DEFINES.search(source):
        return None
    try:
        made = Converter(display="block" if display else "inline").convert_to_element(source)
        return Markup("".join(_written(made, display=display)))  # noqa: S704 - built of known parts below
    except Exception:  # noqa: BLE001 - the converter has errors of its own for some mistakes, and trips over others
        return None


def _depth(source: str) -> int:
    """How deep its groups are nested at most."""
    deepest = now = 0
    for found in _GROUP.findall(source):
        now += 1 if found in ("{", "\\left", "\\begin") else -1
        deepest = max(deepest, now)
    return deepest


class _Unwritable(ValueError):
    """It has more in it than a formula should."""


def _written(made: Element, *, display: bool) -> Iterator[str]:
    left = ELEMENTS_CAP

    def written(one: Element) -> Iterator[str]:
        nonlocal left
        left -= 1
        if left < 0:
            raise _Unwritable
        # A part that isn't of a formula, like a link, is only a row of what is in it.
        tag = one.tag if one.tag in _ELEMENTS else "mrow"
        kept = {name: value for name, value in one.attrib.items() if name in _ATTRIBUTES and _VALUE.match(value)}
        yield f"<{tag}{''.join(f' {name}={chr(34)}{value}{chr(34)}' for name, value in kept.items())}>"
        if one.text:
            yield str(escape(html.unescape(one.text)))  # the converter writes characters as references
        for inner in one:
            yield from written(inner)
        yield f"</{tag}>"

    yield from written(made)
