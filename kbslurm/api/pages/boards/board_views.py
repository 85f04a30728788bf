"""Who looks at which board: the row and the page come from one look for all, the rights from one for each reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread

from kbslurm.api import waiting
from kbslurm.api.context import Context
from kbslurm.api.pages.boards.drawn_boards import Drawn, DrawnBoards
from kbslurm.api.pages.boards.found_places import Wanted
from kbslurm.api.rounds import Rounds
from kbslurm.api.standings_cache import OwnPlace, StandingsCache
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid, NotFound
from kbslurm.store.views import Board, Person

THREADS = 4  # apart from those of the other calls: a board that is read for the first time takes a while
MOST_ROUNDS = 512


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which page of which board, as it was asked for. Without a GPU type: the board's first."""

    board: str
    gpu: str | None
    start: int = 0


@dataclass(frozen=True, kw_only=True)
class Found:
    """A board as it is now, and the page of it; NotFound if it has no such GPU type, None if nobody was allowed."""

    board: Board
    page: Drawn | NotFound | None

    @property
    def drawn(self) -> Drawn:
        assert self.page is not None
        if isinstance(self.page, NotFound):
            raise self.page
        return self.page


@dataclass(frozen=True, kw_only=True)
class _Asker:
    secret: str | None
    private: int | None


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Whoever is signed in. `helps`: they have a role on some board."""

    person: Person
    helps: bool


@dataclass(frozen=True, kw_only=True)
class _Known:
    reader: Reader | None
    invited: bool


class BoardViews:
    """The boards' pages, for any number of readers at once. For coroutines."""

    def __init__(self, context: Context, histories: waiting.Histories, standings: StandingsCache) -> None:
        self._context = context
        self._drawn, self._standings = DrawnBoards(context, histories, standings), standings
        self._limiter = CapacityLimiter(THREADS)
        self._places: dict[Place, Rounds[bool, Found | None]] = {}
        self._askers: Rounds[_Asker, _Known] = Rounds(self._who, CapacityLimiter(1))

    async def of(self, place: Place, secret: str | None) -> tuple[Found, Reader | None]:
        """The page, and its reader by the secret of their session. NotFound looks the same for a missing board and for
        one that they may not see; nothing is drawn for those who may not."""
        found = await self._look(place, allowed=False)
        if found is None:
            raise await self._missing(place)
        if secret is None and found.page is not None:
            return found, None
        reader, may_see = await self._may_see(found.board, secret)
        if not may_see:
            raise await self._missing(place)
        if found.page is None:
            return await self.now(place), reader
        return found, reader

    async def now(self, place: Place) -> Found:
        """The page for readers whose rights are checked elsewhere. NotFound if there is no such board."""
        found = await self._look(place, allowed=True)
        if found is None:
            raise NotFound("board", place.board)
        return found

    def searched(
        self,
        board: Board,
        drawn: Drawn,
        wanted: Wanted,
        start: int,
        *,
        sections: Sequence[str],
        people: Collection[int] | None,
    ) -> Drawn:
        """The same board with the places that one reader looks for. In a thread, in their turn."""
        return self._drawn.found(board, drawn, wanted, start, sections=sections, people=people)

    def own_place(self, board: Board, drawn: Drawn, person: Person) -> OwnPlace | None:
        """Where the reader of this page, or their team, stands on it; without a look at the database."""
        side = person.team if board.teams and person.team is not None else person.id
        return self._standings.own_place(board, drawn.gpu, side)

    async def may_see(self, board: Board, secret: str | None) -> bool:
        """Whether the reader with this session may see this board now."""
        return access.is_for_everybody(board.visibility) or (await self._may_see(board, secret))[1]

    async def _may_see(self, board: Board, secret: str | None) -> tuple[Reader | None, bool]:
        private = None if access.is_for_everybody(board.visibility) else board.id
        if secret is None:
            return None, private is None
        known = await self._askers.ask(_Asker(secret=secret, private=private))
        staff = known.reader is not None and known.reader.person.is_staff
        return known.reader, access.may_see_board(board.visibility, invited=known.invited, staff=staff)

    async def _look(self, place: Place, *, allowed: bool) -> Found | None:
        if len(self._places) > MOST_ROUNDS:
            self._places = {one: rounds for one, rounds in self._places.items() if not rounds.is_idle}
        rounds = self._places.get(place)
        if rounds is None:
            rounds = self._places[place] = Rounds(lambda asked: self._found(place, asked), self._limiter)
        return await rounds.ask(allowed)

    async def _missing(self, place: Place) -> NotFound:
        known = await to_thread.run_sync(lambda: self._context.store.boards.names(public_only=True))
        return NotFound("board", place.board, known=known)

    def _found(self, place: Place, asked: Collection[bool]) -> Mapping[bool, Found | None]:
        try:
            board = self._context.store.boards.find(contest.board_name(place.board), counted=False)
        except Invalid:
            board = None
        if board is None:
            return dict.fromkeys(asked)
        is_public = access.is_for_everybody(board.visibility)
        page = self._page(board, place) if is_public or True in asked else None
        return {allowed: Found(board=board, page=page if is_public or allowed else None) for allowed in asked}

    def _page(self, board: Board, place: Place) -> Drawn | NotFound:
        gpu = place.gpu if place.gpu is not None else next(iter(board.gpus), "")
        try:
            return self._drawn.now(board, gpu, place.start)
        except NotFound as error:
            return error

    def _who(self, asked: Collection[_Asker]) -> Mapping[_Asker, _Known]:
        store = self._context.store
        secrets = {asker.secret for asker in asked if asker.secret is not None}
        people = store.tokens.people_of(secrets, now=self._context.clock.now())
        private = {asker.private for asker in asked if asker.private is not None}
        members = store.invites.members_of(private) if private else {}
        helpers = store.roster.helpers_among({one.id for one in people.values() if not one.is_staff})
        found = {}
        for asker in asked:
            person = people.get(asker.secret or "")
            reader = None
            if person is not None and access.may_sign_in(person):
                reader = Reader(person=person, helps=person.id in helpers)
            invited = reader is not None and asker.private is not None and reader.person.id in members[asker.private]
            found[asker] = _Known(reader=reader, invited=invited)
        return found
