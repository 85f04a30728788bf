"""Where a host acts: in which database, under which configuration, as whom, and when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
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
    by its own token or in its database. `creator` is noted with the boards that they create. `helper`: they are no
    host, but have a role on the board or course that they named, which the API has looked at."""

    store: PostgresStore
    config: Config
    by: str
    person: Person | None
    creator: PersonId | None
    now: datetime
    helper: bool = False

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

    def _by_name_or_email(self, text: str) -> Person | None:
        """Whoever has this name or, on a roster, this e-mail address; Invalid if these are two people."""
        named, found = self.store.people.find(text), self.store.people.by_email(text) if "@" in text else None
        if found is not None and named is not None and found.id != named.id:
            raise Invalid(
                f"{text} is the e-mail address of {found.name}, and a name that somebody else has",
                hint=f"Write person:{found.id} for {found.name} or person:{named.id} for the other.",
            )
        return found or named

    def _meant(self, text: str, *, emails: bool = True) -> Person | None:
        """Whoever is meant, among everybody."""
        provider, colon, account = contest.within("person", text, contest.WHOM_CAP).partition(":")
        if colon and provider in ("discord", "github"):
            return self.store.people.by_account(provider, account)
        if colon and provider == "person":
            text = account
            if text.isdecimal():
                return self.store.people.by_name_or_id(text)
        if text.isdecimal():
            return self._by_number(text)
        return self._by_name_or_email(text) if emails else self.store.people.find(text)

    def whom(self, text: str, *, emails: bool = True) -> Person:
        """The person meant by person:ID, discord:ID, github:ID, one of our numbers, else a name or an e-mail address
        on a roster. For hosts, who may see everybody."""
        found = self._meant(text, emails=emails)
        if found is None:
            name = text.removeprefix("person:")
            told = contest.did_you_mean(name, [known.name for known in self.store.people.all()])
            raise NotFound("person", name, hint=f"{told} kbslurm user list shows everyone.".strip())
        return found

    def whom_at(self, boards: Collection[Board], text: str) -> Person:
        """The same, for hosts and for whoever helps on these boards. Helpers learn of nobody who has nothing to do with
        them, not even that there is such a person, and e-mail addresses are those of the boards' courses."""
        if not self.helper:
            return self.whom(text)
        courses = sorted({board.course for board in boards if board.course is not None})
        where = " or ".join(sorted(board.name for board in boards))
        return self._known_to_helpers(text, courses, [board.id for board in boards], where)

    def whom_in(self, course: str, text: str) -> Person:
        """The same for a course, where student IDs are taken too."""
        found = self.store.roster.by_personal(course, text.strip())
        if found is not None:
            return self.store.people.get(found)
        return self._known_to_helpers(text, [course], [], f"course {course}") if self.helper else self.whom(text)

    def _known_to_helpers(self, text: str, courses: Sequence[str], boards: Sequence[int], where: str) -> Person:
        name = contest.within("person", text, contest.WHOM_CAP).removeprefix("person:").strip()
        known = [one for course in courses for one in self.store.roster.of_course(course, everyone=True)]
        for one in known:
            if one.email is not None and one.email.lower() == name.lower():
                return self.store.people.get(one.person_id)
        with suppress(Invalid):
            meant = self._meant(text, emails=False)
            if meant is not None and self.store.roster.takes_part(meant.id, courses=courses, boards=boards):
                return meant
        told = contest.did_you_mean(name, [one.name for one in known])
        raise NotFound("person", name, hint=f"{told} Nobody of that name takes part in {where}.".strip())


def iso(at: datetime | None) -> str | None:
    """A time as the answers write it."""
    return None if at is None else at.isoformat()
