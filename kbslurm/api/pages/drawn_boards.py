"""Boards as HTML, drawn once for everybody who looks at the same one.

What is drawn is the same for all who may see the board; who may is decided afterwards, for each of them
(`readers`). Nothing here knows a person.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from markupsafe import Markup

from kbslurm.api import waiting
from kbslurm.api.board_json import is_open, remarks
from kbslurm.api.context import Context
from kbslurm.api.pages import drawing
from kbslurm.api.pages.link_cards import board_card, embedded_at
from kbslurm.api.pages.rendering import block, closes, text_of
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, contest, measure
from kbslurm.domain.amounts import score
from kbslurm.domain.board import Ranking, Standing
from kbslurm.domain.run import EventId
from kbslurm.errors import NotFound
from kbslurm.store.finals import Final
from kbslurm.store.views import Board

PAGE = 100
KEPT = 256  # pages of boards: some 10 MB
FRESH = timedelta(seconds=1)  # what changes without an event: a leading daemon's lease
TEMPLATE = "board.html"
ANNOUNCED = 5
PARTS = ("queue", "standings")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A page of a board. `parts` are those that an open page replaces when they change, by name; `number` grows with
    each one drawn, and `version` says what it shows."""

    number: int
    parts: Mapping[str, Markup]
    digests: Mapping[str, str]
    page: str
    etag: str

    @property
    def version(self) -> str:
        return _version(self.digests)

    def for_reader(self, person: Any, csrf: str) -> str:
        """The page with this person's header: all that differs between readers."""
        before, _, rest = self.page.partition("<header>")
        _, _, after = rest.partition("</header>\n")
        return before + block("base.html", "header", person=person, csrf=csrf) + after

    def since(self, version: str) -> str:
        """What an open page of that version is sent: its changed parts as events, the last one with our version."""
        seen = version.split("-")
        if len(seen) != len(PARTS):
            seen = [""] * len(PARTS)
        changed = [name for name, digest in zip(PARTS, seen, strict=True) if self.digests[name] != digest]
        if not changed:
            return ""
        return "\n".join(self._events[name] for name in changed) + f"id: {self.version}\n\n"

    @cached_property
    def _events(self) -> Mapping[str, str]:
        return {name: f"event: {name}\ndata: {json.dumps(text)}\n" for name, text in self.parts.items()}


def page_with(place: int) -> int:
    """Where the page with this place begins: those of one board don't overlap."""
    return place - place % PAGE


