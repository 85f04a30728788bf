"""How people came to where they stand on a board: how often they ranked, and where they stood the day before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kbslurm.domain.board import LEAST_DIFFERENCE, Ranking

Side = int | str  # a person's number, or a team's name: `Entry.side`
BACK = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """One side's way on a board: how many of its submissions rank, and its score as it was the day before, if any."""

    entries: int
    before_s: float | None


@dataclass(frozen=True, kw_only=True)
class Moves:
    """What has changed since the day before: where each side stood then, whose score fell most since, and whether
    anything did."""

    ranks: Mapping[Side, int]
    improved: Side | None
    changed: bool

    def of(self, sides: Iterable[Side]) -> Moves:
        """The same of these sides only."""
        return replace(self, ranks={side: self.ranks[side] for side in sides if side in self.ranks})


NO_MOVES = Moves(ranks={}, improved=None, changed=False)


def day_before(now: datetime) -> datetime:
    """The moment that is compared with: a full hour, so that it is looked up once an hour."""
    return (now - BACK).replace(minute=0, second=0, microsecond=0)


def moves(ranking: Ranking, tracks: Mapping[Side, Track]) -> Moves:
    """Of those who rank now. Equal scores keep today's order."""
    then = [
        (track.before_s, now, entry.side)
        for now, entry in enumerate(ranking.entries)
        if (track := tracks.get(entry.side)) is not None and track.before_s is not None
    ]
    gains = {side: before_s / ranking.entries[now].score_s for before_s, now, side in then}
    best = max(gains, key=lambda side: gains[side], default=None)
    is_gain = best is not None and gains[best] > 1 + LEAST_DIFFERENCE
    ranks = {side: rank for rank, (_, _, side) in enumerate(sorted(then, key=lambda one: one[:2]), 1)}
    changed = bool(ranks) and any(ranks.get(one.side) != n for n, one in enumerate(ranking.entries, 1))
    return Moves(ranks=ranks, improved=best if is_gain else None, changed=changed)
