"""Where a host acts: in which database, under which configuration, as whom, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kbslurm import wiring
from kbslurm.domain import contest, roster
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.problem import Problem
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, Person


@dataclass(frozen=True, kw_only=True)
class HostActs:
    """`by` is the host's name in the audit log; `person` has their rights: without one it is whoever runs the service,
    by its own token or in its database. `creator` is noted with the boards that they create."""

    store: PostgresStore
    config: Config
    by: str
    person: Person | None
    creator: PersonId | None
    now: datetime

    def held(self, name: str) -> Board:
        """The board with that name in any case, or NotFound with the existing ones."""
        found = self.store.boards.find(contest.within("leaderboard", name, contest.NAME_CAP))
        if found is None:
            raise NotFound("board", name, known=self.store.boards.names())
        return found

    def known_course(self, text: str) -> str:
        """The name of a course that there is, or NotFound with those that there are."""
        name = roster.course_name(contest.within("course", text, contest.NAME_CAP))
        known = [one.name for one in self.store.roster.courses()]
        if name not in known:
            raise NotFound("course", text, known=known, hint=None if known else "Import its roster first.")
        return name

    def offered(self) -> tuple[str, ...]:
        """The GPU types that places offer; none if a place's configuration can't be read."""
        try:
            return tuple(wiring.slots(self.config))
        except KbslurmError:
            return ()

    def check_memory(self, problem: Problem, gpus: Sequence[str]) -> None:
        """Refuse a problem that a site's jobs lack the memory for: a submission below its limit would be killed there,
        and nothing could tell whose fault that was."""
        from kbslurm.flow.script import more_memory

        try:
            found = wiring.short_of_memory(self.config, problem, gpus)
        except KbslurmError:
            return  # a site's file that can't be read is reported by whoever uses it
        for gpu, short in sorted(found.items()):
            raise Invalid(short[0], hint=f"{more_memory(gpu)} Or give the problem a lower memory_mb.")

    def _by_number(self, text: str) -> Person | None:
        """One of our numbers, else a Discord account; Invalid if somebody has it as a name, as names once might be."""
        people = self.store.people
        ours = people.by_id(PersonId(int(text))) if text.isascii() and len(text) < 19 else None
        found, named = ours or people.by_account("discord", text), people.find(text)
        if found is not None and named is not None and found.id != named.id:
            raise Invalid(
                f"{text} is the number of {found.name}, and a name that somebody else has",
                hint=f"Write person:{found.id} for {found.name} or person:{named.id} for the other.",
            )
        return found or named

    def whom(self, text: str) -> Person:
        """The person meant by person:ID, discord:ID, github:ID, one of our numbers, else a name."""
        provider, colon, account = contest.within("person", text, contest.WHOM_CAP).partition(":")
        people = self.store.people
        found: Person | None
        if colon and provider in ("discord", "github"):
            found = people.by_account(provider, account)
        elif colon and provider == "person":
            found = people.by_name_or_id(account)
        else:
            found = self._by_number(text) if text.isdecimal() else people.find(text)
        if found is None:
            name = account if provider == "person" else text
            told = contest.did_you_mean(name, [known.name for known in people.all()])
            raise NotFound("person", name, hint=f"{told} kbslurm user list shows everyone.".strip())
        return found


def iso(at: datetime | None) -> str | None:
    """A time as the answers write it."""
    return None if at is None else at.isoformat()
