"""What a contest's feed sends, and to whom: everything at first, then what changes, never more than the reader may see.

Whatever wakes the streams, all readers who see the same and are at the same event are answered by one look.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from anyio import CapacityLimiter

from kbslurm.api import contest_json, identity
from kbslurm.api.context import Context
from kbslurm.api.door import Look
from kbslurm.api.lookup import seen_board
from kbslurm.api.rounds import Rounds
from kbslurm.domain import access, contest
from kbslurm.domain.run import EventId, PersonId
from kbslurm.errors import Banned, Invalid, KbslurmError, NoHost, NotFound, Refused, Unauthenticated
from kbslurm.store.contests import Entered
from kbslurm.store.views import Board, Person

MARK = "c"
HEARTBEAT_S = 20.0  # the specification allows 120
PAUSE_S = 1.0
PAGE = 500
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Who reads. A host sees what a freeze hides from others; everybody sees their own."""

    person: PersonId | None
    host: bool

    def until(self, board: Board) -> datetime | None:
        """Others' are told as far as standings show them. Of a board that hides standings or names, nothing: times and
        numbers, which a feed can't do without, would say whose is whose."""
        is_open = access.shows_standings(board.standings, host=self.host)
        if is_open and access.names_people(board.names, host=self.host):
            return access.shown_until(board.frozen_at, host=self.host)
        return NEVER

    @property
    def is_anybody(self) -> bool:
        return self.person is None and not self.host


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A board, and the reader to whom it may be shown."""

    board: Board
    reader: Reader


@dataclass(frozen=True, kw_only=True)
class _Asked:
    board: str
    reader: Reader
    after: EventId


@dataclass(frozen=True, kw_only=True)
class _News:
    """What there is to send up to an event: these lines, or all of it."""

    board: Board
    upto: EventId
    lines: str
    all_of_it: bool
    state: str


def caller(context: Context, sender: identity.Given) -> tuple[Person | None, bool]:
    """Who calls, and whether as a host. As elsewhere where no token is needed, a bad one is ignored."""
    if sender.bearer and not sender.acting:
        with suppress(Unauthenticated, NoHost, NotFound, Banned, Refused):
            identity.host(context, sender)
            return None, True
    return identity.maybe_caller(context, sender), False


def seen(context: Context, sender: identity.Given, name: str) -> Seen:
    """The board by its contest's ID, if the caller may see it; NotFound looks the same as for a missing one."""
    person, host = caller(context, sender)
    known = name
    if name.startswith("_"):  # no board is called so
        boards = context.store.boards.all(counted=False)
        known = next((one.name for one in boards if contest_json.contest_id(one) == name), name)
    board = _any_board(context, known) if host else None
    try:
        board = board or seen_board(context, known, person)
    except NotFound:
        raise NotFound("board", name, known=context.store.boards.names(public_only=True)) from None
    return Seen(board=board, reader=Reader(person=None if person is None else person.id, host=host))


def _any_board(context: Context, name: str) -> Board | None:
    try:
        return context.store.boards.find(contest.board_name(name), counted=False)
    except Invalid:
        return None


def entries(context: Context, about: Seen, after: tuple[int, str]) -> list[Entered]:
    """A page of what the reader may see."""
    board, reader = about.board, about.reader
    return context.store.contests.page(board, after, PAGE, until=reader.until(board), viewer=reader.person)


def teams(context: Context, about: Seen) -> list[dict[str, Any]]:
    """Everyone who has entered something that the reader may see."""
    board, reader = about.board, about.reader
    found = context.store.contests.teams(board, until=reader.until(board), viewer=reader.person)
    return [contest_json.team_told(board, side, name) for side, name in found]


def submission(about: Seen, entered: Entered) -> dict[str, Any]:
    return contest_json.submission_told(about.board, entered)


def judgement(about: Seen, entered: Entered) -> dict[str, Any] | None:
    reader = about.reader
    in_full = access.may_see_how_it_failed(reader.person, entered.person_id, host=reader.host)
    return contest_json.judgement_told(about.board, entered, in_full=in_full)


TOLD: Mapping[str, Callable[[Seen, Entered], dict[str, Any] | None]] = {
    "submissions": submission,
    "judgements": judgement,
}


async def collection(context: Context, look: Look, about: Seen, kind: str) -> AsyncIterator[str]:
    """All submissions or judgements as a JSON array, piece by piece."""
    after, start = (0, ""), "["
    while True:
        page = await look(partial(entries, context, about, after))
        told = [row for one in page if (row := TOLD[kind](about, one)) is not None]
        if told:
            yield start + ",".join(map(_json, told))
            start = ","
        if len(page) < PAGE:
            break
        after = (page[-1].submission_id, page[-1].gpu)
    yield "[]" if start == "[" else "]"


