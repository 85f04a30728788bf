"""Names of boards and GPUs, and when a board closes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kbslurm.domain.contest import RESERVED_NAMES, board_name, closed, gpu_name, known_gpu, parsed_deadline, zone
from kbslurm.errors import Invalid, NotFound


@pytest.mark.parametrize(
    ("text", "zone_name", "want"),
    [
        ("2026-05-31", "UTC", "2026-05-31T23:59:59+00:00"),
        ("2026-05-31", "Europe/Berlin", "2026-05-31T21:59:59+00:00"),
        ("2026-01-31", "Europe/Berlin", "2026-01-31T22:59:59+00:00"),
        (" 2026-05-31 18:00 ", "UTC", "2026-05-31T18:00:00+00:00"),
        ("2026-05-31 6:59", "UTC", "2026-05-31T06:59:00+00:00"),
        ("2026-05-31 18:00:07", "America/New_York", "2026-05-31T22:00:07+00:00"),
        ("2026-05-31T18:00:00+02:00", "Asia/Tokyo", "2026-05-31T16:00:00+00:00"),
        ("2026-05-31T18:00Z", "Asia/Tokyo", "2026-05-31T18:00:00+00:00"),
        ("2024-02-29", "UTC", "2024-02-29T23:59:59+00:00"),
    ],
)
def test_a_deadline_is_a_moment_in_utc(text: str, zone_name: str, want: str) -> None:
    assert parsed_deadline(text, zone_name).isoformat() == want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-02-30",
        "2025-02-29",
        "31.05.2026",
        "2026-05",
        "20260531",
        "2026-05-31 25:00",
        "0001-01-01 00:00",
    ],
)
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="isn't a valid deadline"):
        parsed_deadline(text, "Asia/Tokyo")


@pytest.mark.parametrize("name", ["", "America", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "a\x00b", "."])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="isn't a known time zone"):
        zone(name)


def test_the_deadline_itself_is_in_time() -> None:
    at = datetime(2026, 5, 31, 12, tzinfo=UTC)
    assert not closed(at, at)
    assert closed(at, at + timedelta(microseconds=1))
    assert not closed(None, at)


@pytest.mark.parametrize(("text", "want"), [("VectorAdd_v2", "vectoradd_v2"), (" 2d.conv-1 ", "2d.conv-1"), ("a", "a")])
def test_a_board_has_one_spelling(text: str, want: str) -> None:
    assert board_name(text) == want


@pytest.mark.parametrize("text", ["", "-a", ".hidden", "a b", "a/b", "süm", "a\n", "x" * 65, *RESERVED_NAMES, "Admin"])
def test_what_cant_be_a_board_is_refused(text: str) -> None:
    if text == "a\n":
        assert board_name(text) == "a"
        return
    with pytest.raises(Invalid, match=r"board('s)? name"):
        board_name(text)


def test_gpus_are_ascii_and_found_in_any_case() -> None:
    assert gpu_name("MI300x8") == "MI300x8"
    for wrong in ("", "H100 SXM", "Ｈ100", "-x"):
        with pytest.raises(Invalid, match="GPU name"):
            gpu_name(wrong)
    assert known_gpu("h100", ["A100", "H100"]) == "H100"
    with pytest.raises(NotFound, match="no GPU 'B200'") as found:
        known_gpu("B200", ["A100", "H100"])
    assert found.value.hint == "Choose one of: A100, H100."
