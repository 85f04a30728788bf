"""What a change does to standings: who moves from which place to which, and by how much. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.domain.board import Entry


@dataclass(frozen=True, kw_only=True)
class Move:
    """Somebody's place and score before and after; None: they have none."""

    before: tuple[int, Entry] | None
    after: tuple[int, Entry] | None

    @property
    def moves(self) -> bool:
        """Whether they get another place, or another score."""
        if self.before is None or self.after is None:
            return True
        return self.before[0] != self.after[0] or self.before[1].score_s != self.after[1].score_s

    def told(self) -> dict[str, Any]:
        """As JSON."""
        shown = self.after or self.before
        assert shown is not None
        old, new = (None if one is None else one[1].score_s for one in (self.before, self.after))
        return {
            "person": shown[1].person,
            "person_id": shown[1].person_id,
            "team": shown[1].team,
            "before": None if self.before is None else self.before[0],
            "after": None if self.after is None else self.after[0],
            "before_s": old,
            "after_s": new,
            "percent": None if old is None or new is None else 100 * (new - old) / old,
            "submission": shown[1].submission_id,
        }


def moves(before: Sequence[Entry], after: Sequence[Entry]) -> list[Move]:
    """Everybody who is in either, each with their best entry, in order; in the order of the places after, then those
    who lose theirs."""
    old = {one.side: (place, one) for place, one in enumerate(before, 1)}
    new = {one.side: (place, one) for place, one in enumerate(after, 1)}
    return [Move(before=old.get(side), after=new.get(side)) for side in dict.fromkeys((*new, *old))]
