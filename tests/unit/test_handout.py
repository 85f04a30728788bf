"""What is handed out of a reference in one file: everything but the hidden cases that it lists."""

from __future__ import annotations

import ast

import pytest

from kbslurm.problems.handout import _unhidden

MARK = "\ufeff"


@pytest.mark.parametrize("mark", ["", MARK], ids=["plain", "behind a byte order mark"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('HIDDEN = [{"n": 971353}]\nTESTS = []\n', "HIDDEN = []\nTESTS = []\n"),
        ('TESTS = []\nHIDDEN: list = [\n    {"n": 971353},\n]\nx = 1\n', "TESTS = []\nHIDDEN = [\n\n]\nx = 1\n"),
        ('// HIDDEN = [{"n": 971353}]\nint x;\n', "// HIDDEN = []\nint x;\n"),
        ('int x;\n//\tHIDDEN=[{"n": 971353}]\n', "int x;\n//\tHIDDEN = []\n"),
        ("int x;\n", "int x;\n"),
    ],
)
def test_no_hidden_case_is_left_and_every_other_line_stays(mark: str, text: str, left: str) -> None:
    """Behind a mark in the first line the loader read the cases, and the copy kept them, or a part of them."""
    found = _unhidden(mark + text)
    assert found == mark + left
    if "int x" not in text:
        ast.parse(found.removeprefix(MARK))
