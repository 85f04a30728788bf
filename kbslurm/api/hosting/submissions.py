"""Submissions as hosts, and as their authors, look through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api import popcorn_submission, waiting
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import access
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.errors import Invalid, NotFound, Refused

if TYPE_CHECKING:
    from kbslurm.ports import Clock
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import SubmissionView


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Whose submissions somebody may look through: all at these boards (None: at every board), and their own."""

    boards: frozenset[int] | None = None
    person: PersonId | None = None


EVERYBODYS = Seen()


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """What the queue's state is read from."""

    store: PostgresStore
    slots: Mapping[str, int]
    at: datetime

    @property
    def clock(self) -> Clock:
        return self

    def now(self) -> datetime:
        return self.at


class SubmissionActs(HostActs):
    """Submissions: a list by what they are, and one with its code and logs."""

    def find_submissions(
        self,
        *,
        board: str | None = None,
        person: str | None = None,
        verdict: str | None = None,
        mode: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
        seen: Seen | None = None,
    ) -> Sequence[Mapping[str, Any]]:
        """Those that match and that the host may see, newest first. `seen`: what that is; by default what their role
        gives. Helpers learn nothing of people whom they name and whom there isn't: there are none of theirs."""
        known = seen or self._seen()
        try:
            whose = None if person is None else self.whom(person, emails=not self.helper).id
        except (Invalid, NotFound):
            if self.helper:
                return []
            raise
        found = self.store.submissions.newest(
            person=whose,
            board=None if board is None else self.held(board).name,
            verdict=verdict,
            mode=mode,
            since=since,
            boards=known.boards,
            or_of=known.person,
            limit=limit,
            offset=offset,
        )
        return [hosts_summary(view) for view in found]

    def any_submission(self, number: int) -> Mapping[str, Any]:
        """A submission in full: with what only hosts see if it is at a board that they grade, else as its author."""
        view = self.store.submissions.get(SubmissionId(number))
        seen = self._seen()
        rows = _Rows(store=self.store, slots=wiring.slots(self.config), at=self.now)
        if seen.boards is None or view.board_id in seen.boards:
            return hosts_submission(rows, waiting.Histories(), view)
        if self.person is not None and access.may_see_submission(self.person, view):
            return popcorn_submission.submission(view, waiting.of_submission(rows, waiting.Histories(), view))
        if view.removed_at is not None:
            raise NotFound("submission", str(number))
        raise Refused(f"submission {number} isn't yours")

    def _seen(self) -> Seen:
        if self.person is None or access.has_staff_rights(self.person):
            return EVERYBODYS
        roles = self.store.roster.roles_of(self.person.id)
        graded = frozenset(board for board, role in roles.items() if access.may_on_board(self.person, role, "grade"))
        return Seen(boards=graded, person=self.person.id)


def hosts_summary(view: SubmissionView) -> dict[str, Any]:
    """A submission in a list, with whose it is."""
    return {
        **popcorn_submission.summary(view),
        "user_id": str(view.person_id),
        "user_name": view.person,
        "via": view.via,
    }


def hosts_submission(context: waiting.Rows, histories: waiting.Histories, view: SubmissionView) -> dict[str, Any]:
    """Everything that its owner sees, plus the logs."""
    details = [(run.verdict.detail if run.verdict else None) or {} for run in view.runs]
    return {
        **popcorn_submission.submission(view, waiting.of_submission(context, histories, view)),
        "user_name": view.person,
        "via": view.via,
        "removed_at": view.removed_at.isoformat() if view.removed_at else None,
        "log": "\n".join(str(one.get("log", "")) for one in details),
        "secret_log": "\n".join(str(one.get("secret_log", "")) for one in details),
    }
