"""Names of every script as they are drawn, from left to right."""

from __future__ import annotations

import unicodedata

import pytest

from kbslurm.api.pages.pictures.fonts import CUT, Lettering
from kbslurm.api.pages.pictures.lettering import MISSING, lettered

SALAM = "\u0633\u0644\u0627\u0645"


@pytest.mark.parametrize(
    ("read", "drawn"),
    [
        ("ada", "ada"),
        ("", ""),
        ("  ada \n lovelace ", "ada lovelace"),
        ("\u05d0\u05d1\u05d2", "\u05d2\u05d1\u05d0"),
        ("\u05d0\u05d1 12", "12 \u05d1\u05d0"),
        ("\u05d0\u05d1 (3) x", "x (3) \u05d1\u05d0"),
        ("12 \u05d0\u05d1", "\u05d1\u05d0 12"),
        ("x \u05d0\u05d1 12 y", "x 12 \u05d1\u05d0 y"),
        ("a (\u05d0\u05d1) b", "a (\u05d1\u05d0) b"),
        ("\u05d0\u05b8\u05d1", "\u05d1\u05d0\u05b8"),  # a mark stays behind its letter
        (SALAM, "\ufee1\ufefc\ufeb3"),  # joined, lam and alef as one
        ("\u062f\u0627\u0631", "\ufead\ufe8d\ufea9"),  # letters that join nothing after them
        ("\u0628\u0650\u0628", "\ufe90\ufe91\u0650"),  # a mark parts nothing
        ("a\u202eb\u200bc", "abc"),  # what only orders or hides others is not drawn
    ],
)
def test_what_is_read_from_right_to_left_is_drawn_from_left_to_right(read: str, drawn: str) -> None:
    assert lettered(read, has=lambda letter: True) == drawn


def test_a_letter_keeps_few_marks_and_one_that_the_font_lacks_is_a_box() -> None:
    assert lettered("e" + "\u0301" * 60, has=lambda letter: True) == "\u00e9\u0301\u0301"
    assert lettered("a\u9648", has=str.isascii) == f"a{MISSING}"


def test_the_fonts_know_their_letters_and_cut_what_is_too_wide() -> None:
    letters = Lettering("DejaVuSans", 28)
    assert letters.fitting("\u9648 ada", 400) == f"{MISSING} ada"
    assert letters.fitting("Барбара", 400) == "Барбара"
    long = letters.fitting("w" * 5000, 200)
    assert long.endswith(CUT) and letters.font.getlength(long) <= 200 < letters.font.getlength(f"w{long}")
    hebrew = letters.fitting("\u05d0" + "\u05d1" * 100, 200)
    assert hebrew.startswith(CUT) and hebrew.endswith("\u05d0"), "it is cut at its end, which is on the left"
    assert all(unicodedata.name(one).startswith("ARABIC") for one in letters.fitting(SALAM, 200))
