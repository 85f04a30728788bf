"""Hosts' acts about who may submit how much: limits and invitations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain.policy import Category
from kbslurm.store.views import RateLimit


class EntryActs(HostActs):
    """Limits per person and board, and invitations."""

    def limits(self, board: str) -> Mapping[str, Any]:
        """A board's limits: submissions per hour by category, and GPU-seconds per day."""
        held = self.held(board)
        return {
            "leaderboard": held.name,
            "per_hour": {one.category: one.most_per_hour for one in self.store.limits.rates(held.name)},
            "gpu_s_per_day": self.store.limits.quota(held.id),
        }

    def rate_limits(self, board: str) -> Sequence[Mapping[str, Any]]:
        """A board's rate limits in popcorn's format."""
        return [_rate_limit(one) for one in self.store.limits.rates(self.held(board).name)]

    def set_rate_limit(self, board: str, category: Category, most: int | None) -> Mapping[str, Any]:
        """Set how many submissions of a category a person may make to a board per hour; None: no limit."""
        held = self.held(board)
        if most is None:
            self.store.limits.drop_rate(held.name, category, by=self.by, now=self.now)
            return {"status": "ok", "leaderboard": held.name, "mode_category": category}
        found = self.store.limits.set_rate(held.name, category, most, by=self.by, now=self.now)
        return {"status": "ok", "rate_limit": _rate_limit(found)}

    def set_quota(self, board: str, gpu_s_per_day: float | None) -> Mapping[str, Any]:
        """Set how many GPU-seconds a person may use on a board per day; None: no limit."""
        held = self.held(board)
        self.store.limits.set_quota(held.name, gpu_s_per_day, by=self.by, now=self.now)
        return {"status": "ok", "leaderboard": held.name, "gpu_s_per_day": gpu_s_per_day}

    def make_invites(self, boards: Sequence[str], count: int, *, newcomers: bool = False) -> Mapping[str, Any]:
        """Make invitations, each for one person and all of these boards; `newcomers`: also for who has no account."""
        names = [self.held(name).name for name in boards]
        opened, codes = self.store.invites.make(names, count, by=self.by, newcomers=newcomers, now=self.now)
        return {"status": "ok", "leaderboards": list(opened), "codes": list(codes)}

    def invites(self, board: str) -> Sequence[Mapping[str, Any]]:
        """A board's invitations and who claimed them."""
        return [
            {
                "code": one.code,
                "user_id": None if one.person_id is None else str(one.person_id),
                "user_name": one.person,
                "claimed_at": one.claimed_at.isoformat() if one.claimed_at else None,
                "created_at": one.created_at.isoformat(),
            }
            for one in self.store.invites.of_board(self.held(board).name)
        ]

    def revoke_invite(self, code: str) -> Mapping[str, Any]:
        """Revoke an invitation, and the access of the person who claimed it."""
        claimed = self.store.invites.revoke(code, by=self.by, now=self.now)
        return {"status": "ok", "code": code, "was_claimed": claimed}


def _rate_limit(found: RateLimit) -> dict[str, Any]:
    return {
        "leaderboard": found.board,
        "mode_category": found.category,
        "max_submissions_per_hour": found.most_per_hour,
    }
