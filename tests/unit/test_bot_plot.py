"""The history as a picture: what is marked, and that it is drawn of anything."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

from kbslurm_bot.plot import Point, history, records

START = datetime(2026, 5, 1, tzinfo=UTC)


def points(*scores: float) -> list[Point]:
    return [Point(at=START + timedelta(hours=n), score_s=score) for n, score in enumerate(scores)]


def test_records_are_those_that_were_better_than_all_before() -> None:
    assert [one.score_s for one in records(points(5, 6, 4, 4, 3))] == [5, 4, 3]


def test_it_is_a_png_with_a_ground_that_shows_through() -> None:
    drawn = history(points(5e-3, 4e-3, 4.5e-3), points(3e-3), "a $board$ on H100")
    assert drawn.startswith(b"\x89PNG\r\n") and drawn[25] == 6, "red, green, blue and alpha"


def test_the_bot_starts_without_it() -> None:
    code = "import sys, kbslurm_bot.face; print('matplotlib' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
