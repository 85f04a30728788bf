"""The start page: running competitions as cards, ended ones below. Drawn once for everybody; for whoever is signed in,
the same cards with their own places."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from kbslurm.api import sessions
from kbslurm.api.board_json import is_over
from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board
from kbslurm.api.pages.boards.board_list import BoardList, Listed, Race, Side
from kbslurm.api.pages.boards.link_cards import front_card
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.rendering import closes, text_of, took
from kbslurm.api.pages.shared_page import sent
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.rounds import Rounds
from kbslurm.domain import access, contest, lateness
from kbslurm.domain.amounts import seconds
from kbslurm.store.views import Board, Person

FRESH = timedelta(seconds=1)
ABOUT = 140  # characters of a description
TWICE = 2.0  # from here on a lead is told as a factor


@dataclass(frozen=True, kw_only=True)
class Card:
    """A board on the start page. `html`: a card, or of one that is over a row; `version` names what stands there,
    but for the time that is left."""

    listed: Listed
    is_running: bool
    html: Markup
    version: str

    @property
    def order(self) -> tuple[bool, float, int]:
        """Who closes first stands first; without a deadline, the newest."""
        at = self.listed.board.deadline_at
        return (at is None, 0.0 if at is None else at.timestamp(), -self.listed.board.id)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """All cards, and the page for whoever isn't signed in."""

    cards: Sequence[Card]
    page: str
    etag: str
    version: str  # of what stands on it, but for the time that is left

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.page.encode("utf-8", "surrogatepass"), mtime=0)


Now = Callable[[], Awaitable[Drawn]]


class Front:
    """What the start page shows. For one thread at a time; what it returns, for any."""

    def __init__(self, context: Context, listed: BoardList) -> None:
        self._context, self._list = context, listed
        self._facts: dict[int, tuple[Mapping[str, Any], Card]] = {}
        self._seen: Sequence[Listed] | None = None
        self._at: datetime | None = None
        self._drawn: Drawn | None = None

    def now(self) -> Drawn:
        """As it is now."""
        now, listed = self._context.clock.now(), self._list.now()
        is_fresh = self._at is not None and self._at <= now < self._at + FRESH
        if self._drawn is None or listed is not self._seen or not is_fresh:
            self._drawn = self._draw(listed, now)
            self._seen, self._at = listed, now
        return self._drawn

    def _draw(self, listed: Sequence[Listed], now: datetime) -> Drawn:
        before, self._facts = self._facts, {}
        for one in listed:
            facts = facts_of(one, now)
            known = before.get(one.board.id)
            if known is None or known[0] != facts:
                template = "boards/front_card.html" if facts["is_running"] else "boards/front_ended.html"
                html = text_of(template, **facts)
                version = _digest(repr({**facts, "left": bool(facts.get("left"))}))
                card = Card(listed=one, is_running=facts["is_running"], html=html, version=version)
            else:
                card = replace(known[1], listed=one)
            self._facts[one.board.id] = (facts, card)
        cards = [card for _, card in self._facts.values()]
        before_all = self._drawn
        if before_all is not None and [one.html for one in cards] == [one.html for one in before_all.cards]:
            return before_all if listed is self._seen else replace(before_all, cards=cards)
        everybodys = [one for one in cards if access.is_for_everybody(one.listed.board.visibility)]
        version = version_of(everybodys, {})
        told = {**arranged(everybodys), "own": {}, "seen": version, "card": front_card(self._context)}
        page = str(text_of("boards/front.html", **told))
        return Drawn(cards=cards, page=page, etag=f'"{_digest(page)}"', version=version)


def front_page(router: APIRouter, context: Context, visitors: Visitors, listed: BoardList) -> Now:
    """The start page; returns how others have it as it is now."""
    front = Front(context, listed)
    looks: Rounds[None, Drawn] = Rounds(lambda asked: dict.fromkeys(asked, front.now()), CapacityLimiter(1))

    @router.get("/")
    async def start(request: Request) -> Response:
        """The boards that the reader may see."""
        drawn = await looks.ask(None)
        if sessions.secret_of(request) is not None:
            answer = await run_in_threadpool(_for_person, context, visitors, request, drawn)
            if answer is not None:
                return answer
        return sent(request, drawn)

    return lambda: looks.ask(None)


def _for_person(context: Context, visitors: Visitors, request: Request, drawn: Drawn) -> Response | None:
    """The page with private boards and one's own places; None for whoever isn't signed in."""
    found = front_of(context, visitors, request, drawn)
    if found is None:
        return None
    told = {**arranged(found.cards), "own": found.places, "seen": found.version, "card": front_card(context)}
    return visitors.page(request, "boards/front.html", found.person, **told)


@dataclass(frozen=True, kw_only=True)
class Own:
    """What one person sees on it: the cards, and their places by the board's number."""

    person: Person
    cards: Sequence[Card]
    places: Mapping[int, Sequence[str]]

    @property
    def version(self) -> str:
        """What names this."""
        return version_of(self.cards, self.places)


