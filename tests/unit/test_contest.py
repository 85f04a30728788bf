"""Names of boards and GPUs, and when a board closes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kbslurm.domain.contest import (
    RESERVED_NAMES,
    account,
    as_known,
    board_name,
    closed,
    coming_deadline,
    gpu_name,
    known_gpu,
    parsed_deadline,
    unknown_gpus,
    zone,
)
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


@pytest.mark.parametrize(
    ("text", "zone_name", "says", "hint"),
    [
        ("2026-03-29 02:30", "Europe/Berlin", "doesn't exist in Europe/Berlin", "03:30"),
        ("2026-03-29 02:00", "Europe/Berlin", "doesn't exist in Europe/Berlin", "03:00"),
        ("2026-10-25 02:30", "Europe/Berlin", "happens twice in Europe/Berlin", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25 02:30", "Europe/Berlin", "happens twice in Europe/Berlin", "2026-10-25T02:30:00+01:00"),
        ("2022-09-10", "America/Santiago", None, None),
        ("2026-04-04", "America/Santiago", "happens twice in America/Santiago", "2026-04-04T23:59:59-03:00"),
        ("2026-10-25T02:30:00+02:00", "Europe/Berlin", None, None),
        ("2026-10-25 02:30", "UTC", None, None),
        ("2026-03-29 03:00", "Europe/Berlin", None, None),
        ("2026-10-25 03:00", "Europe/Berlin", None, None),
    ],
)
def test_a_local_time_that_the_clocks_skip_or_repeat_is_told(
    text: str, zone_name: str, says: str | None, hint: str | None
) -> None:
    if says is None:
        parsed_deadline(text, zone_name)
        return
    with pytest.raises(Invalid, match=says) as found:
        parsed_deadline(text, zone_name)
    assert hint is not None and hint in (found.value.hint or "")


def test_a_deadline_in_the_past_is_refused_with_the_time_that_was_understood() -> None:
    now = datetime(2026, 5, 31, 12, tzinfo=UTC)
    assert coming_deadline("2026-05-31 14:30", "Europe/Berlin", now) == datetime(2026, 5, 31, 12, 30, tzinfo=UTC)
    with pytest.raises(Invalid, match=r"2026-05-31 13:59 Europe/Berlin has passed already"):
        coming_deadline("2026-05-31 13:59", "Europe/Berlin", now)


def test_gpu_types_that_no_place_has_are_told_with_those_that_there_are() -> None:
    (told,) = unknown_gpus(["H100", "H1OO"], ["A100", "H100"])
    assert "no place offers H1OO" in told and "A100, H100" in told
    assert unknown_gpus(["H100"], ["H100"]) == []
    (none,) = unknown_gpus(["H100"], [])
    assert "no place offers H100" in none
    assert as_known(["h100", "B200"], ["A100", "H100"]) == ["H100", "B200"]


@pytest.mark.parametrize(
    "name", ["", "America", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "a\x00b", ".", "localtime", "Factory"]
)
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


@pytest.mark.parametrize("text", ["discord:81384788765712384", "github:9", "oidc:ada@example.edu", "oidc:a:b"])
def test_an_account_is_a_provider_and_its_name_for_the_person(text: str) -> None:
    assert ":".join(account(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("github:abc", "'abc' isn't a GitHub ID: that is a number, not a name"),
        ("discord:ada#1", "'ada#1' isn't a Discord ID"),
        ("github:", "'' isn't a GitHub ID"),
        ("github:007", "'007' isn't a GitHub ID"),
        ("discord:²", "isn't a Discord ID"),
        ("discord:" + "1" * 21, "isn't a Discord ID"),
        ("github: 7", "isn't a GitHub ID"),
        ("oidc:", "isn't a subject of OpenID Connect"),
        ("oidc:a b", "isn't a subject of OpenID Connect"),
        ("oidc:" + "x" * 256, "…' isn't a subject of OpenID Connect"),
        ("ada", "'ada' isn't a valid account"),
        ("GitHub:7", "isn't a valid account"),
        ("", "isn't a valid account"),
    ],
)
def test_a_mistyped_account_is_refused_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(Invalid) as refused:
        account(text)
    assert why in refused.value.message and refused.value.hint and "\n" not in refused.value.message
