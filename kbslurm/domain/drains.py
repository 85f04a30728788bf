"""Places that get no new runs because a host wants it so. Pure: what is open there ends as usual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.errors import Invalid

WHY_CAP = 300
BY_FILE = "the configuration"
LEFT = "it isn't in the configuration any more, and its open runs still end"
MOVES = "its configuration names another folder or address, which it takes once its open runs have ended"


@dataclass(frozen=True, kw_only=True)
class Drain:
    """A place that is draining, or one GPU type of it; an empty `gpu` means all of them."""

    place: str
    gpu: str
    by: str
    why: str
    at: datetime

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {"gpu": self.gpu, "by": self.by, "why": self.why, "at": self.at.isoformat()}


@dataclass(frozen=True, kw_only=True)
class PlaceLine:
    """A line of the daemon's log about a place, or what went wrong with an attempt there."""

    place: str
    at: datetime
    level: str
    text: str


def checked_why(text: str) -> str:
    """The reason as it is kept: one line, or Invalid."""
    why = " ".join(text.split())
    if len(why) > WHY_CAP:
        raise Invalid(f"the reason has {len(why)} characters", hint=f"Write at most {WHY_CAP}.")
    if not why.isprintable():
        raise Invalid("the reason contains a control character", hint="Write plain text.")
    return why


def in_words(told: Mapping[str, Any]) -> str:
    """Why runs don't go there, for everybody: without the host's name."""
    why = told.get("why", "")
    return f"it takes no new runs: hosts let it drain ({why})" if why else "it takes no new runs: hosts let it drain"


def in_full(told: Mapping[str, Any]) -> str:
    """By whom and why, for hosts."""
    return f"drains, by {told['by']}{': ' + told['why'] if told['why'] else ''}"


def draining(drains: Iterable[Drain], place: str, gpus: Iterable[str]) -> Mapping[str, Drain]:
    """By GPU type, the drain that keeps new runs from this place; that of the whole place comes first."""
    mine = sorted((one for one in drains if one.place == place), key=lambda one: one.gpu)
    found = {gpu: next((one for one in mine if one.gpu in ("", gpu)), None) for gpu in gpus}
    return {gpu: one for gpu, one in found.items() if one is not None}
