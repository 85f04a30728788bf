"""Hosts' acts about the service as a whole: pause, counts, usage, the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import contest, placement
from kbslurm.domain import usage as usages
from kbslurm.domain.run import SubmissionId

if TYPE_CHECKING:
    from kbslurm.domain.usage import By
    from kbslurm.ports import Event


class OperationActs(HostActs):
    """The service as a whole."""

    def accepting(self) -> bool:
        """Whether submissions are accepted."""
        return self.store.settings.accepts_jobs()

    def set_accepting(self, accepting: bool) -> bool:
        """Accept or pause submissions, even across restarts."""
        self.store.settings.set_accepts_jobs(accepting, by=self.by, now=self.now)
        return accepting

    def stats(self, board: str | None = None, *, last_day: bool = False) -> Mapping[str, Any]:
        """Counts, for one board or all."""
        since = self.now - timedelta(days=1) if last_day else None
        named = None if board is None else self.held(board).name
        return self.store.overview.stats(board=named, since=since)

    def usage(self, *, by: By = "board", month: str | None = None, board: str | None = None) -> Mapping[str, Any]:
        """A month's GPU-seconds and cost (UTC, like 2026-11), by board, person, team, place or run."""
        begins, ends = placement.month_named(month) if month else placement.month_of(self.now)
        named = None if board is None else contest.board_name(board)
        rows = self.store.costs.usage(by, begins, ends, self.now, board=named)
        held = () if named is not None else self.store.keepers.held(begins, ends, self.now)
        return usages.told(rows, begins=begins, by=by, board=named, budget=wiring.budget(self.config), held=held)

    def audit(self, *, limit: int = 50, before: int | None = None) -> Sequence[Mapping[str, Any]]:
        """The audit log, newest first; `before` is the number of the oldest line already seen."""
        return [audit_entry(event) for event in self.store.events.audit_log(limit=limit, before=before)]

    def audit_named(
        self, *, by: str = "", act: str = "", limit: int = 50, before: int | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """The same, of somebody or of one kind of act if these are given, with what the subjects are called."""
        events = self.store.events.audit_log(limit=limit, before=before, by=by or None, act=act or None)
        found = [audit_entry(event) for event in events]
        numbers: dict[str, set[int]] = {"person": set(), "board": set()}
        for line in found:
            kind, _, number = line["subject"].partition(":")
            if kind in numbers and number.isascii() and number.isdecimal():
                numbers[kind].add(int(number))
        known = {
            **{f"person:{one}": name for one, name in self.store.people.names(numbers["person"]).items()},
            **{f"board:{one}": name for one, name in self.store.boards.names_of(numbers["board"]).items()},
        }
        return [{**line, "named": known.get(line["subject"], "")} for line in found]

    def source(self, number: int) -> str:
        """The source of anyone's submission; empty if it was deleted."""
        return self.store.submissions.get(SubmissionId(number)).source or ""


def audit_entry(event: Event) -> dict[str, Any]:
    """One action of a host."""
    data = dict(event.data)
    by, via, where = (str(data.pop(name, "")) for name in ("by", "via", "where"))
    act = event.kind.removeprefix("staff.")
    told = {"id": event.id, "act": act, "subject": event.subject, "by": by, "via": via, "where": where}
    return {**told, "data": data, "at": event.at.isoformat()}