def front_of(context: Context, visitors: Visitors, request: Request, drawn: Drawn) -> Own | None:
    """What the reader sees; None for whoever isn't signed in."""
    person = visitors.who(request)
    if person is None:
        return None
    mine = context.store.invites.boards_of(person.id)
    cards = [one for one in drawn.cards if may_see_board(one.listed.board, person, mine)]
    teams = context.store.standings.teams_of(person.id) if any(one.listed.board.teams for one in cards) else {}
    own = {one.listed.board.id: own_places(one.listed, person, teams) for one in cards if one.is_running}
    return Own(person=person, cards=cards, places=own)


def version_of(cards: Sequence[Card], places: Mapping[int, Sequence[str]]) -> str:
    """What names these cards and places, but for the time that is left."""
    return _digest(repr(([one.version for one in cards], sorted(places.items()))))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def arranged(cards: Sequence[Card]) -> dict[str, Any]:
    """The cards in their order, and the rows below them."""
    return {
        "running": sorted((one for one in cards if one.is_running), key=lambda one: one.order),
        "ended": [one for one in cards if not one.is_running],
    }


def own_places(listed: Listed, person: Person, teams: Mapping[int, Collection[str]]) -> list[str]:
    """Where this person stands, as far as they are told."""
    if not access.shows_own_place(listed.board.standings):
        return []
    sides: set[Side] = {person.id, *teams.get(listed.board.id, ())}
    return [
        f"{n} of {race.ranked} on {race.gpu}"
        for race in listed.races
        for side, n in ((side, race.places.get(side)) for side in sides)
        if n is not None
    ]


def facts_of(listed: Listed, now: datetime) -> dict[str, Any]:
    """All that a card or a row shows."""
    board = listed.board
    ends_at = min((at for at in (board.deadline_at, board.closed_at) if at is not None), default=None)
    is_running = board.closed_at is None and not contest.closed(board.deadline_at, now)
    found = {
        "name": board.name,
        "is_running": is_running,
        "is_private": not access.is_for_everybody(board.visibility),
        "is_frozen": access.is_frozen(board.frozen_at, now),
        "is_hidden": not access.shows_standings(board.standings),
        "is_final": board.finalised_at is not None,
        "deadline_at": board.deadline_at,
        "closes": closes(board),
    }
    if not is_running:
        ended = "" if ends_at is None else contest.at_home(ends_at, board.zone)
        firsts = [{"gpu": race.gpu, **_first(race)} for race in listed.races]
        return {**found, "ended": ended, "still": _still(board, now), "firsts": firsts}
    main = listed.main
    return {
        **found,
        "left": left(board.deadline_at, now),
        "freezes": contest.at_home(board.frozen_at, board.zone) if board.frozen_at and not found["is_frozen"] else "",
        "about": about(board.description),
        "announced": listed.announced,
        "gpus": [race.gpu for race in listed.races],
        "race": None if main is None or main.first is None else _race(board, main, now),
    }


def _first(race: Race) -> dict[str, Any]:
    if race.first is None:
        return {"person": "", "score": "", "people": 0}
    return {"person": race.first.person, "score": seconds(race.first.score_s), "people": race.people}


def _still(board: Board, now: datetime) -> str:
    """What a board that is over still takes."""
    if board.closed_at is not None:
        return ""
    if lateness.still_late(board.late, board.deadline_at, now):
        return "late submissions"
    return "practice" if board.practice and is_over(board, now) else ""


def _race(board: Board, race: Race, now: datetime) -> dict[str, Any]:
    assert race.first is not None
    last = race.records[-1] if race.records else None
    found = {
        "gpu": race.gpu,
        "people": race.people,
        "score": seconds(race.first.score_s),
        "leader": race.first.person,
        "second": race.second.person if race.second else "",
        "lead": lead(race),
        "is_tied": race.is_tied,
        "trend": trend(race, now),
    }
    # Under a pseudonym only the day is told.
    to_the_minute = access.names_people(board.names)
    recent = None if last is None else {"person": last.person, "at": last.at, "to_the_minute": to_the_minute}
    return {**found, "record": recent, "fell": "" if last is None else _fell(race)}


def lead(race: Race) -> str:
    """How far the first is ahead of the second: `5.7 %`, `2.3×`."""
    if race.first is None or race.second is None:
        return ""
    ratio = race.second.score_s / race.first.score_s
    return f"{ratio:.3g}×" if ratio >= TWICE else f"{100 * (ratio - 1):.2g} %"


def _fell(race: Race) -> str:
    """The record's way, for those who don't see the line."""
    first, last = race.records[0], race.records[-1]
    return f"The record on {race.gpu}, {seconds(last.score_s)}" + (
        "" if first is last else f", after {seconds(first.score_s)}"
    )


def trend(race: Race, now: datetime) -> Lines:
    """The record over time, to the hour."""
    points = [Point(at=one.at, value=one.score_s, said=one.person) for one in race.records]
    return lines([points], written=took, steps=True, until=now.replace(minute=0, second=0, microsecond=0))


def about(description: str) -> str:
    """The first words of a description."""
    first = next(_sentences(description), "")
    return first if len(first) <= ABOUT else f"{first[:ABOUT].rsplit(None, 1)[0]} …"


def _sentences(description: str) -> Iterator[str]:
    return (line for line in (one.replace("`", "").strip("#*_ \t") for one in description.splitlines()) if line)
