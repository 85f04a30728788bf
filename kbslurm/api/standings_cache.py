"""Standings from memory: recomputed only after an event that can change them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kbslurm.api.context import Context
from kbslurm.api.submission_places import places_told
from kbslurm.domain import access
from kbslurm.domain import board as boards
from kbslurm.domain.board import Entry, Ranking, Standing
from kbslurm.domain.run import EventId, PersonId
from kbslurm.domain.tracks import NO_MOVES, Moves, Side, Track, day_before, moves
from kbslurm.store.finals import Final
from kbslurm.store.views import Board, SubmissionView

KEPT = 100_000  # entries across all boards: some 60 MB
FEW = 1_000  # people whose ways are read one by one; of more, everyone's are


@dataclass(frozen=True, kw_only=True)
class OwnPlace:
    """Where somebody stands. `key`: the side's key as others see it, which says nothing more than its row."""

    key: Side
    rank: int
    of: int
    entry: Entry


class _Known:
    """The cached standings of one board and GPU type. The thread that reloads them holds the lock, so only one does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.upto: EventId | None = None
        self.version: object = None
        self.rows = Ranking(())
        self.records: list[Entry] = []
        # The same as others see it, and under which key each side stands there, where that is another.
        self.shown = self.rows
        self.shown_records = self.records
        self.keys: Mapping[Side, Side] = {}
        # How they came there, since when, whose is out of date, and what follows from it.
        self.tracks: dict[Side, Track] | None = None
        self.since: datetime | None = None
        self.stirred: set[PersonId] = set()
        self.moves = NO_MOVES


class StandingsCache:
    """The standings of every board that was viewed; never older than the database's last event.

    After an event only the people it may affect are read again. When there are too many entries, the least recently
    viewed boards are dropped.
    """

    def __init__(self, context: Context, *, kept: int = KEPT) -> None:
        self._context, self._kept = context, kept
        self._known: OrderedDict[tuple[int, str], _Known] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, board: Board, gpu: str) -> Sequence[Standing]:
        """The ranking of this board and GPU type, best first."""
        return self.now(board, gpu)[0]

    def records(self, board: Board, gpu: str) -> list[Entry]:
        """The records: entries that were better than all before them, oldest first."""
        return self.now(board, gpu)[1]

    def now(self, board: Board, gpu: str) -> tuple[Ranking, list[Entry]]:
        """Both."""
        return self._now(board, gpu)[1:]

    def with_undisguised(self, board: Board, gpu: str) -> tuple[Ranking, Ranking, list[Entry]]:
        """Both, after the ranking as it is below any disguise: only to find somebody's own place in."""
        return self._now(board, gpu)

    def tracks(self, board: Board, gpu: str) -> tuple[Mapping[Side, Track], Moves]:
        """How everyone came to where they stand, and what has changed since the day before. Empty where people or
        standings are hidden: how often and when somebody submitted tells who they are."""
        if not (access.names_people(board.names) and access.shows_standings(board.standings)):
            return {}, NO_MOVES
        with self._lock:
            known = self._known.get((board.id, gpu))
        if known is None:
            return {}, NO_MOVES
        with known.lock:
            self._track(known, board, gpu)
            return known.tracks or {}, known.moves

    def _track(self, known: _Known, board: Board, gpu: str) -> None:
        read, since = self._context.store.standings.tracks, day_before(self._context.clock.now())
        tracks, people = known.tracks, set(known.stirred)
        if tracks is not None and known.since == since and not people:
            return
        if tracks is not None and known.since != since:
            # Whose score is older than that had it then, too; the others' ways of the last day are read again.
            people |= {PersonId(one.person_id) for one in known.rows.entries if one.at > since}
            older = (one for one in known.rows.entries if one.at <= since and one.side in tracks)
            tracks = tracks | {one.side: replace(tracks[one.side], before_s=one.score_s) for one in older}
        if tracks is None or len(people) > FEW:
            known.tracks = read(board, gpu, since)
        else:
            known.tracks = tracks | read(board, gpu, since, people) if people else tracks
        known.since, known.stirred = since, set()
        known.moves = NO_MOVES if board.finalisation is not None else moves(known.rows, known.tracks)

    def own_place(self, board: Board, gpu: str, side: Side) -> OwnPlace | None:
        """Where this person or team stands, as far as it is known without a look at the database: by what was last
        read of a board that was just drawn. None: nowhere, or they aren't told."""
        known = self._known.get((board.id, gpu))
        if known is None or not access.shows_own_place(board.standings):
            return None
        rows, shown = known.rows, known.shown
        index = rows.index_of.get(side)
        if index is None:
            return None
        key = known.keys.get(side, side)
        place = shown.index_of.get(key)
        return OwnPlace(key=key, rank=(index if place is None else place) + 1, of=len(rows), entry=rows.entries[index])

    def own_rows(self, board: Board, person: PersonId) -> list[dict[str, Any]]:
        """This person's own places, as they are told them."""
        return self._context.store.standings.own_rows(board, person, ranking=lambda gpu: self._now(board, gpu)[0])

    def of_submission(self, view: SubmissionView) -> list[dict[str, Any]]:
        """What a submission came to, as its author is told it."""
        now = self._context.clock.now()
        return places_told(self._context.store, view, now, lambda board, gpu: self._now(board, gpu)[0])

    def _now(self, board: Board, gpu: str) -> tuple[Ranking, Ranking, list[Entry]]:
        """The ranking undisguised, and both as others see them."""
        key = (board.id, gpu)
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
        with known.lock:
            self._refresh(known, board, gpu)
            found = known.rows, known.shown, known.shown_records
        with self._lock:
            places = sum(len(one.rows) for one in self._known.values())
            while places > self._kept and len(self._known) > 1:
                places -= len(self._known.popitem(last=False)[1].rows)
        return found

    def _refresh(self, known: _Known, board: Board, gpu: str) -> None:
        store = self._context.store
        version = (
            board.problem_version_id, board.deadline_at, board.frozen_at, board.finalisation, board.names,
            board.standings,
        )  # fmt: skip
        if known.upto is not None and known.version == version:
            moved = store.standings.moved(board.id, known.upto)
            if moved.people is not None:
                if moved.people:
                    self._reread(known, board, gpu, moved.people)
                if moved.people or moved.renamed:
                    self._show(known, board)
                known.upto = moved.upto
                return
        known.upto = known.tracks = None  # until all of it has been read
        upto = store.events.last()
        known.rows = Ranking(store.standings.best(board.name, gpu, undisguised=True))
        known.records = store.standings.records(board.name, gpu, undisguised=True)
        self._show(known, board)
        known.upto, known.version = upto, version

    def _show(self, known: _Known, board: Board) -> None:
        """Keep back what others may not see."""
        known.keys = {}
        if not access.shows_standings(board.standings):
            known.shown, known.shown_records = Ranking(()), []
        elif access.names_people(board.names):
            known.shown, known.shown_records = known.rows, known.records
        else:
            disguise = self._context.store.boards.disguise(board)
            shown = [disguise.entry(one) for one in known.rows.entries]
            known.keys = {one.side: other.side for one, other in zip(known.rows.entries, shown, strict=True)}
            known.shown = Ranking(shown)
            known.shown_records = [disguise.entry(one) for one in known.records]

    def _reread(self, known: _Known, board: Board, gpu: str, people: Collection[PersonId]) -> None:
        store = self._context.store
        theirs = store.standings.scored_of(board.name, gpu, people)
        sides = {one.side for one in theirs}  # of a team, the others' entries are among them
        kept = (one for one in known.rows.entries if one.person_id not in people and one.side not in sides)
        rows = Ranking([*kept, *theirs])
        # Records stay records, and the rest stays beaten, as long as no record disappears.
        still = {one for one in known.records if one.person_id in people} <= set(theirs)
        records = (
            boards.records([*known.records, *theirs])
            if still
            else store.standings.records(board.name, gpu, undisguised=True)
        )
        known.rows, known.records = rows, records
        known.stirred |= set(people)

    def page(self, board: Board, gpu: str, *, offset: int, limit: int) -> list[dict[str, Any]]:
        """One page of it in popcorn's format."""
        return [row_json(board, gpu, row) for row in self.of(board, gpu)[offset : offset + limit]]


