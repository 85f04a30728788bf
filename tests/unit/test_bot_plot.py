"""The history as a picture: what is marked, that it shows on any ground, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from kbslurm_bot import plot
from kbslurm_bot.plot import Point, best, history

START = datetime(2026, 5, 1, tzinfo=UTC)
# What Discord lays below a picture: its light, ash, dark and onyx grounds, and those of a card on them.
GROUNDS = ("#FFFFFF", "#FBFBFB", "#F2F3F5", "#393A41", "#323339", "#313338", "#2B2D31", "#1A1A1E", "#000000")


def points(*scores: float, doubt: float = 0.0) -> list[Point]:
    return [
        Point(at=START + timedelta(hours=n), score_s=score, low_s=score * (1 - doubt), high_s=score * (1 + doubt))
        for n, score in enumerate(scores)
    ]


def luminance(red: float, green: float, blue: float) -> float:
    """As WCAG has it, of parts from 0 to 1."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_the_best_is_the_first_that_none_was_better_than() -> None:
    assert best(points(5, 3, 4, 3)) == points(5, 3)[1]


def test_it_is_a_png_with_a_ground_that_shows_through() -> None:
    drawn = history(points(5e-3, 4e-3, 4.5e-3), points(3e-3), "a $board$ on H100")
    assert drawn.startswith(b"\x89PNG\r\n") and drawn[25] == 6, "red, green, blue and alpha"


def test_whatever_is_drawn_shows_on_light_and_on_dark() -> None:
    from matplotlib.image import imread

    drawn = imread(io.BytesIO(history(points(5e-3, 4e-3, 4.5e-3, doubt=0.05), points(3e-3, 6e-3), "a board on H100")))
    assert drawn[0, 0, 3] == 0, "its ground shows through"
    solid = {tuple(round(float(part), 4) for part in one[:3]) for row in drawn for one in row if one[3] == 1.0}
    assert len(solid) >= 2, "the one's own, and the rest"
    for ground in GROUNDS:
        below = luminance(*(int(ground[n : n + 2], 16) / 255 for n in (1, 3, 5)))
        worst = min(contrast(luminance(*colour), below) for colour in solid)
        assert worst >= 3.0, f"{ground}: {worst:.2f}"


def test_ones_own_line_and_its_interval_are_drawn() -> None:
    from matplotlib.image import imread

    def own(told: list[Point]) -> int:
        red, blue = (int(plot.OWN[n : n + 2], 16) / 255 for n in (1, 5))
        drawn = imread(io.BytesIO(history(told, (), "x")))
        near = (abs(drawn[..., 0] - red) < 0.02) & (abs(drawn[..., 2] - blue) < 0.02) & (drawn[..., 3] > 0.9)
        return int(near.sum())

    assert own(points(5e-3, 4e-3, doubt=0.2)) > own(points(5e-3, 4e-3)) > 1000


def test_fewer_than_two_are_no_history_and_the_same_is_drawn_once_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def draw(*_: object) -> bytes:
        drawn.append(threading.current_thread().name)
        return b"png"

    monkeypatch.setattr(plot, "history", draw)
    plot._kept.cache_clear()

    async def asked() -> list[bytes | None]:
        two = points(2, 1)
        return [await plot.picture(told, (), "x") for told in ([], two[:1], two, two)]

    assert asyncio.run(asked()) == [None, None, b"png", b"png"]
    plot._kept.cache_clear()
    assert len(drawn) == 1 and drawn[0].startswith("plot"), "the connection's heartbeat goes on meanwhile"


def test_the_bot_starts_without_it() -> None:
    code = "import sys, kbslurm_bot.discord_client; print('matplotlib' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
