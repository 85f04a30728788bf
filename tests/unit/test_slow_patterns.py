"""Patterns that look through what people upload take time in proportion to it."""

from __future__ import annotations

import re
import time

import pytest

from kbslurm.backends.slurm import commands
from kbslurm.domain import hidden_comment
from kbslurm.problems import compiled_code

PATTERNS = {
    "main": compiled_code._MAIN,
    "cases": compiled_code._CASES,
    "baseline": compiled_code._BASELINE,
    "pragma": compiled_code._ONCE,
    "includes": compiled_code._INCLUDE,
    "hidden cases": hidden_comment._COMMENTED,
    "errors": commands._ERROR,
}


def _took(pattern: re.Pattern[str], text: str) -> float:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        assert pattern.search(text) is None
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.mark.parametrize("blank", ["\n", " \n", "\t\n \n"], ids=["lines", "lines of blanks", "lines of tabs"])
@pytest.mark.parametrize("name", PATTERNS)
def test_blank_lines_are_passed_in_proportion_to_their_number(name: str, blank: str) -> None:
    """A file of 900,000 empty lines held the service for an hour."""
    few, many = (_took(PATTERNS[name], blank * count) for count in (2_000, 20_000))
    assert many < 40 * few, "ten times as many took a hundred times as long"