class ContestFeed:
    """The feeds of all contests. For coroutines."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rounds: Rounds[_Asked, _News | NotFound] = Rounds(self._look, CapacityLimiter(1))

    async def lines(
        self, look: Look, sender: identity.Given, about: Seen, after: EventId, *, stream: bool
    ) -> AsyncIterator[str]:
        """What happened after this event, then what happens. At the beginning, and when anything may have changed, all
        of it: so that what has been withdrawn disappears at the reader's, too."""
        context, name, reader = self._context, about.board.name, about.reader
        with context.listener.follow() as ring:
            yield "\n"  # so that the reader knows the feed works and proxies forward the headers
            state, spoke_at = "", time.monotonic()
            while True:
                try:
                    news = await self._rounds.ask(_Asked(board=name, reader=reader, after=after))
                    # Asked after that: whoever may no longer read gets not even the news of it.
                    if isinstance(news, NotFound) or not (reader.is_anybody or await look(self._may(sender, about))):
                        return
                    about = Seen(board=news.board, reader=reader)
                    if news.all_of_it:
                        async for piece in self._all(look, about, after):
                            yield piece
                    if news.lines:
                        yield news.lines
                except KbslurmError as error:
                    context.metrics.met(error)
                    return  # the reader reconnects with its last token
                if news.all_of_it or news.lines or news.state != state:
                    yield f'{{"type":"state","id":null,"data":{news.state},"token":"{MARK}{news.upto}"}}\n'
                    spoke_at = time.monotonic()
                after, state = news.upto, news.state
                if not stream or context.listener.is_over:
                    return
                await asyncio.sleep(PAUSE_S)
                await context.listener.rest(ring, HEARTBEAT_S)
                # Not whenever something wakes it: that would tell of what the reader may not see.
                if time.monotonic() - spoke_at >= HEARTBEAT_S:
                    yield "\n"
                    spoke_at = time.monotonic()

    def _may(self, sender: identity.Given, about: Seen) -> Callable[[], bool]:
        def may() -> bool:
            try:
                return seen(self._context, sender, about.board.name).reader == about.reader
            except NotFound:
                return False

        return may

    async def _all(self, look: Look, about: Seen, after: EventId) -> AsyncIterator[str]:
        """Each collection as it is now. Until all of it is sent a reader who comes back continues where it was."""
        board, token = about.board, f"{MARK}{after}"
        yield _line("contest", None, contest_json.contest_told(board), token)
        yield _line("judgement-types", None, contest_json.judgement_types_told(), token)
        yield _line("languages", None, contest_json.languages_told(board), token)
        yield _line("problems", None, contest_json.problems_told(board), token)
        yield _line("teams", None, await look(partial(teams, self._context, about)), token)
        for kind in TOLD:
            yield f'{{"type":"{kind}","id":null,"data":'
            async for piece in collection(self._context, look, about, kind):
                yield piece
            yield f',"token":"{token}"}}\n'

    def _look(self, asked: Collection[_Asked]) -> Mapping[_Asked, _News | NotFound]:
        settled = self._context.store.events.last()
        boards = {name: self._context.store.boards.find(name, counted=False) for name in {one.board for one in asked}}
        return {one: self._news(one, boards[one.board], settled) for one in asked}

    def _news(self, asked: _Asked, board: Board | None, settled: EventId) -> _News | NotFound:
        reader = asked.reader
        if board is None or (reader.is_anybody and not access.is_for_everybody(board.visibility)):
            return NotFound("board", asked.board)
        lines: str | None = ""
        if asked.after == 0:
            lines = None
        elif settled > asked.after:
            lines = self._changes(board, reader, asked.after, settled)
        upto = max(settled, asked.after)
        state = _json(contest_json.state_told(board, self._context.clock.now()))
        return _News(board=board, upto=EventId(upto), lines=lines or "", all_of_it=lines is None, state=state)

    def _changes(self, board: Board, reader: Reader, after: EventId, settled: EventId) -> str | None:
        """The lines about what has changed; None if that may be anything."""
        contests, about = self._context.store.contests, Seen(board=board, reader=reader)
        until, token = reader.until(board), f"{MARK}{settled}"
        changes = contests.changed(board, after, settled)
        if changes.submissions is None:
            return None
        if not changes.submissions:
            return ""
        found = contests.of(board, changes.submissions, until=until, viewer=reader.person)
        missing = set(changes.submissions) - {one.submission_id for one in found}
        if missing and contests.withdrawn(board, missing, until=until, viewer=reader.person):
            return None
        told = {one.side: contest_json.team_told(board, one.side, one.name) for one in found}
        lines = [_line("teams", team["id"], team, token) for team in told.values()]
        for one in found:
            row = submission(about, one)
            lines.append(_line("submissions", row["id"], row, token))
            verdict = judgement(about, one)
            if verdict is not None:
                lines.append(_line("judgements", verdict["id"], verdict, token))
        return "".join(lines)


def _line(kind: str, number: str | None, data: Any, token: str) -> str:
    return _json({"type": kind, "id": number, "data": data, "token": token}) + "\n"


def _json(told: Any) -> str:
    return json.dumps(told, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