class _Known:
    """One page of one board. The thread that draws it holds the lock, so only one does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.basis: tuple[EventId, Board, bool] | None = None
        self.at: datetime | None = None
        self.facts: dict[str, dict[str, Any]] = {}
        self.drawn: Drawn | None = None


class DrawnBoards:
    """Every page of a board that was viewed lately; never older than the database's last event, the board's row, its
    deadline, or `FRESH`. Drawn again only if what it shows has changed."""

    def __init__(self, context: Context, histories: waiting.Histories, standings: StandingsCache) -> None:
        self._context, self._histories, self._standings = context, histories, standings
        self._known: OrderedDict[tuple[int, str, int], _Known] = OrderedDict()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def now(self, board: Board, gpu: str, start: int) -> Drawn:
        """This page of this board, whose row was just read. NotFound if it has no such GPU type, or not so many places:
        otherwise one could have any number of pages kept, and followed."""
        gpu = contest.known_gpu(gpu, board.gpus)
        if start and start >= (ranked := len(self._standings.of(board, gpu))):
            raise NotFound(
                "place", str(start + 1), hint=f"Only {ranked} {'place is' if ranked == 1 else 'places are'} taken here."
            )
        key = (board.id, gpu, start)
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        with known.lock:
            return self._refreshed(known, board, gpu, start)

    def _refreshed(self, known: _Known, board: Board, gpu: str, start: int) -> Drawn:
        now = self._context.clock.now()
        basis = (self._context.store.events.last(), board, is_open(board, now))
        is_fresh = known.at is not None and known.at <= now < known.at + FRESH
        if known.drawn is None or known.basis != basis or not is_fresh:
            known.drawn = self._drawn(known, board, gpu, start)
            known.basis, known.at = basis, now
        return known.drawn

    def _drawn(self, known: _Known, board: Board, gpu: str, start: int) -> Drawn:
        facts = {
            "frame": {
                "board": board,
                "gpu": gpu,
                "start": start,
                "card": board_card(self._context, board, gpu),
                "embedded": embedded_at(self._context, board, gpu),
            },
            "queue": self._queue(board, gpu),
            "standings": self._shown(board, gpu, start),
        }
        before = known.drawn
        if before is not None and facts == known.facts:
            return before
        parts = {
            name: before.parts[name] if before and facts[name] == known.facts[name] else _part(name, facts[name])
            for name in PARTS
        }
        digests = {name: _digest(text) for name, text in parts.items()}
        page = str(text_of(TEMPLATE, **facts["frame"], shown=_version(digests), parts=parts))
        known.facts = facts
        return Drawn(number=next(self._numbers), parts=parts, digests=digests, page=page, etag=f'"{_digest(page)}"')

    def _queue(self, board: Board, gpu: str) -> dict[str, Any]:
        """All that the first lines show."""
        return {
            "queue": waiting.runner_queue(self._context, self._histories, gpu),
            "is_open": is_open(board, self._context.clock.now()),
            "closes": closes(board),
            "remarks": remarks(board, self._context.clock.now()),
            "announcements": self._context.store.questions.announcements(board.id)[:ANNOUNCED],
        }

    def _shown(self, board: Board, gpu: str, start: int) -> dict[str, Any]:
        """All that the standings' part shows, before it is formatted."""
        rows, records = self._standings.now(board, gpu)
        store = self._context.store
        return {
            "board": board.name,
            "gpu": gpu,
            "practice": Ranking(store.standings.practice(board.name, gpu))[:PAGE] if board.practice else [],
            "hidden": not access.shows_standings(board.standings),
            "rows": rows[start : start + PAGE],
            "total": len(rows),
            "start": start,
            "records": records,
            "final": store.finals.applied(board.name, gpu),
            "note": measure.sentence(
                gpu, store.calibrations.of_board(board), paired=board.problem.baseline is not None
            ),
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _version(digests: Mapping[str, str]) -> str:
    return "-".join(digests[name] for name in PARTS)


def _part(name: str, facts: Mapping[str, Any]) -> Markup:
    if name == "queue":
        return text_of("board_queue.html", **facts)
    rows: Sequence[Standing] = facts["rows"]
    shown = {
        "rows": [standing_row(row) for row in rows],
        "practice": [standing_row(row) for row in facts["practice"]],
        "trend": drawing.curve([(one.at, one.score_s, one.person) for one in facts["records"]], steps=True),
        "final": _final(facts["final"]),
        "step": PAGE,
    }
    return text_of("board_standings.html", **{**facts, **shown})


def _final(found: Final | None) -> list[dict[str, Any]]:
    rows = []
    for rival in found.rivals if found else ():
        came, after = rival.outcome, ""
        if came is not None and came.score_s is not None:
            after = score(came.score_s, came.low_s, came.high_s, ranked=True)
        elif came is not None:
            after = came.verdict
        rows.append({"place": rival.place, "person": rival.person, "before": rival.before_s, "after": after})
    return rows


def standing_row(row: Standing) -> dict[str, Any]:
    """A place as pages show it."""
    entry = row.entry
    tied = f"{row.best_rank}–{row.worst_rank}" if row.tied_with else ""
    shown = score(entry.score_s, entry.low_s, entry.high_s, ranked=True)
    ranks = "" if row.ranks[0] == row.ranks[1] else f"{row.ranks[0]}–{row.ranks[1]}"
    return {"rank": row.rank, "tied": tied, "ranks": ranks, "person": entry.person, "score": shown, "at": entry.at}
