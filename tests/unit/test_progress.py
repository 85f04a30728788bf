"""The progress line of long work with rows: which phase, and how many rows of it so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.cli.output import printing


def test_it_says_the_phase_at_once_and_the_count_now_and_then() -> None:
    told: list[Mapping[str, Any]] = []
    rows = [*(("runs", n) for n in range(250)), *(("scores", n) for n in range(3))]
    assert list(printing.counting(rows, told.append, lambda row: f"reading {row[0]}")) == rows
    assert [one["phase"] for one in told] == [
        "reading runs",
        "reading runs, 100 rows so far",
        "reading runs, 200 rows so far",
        "reading scores",
    ]


def test_rows_come_one_by_one() -> None:
    """Nothing is read ahead of who asks, who may stop."""
    taken = printing.counting(iter(range(10)), lambda beat: None, str)
    assert next(taken) == 0