def final_told(found: Final) -> dict[str, Any]:
    """A final that counts, as everyone may see it: who took part, and the results."""
    return {
        "leaderboard_name": found.board,
        "gpu_type": found.gpu,
        "rivals": [
            {
                "place": rival.place,
                "user_name": rival.person,
                "submission_id": rival.submission_id,
                "before": rival.before_s,
                "verdict": rival.outcome.verdict if rival.outcome else None,
                "score": rival.outcome.score_s if rival.outcome else None,
                "interval": [rival.outcome.low_s, rival.outcome.high_s]
                if rival.outcome and rival.outcome.score_s is not None
                else None,
            }
            for rival in found.rivals
        ],
        "gaps": [
            {
                "ahead": found.rivals[gap.ahead].submission_id,
                "behind": found.rivals[gap.behind].submission_id,
                "ratio": gap.ratio,
                "interval": [gap.low, gap.high],
                "separated": gap.separated,
            }
            for gap in found.gaps
        ],
    }


def row_json(board: Board, gpu: str, row: Standing) -> dict[str, Any]:
    """One line of a leaderboard."""
    entry = row.entry
    return {
        "submission_id": entry.submission_id,
        "rank": row.rank,
        "submission_name": entry.file_name,
        "submission_time": entry.at.isoformat(),
        "submission_score": entry.score_s,
        "leaderboard_name": board.name,
        "user_id": str(entry.person_id),
        "user_name": entry.person,
        "team": entry.team,
        "gpu_type": gpu,
        "interval": [entry.low_s, entry.high_s],
        "tied_with": list(row.tied_with),
        "best_rank": row.best_rank,
        "worst_rank": row.worst_rank,
        "ranks": list(row.ranks),
    }
