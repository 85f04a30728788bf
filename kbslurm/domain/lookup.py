"""What somebody writes to look through submissions: since when, and with which verdict. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import get_args

from kbslurm.domain import contest, lateness
from kbslurm.errors import Invalid
from kbslurm_eval.shared.wire import VerdictName


def parsed_since(text: str, now: datetime, home: tzinfo | None = None) -> datetime:
    """A date (its begin), a time, or how long ago; Invalid for anything else. Without an offset it is the time there,
    by default on this machine."""
    try:
        return now - timedelta(seconds=lateness.parsed_span(text))
    except Invalid:
        pass
    except OverflowError:
        raise Invalid(f"{text[:40]!r} is longer ago than time goes back", hint="Write for example 7d.") from None
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None or home is None else found.replace(tzinfo=home)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{contest.shown(text)} isn't a time", hint="Write 2026-11-27, 2026-11-27 14:00, or for example 12h or 7d."
        ) from None


def verdict_named(text: str) -> VerdictName:
    """The verdict that is called so, or Invalid."""
    for known in get_args(VerdictName):
        if text.strip().lower() == known:
            found: VerdictName = known
            return found
    raise Invalid(
        f"there is no verdict {contest.shown(text)}", hint=f"Choose one of: {', '.join(get_args(VerdictName))}."
    )
