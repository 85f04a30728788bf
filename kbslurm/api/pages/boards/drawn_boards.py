"""Boards as HTML, drawn once for everybody who looks at the same one.

What is drawn is the same for all who may see the board; who may is decided afterwards, for each of them
(`readers`). Nothing here knows a person.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from markupsafe import Markup, escape

from kbslurm.api import waiting
from kbslurm.api.board_json import is_open, remarks
from kbslurm.api.context import Context
from kbslurm.api.pages.boards import board_rows
from kbslurm.api.pages.boards.board_rows import Around, rows_shown
from kbslurm.api.pages.boards.found_places import ORDERS, PLAIN, Wanted, chosen
from kbslurm.api.pages.boards.link_cards import board_card, embedded_at
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.countdown import left
from kbslurm.api.pages.rendering import block, closes, isolated, text_of, took, when
from kbslurm.api.published_code import is_published
from kbslurm.api.standings_cache import OwnPlace, StandingsCache
from kbslurm.domain import access, contest, measure
from kbslurm.domain.amounts import ordinal, score
from kbslurm.domain.board import Entry, Ranking, Standing
from kbslurm.domain.measure import Calibration
from kbslurm.domain.physics import FORMULAS
from kbslurm.domain.run import EventId
from kbslurm.errors import NotFound
from kbslurm.store.finals import Final
from kbslurm.store.standings import Light
from kbslurm.store.views import Board

PAGE = 100
KEPT = 256  # pages of boards: some 10 MB
FRESH = timedelta(seconds=1)  # what changes without an event: a leading daemon's lease
TEMPLATE = "boards/board.html"
ANNOUNCED = 5
MOST_RECORDS = 150  # the chart and its table show the last ones
LIGHTS_KEPT = 20_000
NOBODY = '<div id="own"></div>'
PARTS = ("queue", "standings")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A page of a board. `parts` are those that an open page replaces when they change, by name; `number` grows with
    each one drawn, and `version` says what it shows."""

    number: int
    gpu: str
    parts: Mapping[str, Markup]
    digests: Mapping[str, str]
    page: str
    etag: str

    @property
    def version(self) -> str:
        return _version(self.digests)

    @cached_property
    def packed(self) -> bytes:
        """The page as everybody gets it, compressed: nothing in it is anyone's secret."""
        return gzip.compress(self.page.encode(), mtime=0)

    def for_reader(self, person: Any, csrf: str, own: OwnPlace | None, *, helps: bool = False) -> str:
        """The page with this person's header and place: all that differs between readers."""
        before, _, rest = self.page.partition("<header>")
        _, _, after = rest.partition("</header>\n")
        if own is not None:
            row = f' data-side="{escape(str(own.key))}"'
            is_here = f"{row}>" in after
            after = after.replace(f"{row}>", f'{row} class="own">', 1)
            told: dict[str, Any] = {
                "own": own,
                "nth": ordinal(own.rank),
                "is_here": is_here,
                "has_rows": " data-side=" in after,
                "start": page_with(own.rank - 1),
            }
            after = after.replace(NOBODY, text_of("boards/board_own.html", **told, **board_rows.amount(own.entry)), 1)
        return before + block("base.html", "header", person=person, csrf=csrf, helps=helps) + after

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
        self._lights: dict[int, Light | None] = {}

    def now(self, board: Board, gpu: str, start: int) -> Drawn:
        """This page of this board, whose row was just read. NotFound if it has no such GPU type, or not so many places:
        otherwise one could have any number of pages kept, and followed."""
        gpu = contest.known_gpu(gpu, board.gpus)
        if start and start >= (ranked := len(self._standings.of(board, gpu))):
            raise _beyond(start, ranked)
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

    def found(
        self,
        board: Board,
        drawn: Drawn,
        wanted: Wanted,
        start: int,
        *,
        sections: Sequence[str] = (),
        people: Collection[int] | None = None,
    ) -> Drawn:
        """The same board with the places that one reader looks for, in their order; not kept. `sections`: those that
        they may choose from; `people`: all whom the chosen one has."""
        gpu = drawn.gpu
        rows, records = self._standings.now(board, gpu)
        frame = {**self._frame(board, gpu, start, rows), "sections": sections, "wanted": wanted}
        if wanted.is_plain:
            return replace(drawn, page=_page(frame, drawn.digests, drawn.parts))
        tracks, moves = self._standings.tracks(board, gpu)
        places = chosen(rows, wanted, tracks, moves, people)
        if start and start >= len(places):
            raise _beyond(start, len(places))
        calibrations = self._context.store.calibrations.of_board(board)
        facts = {
            **self._shown(board, gpu, start, calibrations, rows, records, places[start : start + PAGE]),
            "wanted": wanted,
            "total": len(places),
        }
        parts = {**drawn.parts, "standings": _part("standings", facts)}
        return replace(drawn, parts=parts, page=_page(frame, drawn.digests, parts))

    def _drawn(self, known: _Known, board: Board, gpu: str, start: int) -> Drawn:
        calibrations = self._context.store.calibrations.of_board(board)
        rows, records = self._standings.now(board, gpu)
        facts = {
            "standings": self._shown(board, gpu, start, calibrations, rows, records),
            "queue": self._queue(board, gpu, calibrations),
            "frame": self._frame(board, gpu, start, rows),
        }
        before = known.drawn
        if before is not None and facts == known.facts:
            return before
        parts = {
            name: before.parts[name] if before and facts[name] == known.facts[name] else _part(name, facts[name])
            for name in PARTS
        }
        digests = {name: _digest(text) for name, text in parts.items()}
        page = _page(facts["frame"], digests, parts)
        known.facts = facts
        return Drawn(
            number=next(self._numbers), gpu=gpu, parts=parts, digests=digests, page=page, etag=f'"{_digest(page)}"'
        )

    def _queue(self, board: Board, gpu: str, calibrations: Mapping[str, Calibration]) -> dict[str, Any]:
        """All that the first lines show."""
        now = self._context.clock.now()
        return {
            "queue": waiting.runner_queue(self._context, self._histories, gpu),
            "is_open": is_open(board, now),
            "closes": closes(board),
            "left": left(board.deadline_at, now),
            "remarks": remarks(board, now),
            "note": measure.sentence(gpu, calibrations, paired=board.problem.baseline is not None),
            "announcements": self._context.store.questions.announcements(board.id)[:ANNOUNCED],
        }

    def _shown(
        self,
        board: Board,
        gpu: str,
        start: int,
        calibrations: Mapping[str, Calibration],
        rows: Ranking,
        records: Sequence[Entry],
        at: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """All that the standings' part shows, before it is formatted. `at`: which places, where not those from `start`
        on."""
        tracks, moves = self._standings.tracks(board, gpu)
        store, now = self._context.store, self._context.clock.now()
        policy = store.publishing.of_board(board.id)
        here = range(start, min(start + PAGE, len(rows))) if at is None else at
        found = [(rows[n], rows.entries[n - 1] if n else None) for n in here]
        sides = [row.entry.side for row, _ in found]
        until = [one for one in (now.replace(minute=0, second=0, microsecond=0), board.frozen_at, board.deadline_at)
                 if one is not None]  # fmt: skip
        return {
            "board": board.name,
            "gpu": gpu,
            "teams": board.teams,
            "practice": Ranking(store.standings.practice(board.name, gpu))[:PAGE] if board.practice else [],
            "hidden": not access.shows_standings(board.standings),
            "found": found,
            "around": Around(
                leader=rows.entries[0] if rows.entries else None,
                first=records[0].side if records else None,
                record=records[-1].side if records else None,
                base_s=measure.reference_score(board.problem, calibrations.get(gpu)),
                lights=self._lights_of(board, [row.entry for row, _ in found]),
                tracks={side: tracks[side] for side in sides if side in tracks},
                moves=moves.of(sides) if moves.changed else None,
                codes={
                    row.entry.submission_id: f"/board/{board.name}/{gpu}/code/{row.entry.submission_id}"
                    for row, _ in found
                    if is_published(policy, board, row, now)
                },
                is_final=board.finalised_at is not None,
                names_people=access.names_people(board.names) and not board.teams,
            ),
            "total": len(rows),
            "of": len(rows),
            "wanted": PLAIN,
            "start": start,
            "records": records[-MOST_RECORDS:],
            "beaten": max(0, len(records) - MOST_RECORDS),
            "zone": board.zone,
            "until": min(until),
            "final": store.finals.applied(board.name, gpu),
        }

    def _frame(self, board: Board, gpu: str, start: int, rows: Ranking) -> dict[str, Any]:
        """What stands around the parts that are replaced."""
        return {
            "board": board,
            "gpu": gpu,
            "start": start,
            "languages": board_rows.languages(rows.entries),
            "has_places": bool(rows.entries),
            "card": board_card(self._context, board, gpu),
            "embedded": embedded_at(self._context, board, gpu),
        }

    def _lights_of(self, board: Board, entries: Sequence[Entry]) -> dict[int, Light]:
        """How near these came to what the hardware allows. A verdict never changes, so each is read once."""
        if not access.names_people(board.names) or not any(board.problem.config.get(name) for name in FORMULAS):
            return {}
        runs = [one.run_id for one in entries]
        unknown = [run for run in runs if run not in self._lights]
        if unknown:
            if len(self._lights) + len(unknown) > LIGHTS_KEPT:
                self._lights, unknown = {}, runs
            read = self._context.store.standings.lights(unknown)
            self._lights = {**self._lights, **{run: read.get(run) for run in unknown}}
        known = self._lights
        return {run: light for run in runs if (light := known.get(run)) is not None}


def _beyond(start: int, places: int) -> NotFound:
    is_one = places == 1
    return NotFound("place", str(start + 1), hint=f"Only {places} {'place is' if is_one else 'places are'} taken here.")


def _page(frame: Mapping[str, Any], digests: Mapping[str, str], parts: Mapping[str, Markup]) -> str:
    told = {"sections": (), "wanted": PLAIN, "orders": ORDERS, **frame}
    return str(text_of(TEMPLATE, **told, shown=_version(digests), parts=parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def _version(digests: Mapping[str, str]) -> str:
    return "-".join(digests[name] for name in PARTS)


def _part(name: str, facts: Mapping[str, Any]) -> Markup:
    if name == "queue":
        return text_of("boards/board_queue.html", **facts)
    found: Sequence[tuple[Standing, Entry | None]] = facts["found"]
    shown = {
        "table": rows_shown(found, facts["around"]),
        "practice": [board_rows.place(row) for row in facts["practice"]],
        "trend": _trend(facts["records"], facts["zone"], facts["until"]),
        "final": _final(facts["final"]),
        "step": PAGE,
    }
    return text_of("boards/board_standings.html", **{**facts, **shown})


def _trend(records: Sequence[Entry], zone: str, until: datetime) -> Lines:
    points = [
        Point(at=one.at, value=one.score_s, said=f"{took(one.score_s)}, {isolated(one.person)}, {when(one.at)}")
        for one in records
    ]
    return lines([points] if points else [], written=took, zone=zone, steps=True, until=until)


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
    return board_rows.place(row)
