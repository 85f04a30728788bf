"""Whom a board's standings name: people themselves, the nicknames that they chose, or pseudonyms. Pure.

A pseudonym belongs to one person, or team, on one board. It follows from a key that only the board's row holds, so it
stays the same, differs from board to board, and can't be computed from anything that others see. Whoever isn't shown
under their own name is shown without whatever else would name them: their number, their submissions' numbers, file
names and times of day, by which others could find them on another board or in a channel.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from unicodedata import combining, normalize

from kbslurm.domain import access
from kbslurm.domain.access import NamesShown
from kbslurm.domain.board import Entry
from kbslurm.errors import QuotaSpent

RENAMED_WINDOW = timedelta(hours=1)
MOST_RENAMED = 10  # on each board: everybody who looks at its standings reads every change

ANIMALS = (
    "Adder Alpaca Badger Bat Bear Beaver Bison Camel Carp Cat Cobra Condor Crab Crane Cricket Deer Dingo Dolphin Eagle"
    " Eel Elk Falcon Ferret Finch Fox Frog Gecko Goose Hare Heron Ibex Jackal Jay Kiwi Koala Lark Lemur Lion Lizard"
    " Llama Lynx Magpie Marten Mole Moose Newt Orca Otter Owl Panda Puffin Rabbit Raven Robin Salmon Seal Shark Stork"
    " Swan Tiger Toad Trout Walrus Wolf"
).split()
LETTERS = "abcdefghjkmnpqrstvwxyz23456789"
MANY = 7
# Numbers made up for others to see: above any of ours, and exact in every JSON reader.
LEAST, BELOW = 2**52, 2**53
# What looks like another letter, as that one; upper case is gone by then.
_TWINS = {
    ord(one): like
    for one, like in zip(
        "авсԁеһіјкӏмнопрԛѕтуԝхүґαβεζηικμνορτυχωıɩɑɡʟ01i",
        "abcdehljklmhonpqstywxyrabeznlkmvoptuxwllagloll",
        strict=True,
    )
}


def check_may_rename(changed_at: Sequence[datetime], now: datetime) -> None:
    """Refuse whoever changes their nickname on a board too often; `changed_at`: when they did within the window."""
    recent = sorted(at for at in changed_at if at > now - RENAMED_WINDOW)
    if len(recent) >= MOST_RENAMED:
        resets_at = recent[len(recent) - MOST_RENAMED] + RENAMED_WINDOW
        raise QuotaSpent("nickname changes per hour", used=len(recent), limit=MOST_RENAMED, resets_at=resets_at)


@dataclass(frozen=True, kw_only=True)
class Disguise:
    """How one board names people to others. `key` is its secret; `nicknames` are those chosen there, by person."""

    names: NamesShown = "real"
    key: str = ""
    nicknames: Mapping[int, str] = field(default_factory=dict)

    def name_of(self, person_id: int, team: str | None) -> str | None:
        """What this person, or on a board of teams this team, is called instead; None: by their own name."""
        if access.names_people(self.names):
            return None
        if self.names == "nicknames":
            return None if team is not None else self.nicknames.get(person_id)
        digest = self._digest("name", f"person:{person_id}" if team is None else f"team:{team}")
        number = int.from_bytes(digest[:16])
        number, animal = divmod(number, len(ANIMALS))
        letters = ""
        for _ in range(MANY):
            number, letter = divmod(number, len(LETTERS))
            letters += LETTERS[letter]
        return f"{ANIMALS[animal]} {letters}"

    def number(self, what: str, number: int | str) -> int:
        """A number to show instead of one of ours: always the same for the same thing, and of no use elsewhere."""
        return LEAST + int.from_bytes(self._digest(what, str(number))[:8]) % (BELOW - LEAST)

    def entry(self, one: Entry) -> Entry:
        """A place as others may see it."""
        name = self.name_of(one.person_id, one.team)
        if name is None:
            return one
        return replace(
            one,
            person=name,
            person_id=self.number("person", one.side),
            team=None if one.team is None else name,
            submission_id=self.number("submission", one.submission_id),
            run_id=self.number("run", one.run_id),
            at=one.at.replace(hour=0, minute=0, second=0, microsecond=0),
            file_name="",
        )

    def _digest(self, what: str, whom: str) -> bytes:
        return hmac.new(self.key.encode(), f"{what}:{whom}".encode(), hashlib.sha256).digest()


def outline(name: str) -> str:
    """What the eye keeps of a name: two names with the same outline can be taken for one another."""
    folded = normalize("NFKD", normalize("NFKC", name).casefold())
    plain = "".join(one for one in folded if not combining(one)).translate(_TWINS)
    return "".join(one for one in plain if one.isalnum()) or folded
