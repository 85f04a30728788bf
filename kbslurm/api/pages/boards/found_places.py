"""Places that a reader looks for: by name, language or section, in an order of theirs.

Every reader's wish is another one, so none of these pages is kept: they are made from the standings in memory, in the
reader's turn, a hundred rows at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import urlencode

from kbslurm.api.pages.boards.board_rows import language
from kbslurm.domain import contest
from kbslurm.domain.board import Ranking
from kbslurm.domain.tracks import Moves, Side, Track
from kbslurm.errors import Invalid

Order = Literal["place", "name", "change", "entries", "newest"]
ORDERS: Mapping[Order, str] = {
    "place": "Place",
    "name": "Name",
    "change": "Change since yesterday",
    "entries": "Ranked submissions",
    "newest": "Newest first",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What somebody looks for on a board."""

    q: str = ""
    language: str = ""
    section: str = ""
    sort: Order = "place"

    @classmethod
    def of(cls, *, q: str, language: str, section: str, sort: str) -> Wanted:
        for name in get_args(Order):
            if name == (sort or "place"):
                return cls(q=q.strip(), language=language.strip(), section=section.strip(), sort=name)
        raise Invalid(f"{contest.shown(sort)} isn't an order of places", hint=f"Choose one of: {', '.join(ORDERS)}.")

    @property
    def is_plain(self) -> bool:
        """Whether that is the board as everybody sees it."""
        return self == PLAIN

    @property
    def narrows(self) -> bool:
        """Whether somebody may be left out."""
        return bool(self.q or self.language or self.section)

    def query(self, *, sort: Order | None = None, start: int | None = None) -> str:
        """The query of the page with this order, from this row on."""
        asked = replace(self, sort=sort or self.sort)
        told = {name: value for name, value in vars(asked).items() if value and value != "place"}
        return "?" + urlencode({**told, **({} if start is None else {"from": start})})


PLAIN = Wanted()


def chosen(
    ranking: Ranking,
    wanted: Wanted,
    tracks: Mapping[Side, Track],
    moves: Moves,
    people: Collection[int] | None = None,
) -> list[int]:
    """Which places that means, from 0 on, in order. `people`: only theirs."""
    entries, name = ranking.entries, wanted.q.casefold()
    found = [
        n
        for n, one in enumerate(entries)
        if name in one.person.casefold()
        and (not wanted.language or language(one.file_name) == wanted.language)
        and (people is None or one.person_id in people)
    ]

    def risen(n: int) -> int:
        before = moves.ranks.get(entries[n].side)
        return 0 if before is None else n + 1 - before

    def entered(n: int) -> int:
        track = tracks.get(entries[n].side)
        return 0 if track is None else -track.entries

    keys: Mapping[Order, Callable[[int], object]] = {
        "place": lambda n: n,
        "name": lambda n: entries[n].person.casefold(),
        "change": risen,
        "entries": entered,
        "newest": lambda n: -entries[n].at.timestamp(),
    }
    return sorted(found, key=keys[wanted.sort])  # type: ignore[arg-type]
