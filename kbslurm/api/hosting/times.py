"""Hosts' acts about a board's times: late submissions, extensions, freezes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs, iso
from kbslurm.domain import access, contest, lateness
from kbslurm.domain.lateness import LatePolicy
from kbslurm.errors import Invalid, NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from kbslurm.store.views import Board

SECTION = "section:"


class TimeActs(HostActs):
    """When people may submit, and until when others see how they do."""

    def times(self, board: str) -> Mapping[str, Any]:
        """A board's deadline, late policy, extensions, and freeze."""
        held = self.held(board)
        return {
            **board_times(held, self.now),
            "extensions": [
                {"person": one.person, "section": one.section, "until": one.deadline_at.isoformat()}
                for one in self.store.times.extensions(held)
            ],
        }

    def set_late(
        self,
        board: str,
        *,
        until: str | None = None,
        grace: str | None = None,
        percent: float | None = None,
        per: lateness.Unit | None = None,
        slip_days: int | None = None,
    ) -> Mapping[str, Any]:
        """Change what is given of a board's late policy; `until` may be `none`: then it takes no late submissions."""
        held = self.held(board)
        for what, text in (("until", until), ("grace", grace)):
            contest.within(what, text or "", contest.NAME_CAP)
        if until == "none":
            policy = LatePolicy()
        else:
            last = held.late.until
            if until is not None:
                last = contest.coming_deadline(until, held.zone, self.now, what="end of late submissions")
            if last is None:
                raise Invalid(
                    f"board {held.name} takes no late submissions", hint="Say until when it should: --until 2026-12-24"
                )
            policy = LatePolicy(
                until=last,
                grace_s=held.late.grace_s if grace is None else lateness.parsed_span(grace),
                percent=held.late.percent if percent is None else percent,
                per=held.late.per if per is None else per,
                slip_days=held.late.slip_days if slip_days is None else slip_days,
            )
        self.store.times.set_late(held.name, policy, by=self.by, now=self.now)
        return self.times(held.name)

    def extend(self, board: str, whom: str, until: str | None) -> Mapping[str, Any]:
        """Give one person, or with `section:NAME` a section, a later deadline; None removes it."""
        held = self.held(board)
        contest.within("until", until or "", contest.NAME_CAP)
        at = contest.coming_deadline(until, held.zone, self.now, what="extension") if until is not None else None
        if whom.startswith(SECTION):
            name = self._section(held, whom.removeprefix(SECTION))
            self.store.times.extend_section(held.name, name, at, by=self.by, now=self.now)
            named: dict[str, Any] = {"person": None, "section": name}
        else:
            person = self.whom_at([held], whom)
            self.store.limits.extend(held.name, person, at, by=self.by, now=self.now)
            named = {"person": person.name, "section": None}
        return {"status": "ok", "leaderboard": held.name, **named, "until": iso(at), "zone": held.zone}

    def _section(self, board: Board, name: str) -> str:
        """The section as the roster writes it, or NotFound with those of the board's course."""
        known = self.store.times.sections(board)
        for one in known:
            if one.lower() == name.strip().lower():
                return one
        hint = None if known else "The board's course has no sections; kbslurm roster import brings them."
        raise NotFound(f"section of board {board.name}", name.strip()[:100], known=known, hint=hint)

    def freeze(self, board: str, at: str | None = None) -> Mapping[str, Any]:
        """Stop showing others what is submitted from now on, or from a later moment on."""
        held = self.held(board)
        contest.within("at", at or "", contest.NAME_CAP)
        when = self.now if at is None else contest.coming_deadline(at, held.zone, self.now, what="freeze")
        self.store.times.freeze(held.name, when, by=self.by, now=self.now)
        return self.times(held.name)

    def unfreeze(self, board: str) -> Mapping[str, Any]:
        """Show everything again."""
        held = self.held(board)
        self.store.times.unfreeze(held.name, by=self.by, now=self.now)
        return self.times(held.name)


def board_times(board: Board, now: datetime) -> dict[str, Any]:
    """What anybody may know about a board's times."""
    late = board.late
    return {
        "leaderboard": board.name,
        "zone": board.zone,
        "deadline": iso(board.deadline_at),
        "closed_at": iso(board.closed_at),
        "late": {
            "until": iso(late.until),
            "grace_s": late.grace_s,
            "percent": late.percent,
            "per": late.per,
            "slip_days": late.slip_days,
            "in_words": lateness.in_words(late, board.zone),
        },
        "frozen_at": iso(board.frozen_at),
        "is_frozen": access.is_frozen(board.frozen_at, now),
        "finalised_at": iso(board.finalised_at),
    }
