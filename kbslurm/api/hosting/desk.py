"""Where a host acts: in which database, under which configuration, as whom, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kbslurm import wiring
from kbslurm.domain import contest
from kbslurm.errors import KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.run import PersonId
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, Person


@dataclass(frozen=True, kw_only=True)
class Desk:
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
        found = self.store.boards.find(name)
        if found is None:
            raise NotFound("board", name, known=self.store.boards.names())
        return found

    def offered(self) -> tuple[str, ...]:
        """The GPU types that places offer; none if a place's configuration can't be read."""
        try:
            return tuple(wiring.slots(self.config))
        except KbslurmError:
            return ()

    def whom(self, text: str) -> Person:
        """The person meant by person:ID, discord:ID, github:ID, one of our numbers, else a name."""
        provider, colon, account = text.partition(":")
        people = self.store.people
        found: Person | None
        if colon and provider in ("discord", "github"):
            found = people.by_account(provider, account)
        elif colon and provider == "person":
            found = people.by_name_or_id(account)
        else:
            found = people.by_name_or_id(text) or people.by_account("discord", text)
        if found is None:
            name = account if provider == "person" else text
            told = contest.did_you_mean(name, [known.name for known in people.all()])
            raise NotFound("person", name, hint=f"{told} kbslurm user list shows everyone.".strip())
        return found
