"""Names in any script as a line of glyphs from left to right, for a drawing library that neither orders nor joins them.

What is read from right to left is reordered, as the Unicode bidirectional algorithm does it without explicit marks;
Arabic letters get the forms that join them to their neighbours. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import cache

MARKS = 2  # that a letter keeps: accents stack without end
MISSING = "\u25af"  # what stands for a letter that the font doesn't have
_FORMS = ("isolated", "final", "initial", "medial")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")


def lettered(text: str, *, has: Callable[[str], bool]) -> str:
    """The text as it is drawn from left to right. `has`: whether the font has this letter."""
    clean = _with_few_marks(" ".join(unicodedata.normalize("NFC", text).split()))
    letters = [one for one in clean if unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn")]
    joined = _joined(letters, has)
    shown = [one if has(one) else MISSING for one in joined]
    return "".join(_ordered(shown, [unicodedata.bidirectional(one) for one in joined]))


def _with_few_marks(text: str) -> str:
    kept, marks = [], 0
    for one in text:
        marks = marks + 1 if unicodedata.combining(one) else 0
        if marks <= MARKS:
            kept.append(one)
    return "".join(kept)


def _joined(letters: list[str], has: Callable[[str], bool]) -> list[str]:
    """Arabic letters in their forms at the beginning, in the middle and at the end; a lam and its alef as one."""
    forms, found = _arabic(), list[str]()
    n, is_joined = 0, False  # whether the last letter reaches out to this one
    while n < len(letters):
        one, width = letters[n], 1
        if unicodedata.bidirectional(one) == "NSM":  # marks stand between letters and part none
            found.append(one)
            n += 1
            continue
        if (pair := one + "".join(letters[n + 1 : n + 2])) in forms:
            one, width = pair, 2
        after = next((next_ for next_ in letters[n + width :] if unicodedata.bidirectional(next_) != "NSM"), "")
        own = forms.get(one, {})
        takes = "final" in own and is_joined
        gives = "initial" in own and "final" in forms.get(after, {})
        form = own.get(("isolated", "final", "initial", "medial")[takes + 2 * gives], "")
        found.extend(form if form and has(form) else one)
        is_joined = gives
        n += width
    return found


@cache
def _arabic() -> Mapping[str, Mapping[str, str]]:
    """The forms of each Arabic letter, and of the pair of lam and alef, by name: Unicode has them for old software."""
    found: dict[str, dict[str, str]] = {}
    for code in (*range(0xFB50, 0xFBB2), *range(0xFBD3, 0xFC00), *range(0xFE80, 0xFEFD)):
        kind, *base = unicodedata.decomposition(chr(code)).split()
        letters = "".join(chr(int(one, 16)) for one in base)
        if kind.strip("<>") in _FORMS and (len(letters) == 1 or letters[0] == "\u0644"):
            found.setdefault(letters, {})[kind.strip("<>")] = chr(code)
    return found


def _ordered(letters: list[str], kinds: list[str]) -> list[str]:
    strong = [kind for kind in kinds if kind in ("L", "R", "AL")]
    base = 1 if strong and strong[0] != "L" else 0
    levels = _levels(kinds, base)
    clusters: list[tuple[int, str]] = []  # a letter with its marks is never turned around
    for letter, kind, level in zip(letters, kinds, levels, strict=True):
        if kind == "NSM" and clusters:
            clusters[-1] = (clusters[-1][0], clusters[-1][1] + letter)
        else:
            clusters.append((level, letter.translate(_MIRRORED) if level % 2 else letter))
    for level in range(max(levels, default=0), 0, -1):
        clusters = _turned(clusters, level)
    return [text for _, text in clusters]


def _levels(kinds: list[str], base: int) -> list[int]:
    """How deep each letter is embedded: odd ones are read from right to left."""
    found: list[tuple[int, bool] | None] = []  # and whether it counts as read from right to left for what is beside it
    is_left = base == 0  # what was read last
    for kind in kinds:
        if kind in ("L", "R", "AL"):
            is_left = kind == "L"
            found.append((2 * base, False) if is_left else (1, True))
        elif kind in ("EN", "AN"):
            found.append((2 * base, False) if is_left else (2, True))
        else:
            found.append(None)
    levels, before = list[int](), base == 1
    for n, one in enumerate(found):
        if one is not None:
            before = one[1]
            levels.append(one[0])
            continue
        after = next((other[1] for other in found[n:] if other is not None), base == 1)
        levels.append((1 if before else 2 * base) if before == after else base)
    return levels


def _turned(clusters: list[tuple[int, str]], level: int) -> list[tuple[int, str]]:
    found, run = list[tuple[int, str]](), list[tuple[int, str]]()
    for one in clusters:
        if one[0] >= level:
            run.append(one)
        else:
            found += [*reversed(run), one]
            run = []
    return [*found, *reversed(run)]
