"""A contest's pure rules: what boards and GPUs may be called, and when a board closes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

from kbslurm.errors import Invalid, NotFound

# Words that popcorn-cli's paths use where a board's name would stand.
RESERVED_NAMES = frozenset({"admin", "submission", "user", "auth", "health", "leaderboards", "gpus"})
NAME_CAP = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_ONE_DIGIT_HOUR = re.compile(r"(\d{4}-\d{2}-\d{2} )(\d:\d{2}.*)")
_END_OF_DAY = time(23, 59, 59)
_HINT = "Write 2026-05-31 (the end of that day), 2026-05-31 18:00, or 2026-05-31T18:00:00+02:00."


def board_name(text: str) -> str:
    """The board's name in its one spelling, or Invalid. Names go into paths unescaped, and case doesn't count."""
    name = text.strip().lower()
    if not _NAME.match(name) or len(name) > NAME_CAP:
        raise Invalid(
            f"{text!r} can't be a board's name",
            hint=f"Letters a-z, digits, and . _ - after the first; at most {NAME_CAP} of them.",
        )
    if name in RESERVED_NAMES:
        raise Invalid(f"{name!r} can't be a board's name: the API uses the word itself", hint="Pick another name.")
    return name


def team_name(text: str) -> str:
    """The team's name in its one spelling, or Invalid: it stands in the configuration, too, and case doesn't count."""
    name = text.strip().lower()
    if not _NAME.match(name) or len(name) > NAME_CAP:
        raise Invalid(
            f"{text[: 2 * NAME_CAP]!r} can't be a team's name",
            hint=f"Letters a-z, digits, and . _ - after the first; at most {NAME_CAP} of them.",
        )
    return name


def gpu_name(text: str) -> str:
    """A GPU type's name as written, or Invalid: clients cut names by bytes, so they are ASCII."""
    name = text.strip()
    if not _GPU.match(name) or len(name) > NAME_CAP:
        raise Invalid(f"{text!r} can't be a GPU's name", hint="Letters, digits, and . _ - after the first.")
    return name


def known_gpu(text: str, known: Sequence[str]) -> str:
    """The GPU type of this list that is meant, whatever case it was written in; NotFound with the list otherwise."""
    for name in known:
        if name.lower() == text.strip().lower():
            return name
    raise NotFound("GPU", text.strip(), known=known)


def zone(name: str) -> ZoneInfo:
    """The time zone of this name, or Invalid."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        # ZoneInfoNotFoundError is a LookupError; "America" is a folder of zones (IsADirectoryError), ".." a ValueError.
        raise Invalid(f"there is no time zone {name!r}", hint="Name a place, like Europe/Berlin, or UTC.") from None


def parsed_deadline(text: str, zone_name: str = "UTC") -> datetime:
    """The moment at which a board closes, in UTC.

    `YYYY-MM-DD` lasts to the end of that day (23:59:59), since that is what people mean by "until the 31st".
    `YYYY-MM-DD HH:MM[:SS]` is that moment. Both are meant in `zone_name`, unless they carry an offset of their own.
    """
    home = zone(zone_name)
    written = _ONE_DIGIT_HOUR.sub(r"\g<1>0\g<2>", text.strip())
    try:
        if _DATE.match(written):
            moment = datetime.combine(date.fromisoformat(written), _END_OF_DAY, tzinfo=home)
        else:
            moment = datetime.fromisoformat(written)
            if "T" not in written.upper() and " " not in written:
                raise ValueError("no time of day")
        return (moment if moment.tzinfo else moment.replace(tzinfo=home)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"{text!r} is no deadline", hint=_HINT) from None


def closed(deadline: datetime | None, now: datetime) -> bool:
    """Whether the deadline has passed. A board without one never closes; the deadline itself is still in time."""
    return deadline is not None and now > deadline
