"""The ranking of a board, and what may have changed it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kbslurm.domain import access, places
from kbslurm.domain.board import Entry, Ranking, Standing, Timed
from kbslurm.domain.run import EventId, PersonId
from kbslurm.domain.tracks import Side, Track
from kbslurm.errors import NotFound
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.deadlines import in_time, practice
from kbslurm.store.events import Events
from kbslurm.store.final_scores import FINAL_SCORES, SIDE, UNBOUND, bound
from kbslurm.store.rows import Rows
from kbslurm.store.views import Board, Moved


@dataclass(frozen=True, kw_only=True)
class Own:
    """A score of somebody's own."""

    submission_id: int
    score_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class Light:
    """The share of what the hardware allows, 1 at the limit, and the score beside the baseline, where it has one."""

    share: float
    score: float | None


# Whom an entry of a submission `s` to the board `b` by the person `p` is for, as everybody reads it: the name, and the
# team where teams count together.
SHOWN_NAME = "CASE WHEN b.teams THEN coalesce(s.team, p.name) ELSE p.name END"
SHOWN_TEAM = "CASE WHEN b.teams THEN s.team END"

# The latest that ranks of each person, or team, per GPU type: only where that is asked, and once for all of them.
_LATEST = """
SELECT max(s.id) AS id, r.gpu
FROM submission s
JOIN leaderboard b ON b.id = s.board_id
JOIN {run} ON r.submission_id = s.id AND {counts} AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
WHERE %(last)s::boolean AND s.board_id = %(board)s AND s.removed_at IS NULL{whose}
    AND (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s) AND {in_time}
GROUP BY CASE WHEN b.teams THEN coalesce('team ' || s.team, s.person_id::text) ELSE s.person_id::text END, r.gpu
"""

# Until `until`: hosts decide how far others see. Late submissions never rank.
_SCORED_BY = """
SELECT p.id AS person_id, {name} AS person, {team} AS team, s.id AS submission_id, r.id AS run_id,
    coalesce(fs.score_s, v.score_s) AS score_s, coalesce(fs.low_s, v.low_s) AS low_s,
    coalesce(fs.high_s, v.high_s) AS high_s, s.accepted_at AS at, s.file_name
FROM submission s
JOIN leaderboard b ON b.id = s.board_id
JOIN person p ON p.id = s.person_id
JOIN {run} ON r.submission_id = s.id AND {counts} AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
LEFT JOIN ({final_scores}) fs ON fs.run_id = r.id
LEFT JOIN ({latest}) latest ON latest.id = s.id AND latest.gpu = r.gpu{bound}
WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND (%(gpu)s::text IS NULL OR r.gpu = %(gpu)s){whose}
    AND (%(until)s::timestamptz IS NULL OR s.accepted_at <= %(until)s) AND {in_time}
    AND (NOT %(last)s::boolean OR latest.id IS NOT NULL){unbound}
ORDER BY coalesce(fs.score_s, v.score_s), s.accepted_at, s.id, r.id
"""

# Which runs count, and which would once a rejudge is applied: its own that got a verdict, in place of the old ones.
_COUNTS = "r.problem_version_id = b.problem_version_id AND r.counts"
_REPLACED = """EXISTS (SELECT 1 FROM run n WHERE n.rejudging_id = %(rejudging)s AND n.state = 'scored'
        AND n.submission_id = {r}.submission_id AND n.gpu = {r}.gpu)"""
_WOULD_COUNT = f"""r.problem_version_id = %(version)s AND (r.rejudging_id = %(rejudging)s AND r.state = 'scored'
    OR r.counts AND NOT {_REPLACED.format(r="r")})"""


def _scored_by(
    timely: Callable[[str], str],
    *,
    run: str = "run r",
    whose: str = "",
    counts: str = _COUNTS,
    finals: bool = True,
) -> str:
    """`finals`: whether they set aside what they do."""
    told = {"in_time": timely("s"), "run": run, "whose": whose, "counts": counts, "bound": "", "unbound": ""}
    if finals:
        told["bound"] = "\n" + bound(side=SIDE.format(s="s"), run="r")
        told["unbound"] = f"\n    AND {UNBOUND.format(submission='s.id')}"
    names = {"name": SHOWN_NAME, "team": SHOWN_TEAM, "final_scores": FINAL_SCORES}
    return _SCORED_BY.format(latest=_LATEST.format(**told), **names, **told)


_SCORED = _scored_by(in_time)

# Looked up one by one: of few people there are few.
_FEW: dict[str, Any] = {
    "run": "LATERAL (SELECT * FROM run WHERE run.submission_id = s.id OFFSET 0) r",
    "whose": " AND s.person_id = ANY(%(people)s)",
}
_SCORED_OF = _scored_by(in_time, **_FEW)

# Standings that a host has fixed: who is banned still disappears, and nothing else changes them.
_FIXED = f"""
SELECT p.id AS person_id, {SHOWN_NAME} AS person, {SHOWN_TEAM} AS team, s.id AS submission_id, r.id AS run_id,
    x.score_s, x.low_s, x.high_s, s.accepted_at AS at, s.file_name
FROM fixed_place x JOIN run r ON r.id = x.run_id JOIN submission s ON s.id = r.submission_id
JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id
WHERE x.finalisation_id = %(finalisation)s AND p.banned_at IS NULL AND (%(gpu)s::text IS NULL OR r.gpu = %(gpu)s)
    AND (%(people)s::bigint[] = '{{}}' OR s.person_id = ANY(%(people)s))
ORDER BY x.score_s, s.accepted_at, s.id, r.id
"""

# The teams for which these people submitted, and everyone who ever submitted for them, where teams count together.
_TEAMS_OF = """
SELECT t.team, array_agg(DISTINCT t.person_id) AS members
FROM leaderboard b JOIN submission t ON t.board_id = b.id
WHERE lower(b.name) = lower(%(board)s) AND b.deleted_at IS NULL AND b.teams AND t.team IN (
    SELECT s.team FROM submission s WHERE s.person_id = ANY(%(people)s) AND s.board_id = b.id AND s.team IS NOT NULL)
GROUP BY t.team
"""

_BEST_OF = """
SELECT person_id, person, team, submission_id, run_id, score_s, low_s, high_s, at, file_name FROM (
    SELECT DISTINCT ON (side) * FROM (
        SELECT scored.*, coalesce('team ' || team, person_id::text) AS side FROM ({scored}) scored
    ) sided ORDER BY side, score_s, at, submission_id, run_id
) best ORDER BY score_s, at, submission_id, run_id
"""

_BEST = _BEST_OF.format(scored=_SCORED)
_REJUDGED = _BEST_OF.format(scored=_scored_by(in_time, counts=_WOULD_COUNT))
_PRACTICE = _BEST_OF.format(scored=_scored_by(practice, finals=False))

_RECORDS = f"""
SELECT person_id, person, team, submission_id, run_id, score_s, low_s, high_s, at, file_name FROM (
    SELECT scored.*, min(score_s) OVER (
        ORDER BY at, submission_id, score_s, run_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM ({_SCORED}) scored
) compared WHERE before IS NULL OR score_s < before ORDER BY at, submission_id, score_s, run_id
"""

# Of each person, or team: how many of theirs rank, and their score as it was at `since`. What a final set aside ranked.
_BEFORE = {
    False: "min(score_s) FILTER (WHERE at <= %(since)s)",
    True: "(array_agg(score_s ORDER BY at DESC, submission_id DESC) FILTER (WHERE at <= %(since)s))[1]",
}
_TRACKS = """
SELECT team, min(person_id) AS person_id, count(*) AS entries, {before} AS before_s
FROM ({scored}) scored GROUP BY team, CASE WHEN team IS NULL THEN person_id END
"""
_TRACKS_OF = {
    (last, few): _TRACKS.format(before=before, scored=_scored_by(in_time, **(_FEW if few else {}), finals=False))
    for last, before in _BEFORE.items()
    for few in (False, True)
}

_LIGHTS = """
SELECT run_id, (detail -> 'speed_of_light' ->> 'share')::float8 AS share,
    (detail -> 'speed_of_light' ->> 'score')::float8 AS score
FROM verdict WHERE run_id = ANY(%(runs)s) AND jsonb_typeof(detail -> 'speed_of_light' -> 'share') = 'number'
    AND coalesce(jsonb_typeof(detail -> 'speed_of_light' -> 'score'), 'number') = 'number'
"""

# Of one person, before one of their submissions.
_OWN_BEFORE = f"""
SELECT s.id AS submission_id, v.score_s, coalesce(v.low_s, v.score_s) AS low_s, coalesce(v.high_s, v.score_s) AS high_s
FROM submission s JOIN leaderboard b ON b.id = s.board_id
JOIN run r ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
WHERE s.board_id = %(board)s AND s.person_id = %(person)s AND s.id < %(submission)s AND r.gpu = %(gpu)s
    AND s.removed_at IS NULL AND v.score_s IS NOT NULL AND {in_time("s")}
    AND (NOT b.teams OR s.team IS NOT DISTINCT FROM (SELECT o.team FROM submission o WHERE o.id = %(submission)s))
ORDER BY v.score_s, s.id LIMIT 1
"""

# What can change a board's ranking: a ranked verdict, a dropped second measurement, changes to the board, and people
# and submissions that appear or disappear. Names the people affected if known; else `whole`.
_MOVED = """
SELECT bool_or(e.subject = 'board:' || %(board)s) AS changed,
    bool_or(e.subject = 'board:' || %(board)s AND e.kind = 'board.nickname') AS renamed,
    bool_or(e.subject = 'board:' || %(board)s AND NOT e.kind = ANY(%(still)s)) AS whole,
    array_agg(DISTINCT CASE
        WHEN e.kind IN ('staff.ban', 'staff.unban') THEN substr(e.subject, length('person:') + 1)::bigint
        WHEN e.kind = 'run.cancelled' OR e.kind = 'run.scored' AND (e.data ->> 'ranked')::boolean THEN
            (SELECT s.person_id FROM submission s WHERE s.id = (e.data ->> 'submission')::bigint
                AND s.board_id = %(board)s)
        WHEN e.kind = 'submission.removed' THEN
            (SELECT s.person_id FROM submission s
                WHERE s.id = substr(e.subject, length('submission:') + 1)::bigint AND s.board_id = %(board)s)
        END) AS people
FROM event e WHERE e.id > %(after)s AND e.id <= %(settled)s
"""

# The same for every board at once: which of them it may concern, or `everywhere`.
_STIRRED = """
SELECT coalesce(bool_or(e.kind IN ('staff.ban', 'staff.unban')), false) AS everywhere,
    array_agg(DISTINCT CASE
        WHEN e.subject ~ '^board:[0-9]{1,18}$' THEN substr(e.subject, length('board:') + 1)::bigint
        WHEN e.kind = 'run.cancelled' OR e.kind = 'run.scored' AND (e.data ->> 'ranked')::boolean THEN
            (SELECT s.board_id FROM submission s WHERE s.id = (e.data ->> 'submission')::bigint)
        WHEN e.kind = 'submission.removed' THEN
            (SELECT s.board_id FROM submission s WHERE s.id = substr(e.subject, length('submission:') + 1)::bigint)
        END) AS boards
FROM event e WHERE e.id > %(after)s AND e.id <= %(upto)s
"""

# Who has submitted for the ranking after a moment, and in time.
_SUBMITTED_SINCE = f"""
SELECT DISTINCT s.person_id, {SHOWN_TEAM} AS team
FROM submission s JOIN leaderboard b ON b.id = s.board_id
JOIN run r ON r.submission_id = s.id AND r.gpu = %(gpu)s AND r.counts
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND s.accepted_at > %(since)s
    AND {in_time("s")}
"""

MOVED_LOOK = 20_000

# What happens at a board without changing the ranking; a nickname changes only who stands there.
_STILL = [
    "board.announced", "board.calibrated", "board.nickname", "staff.board_role", "staff.close", "staff.code",
    "staff.final", "staff.final_forgotten", "staff.late", "staff.invite", "staff.names", "staff.quota",
    "staff.rate_limit", "staff.rejudge", "staff.rejudge_cancelled", "staff.visibility",
]  # fmt: skip


def entries_in(connection: Connection, board: Board, gpu: str, *, live: bool) -> list[Entry]:
    """What `Standings.best` returns, as this transaction sees it."""
    told = _asked(board, gpu, live=live)
    statement = _BEST if board.finalisation is None else _FIXED
    return [Entry(**row) for row in connection.execute(statement.encode(), told)]


def _asked(board: Board, gpu: str | None, people: Collection[PersonId] = (), *, live: bool) -> dict[str, Any]:
    return {
        "board": board.id,
        "gpu": gpu,
        "people": list(people),
        "until": access.shown_until(board.frozen_at, host=live),
        "finalisation": board.finalisation,
        "last": board.ranking == "last",
    }


class Standings(Rows):
    """The runs that rank."""

    def __init__(self, pool: Pool, boards: Boards, events: Events) -> None:
        super().__init__(pool)
        self._boards, self._events = boards, events

    def scored(self, board: str, gpu: str | None = None, *, live: bool = False) -> list[Entry]:
        """Every run that ranks on this board, best first: of the live version, in time, not of banned people, not
        removed. On a board that ranks by `last` only each person's latest one per GPU type; once its standings are
        fixed, only those.

        Of a frozen board what everybody may see, of one whose standings are hidden nothing, and people as whom others
        see them; `live`: all of it, for hosts. `undisguised`: what isn't frozen, by people's own names also where it
        is hidden, for whoever keeps the rest back.
        """
        return self._scored(_SCORED, board, gpu, live=live)

    def best(self, board: str, gpu: str, *, live: bool = False, undisguised: bool = False) -> list[Entry]:
        """The best of each person, or team, in order: all that a ranking needs."""
        return self._scored(_BEST, board, gpu, live=live, undisguised=undisguised)

    def practice(self, board: str, gpu: str) -> list[Entry]:
        """The best of what each submitted after the end: apart from the standings, and shown as those are."""
        return self._scored(_PRACTICE, board, gpu, live=False, fixed=False)

    def unfixed(self, board: str, gpu: str) -> list[Entry]:
        """The same as the verdicts have it, all of it, whether or not others were fixed: for hosts who fix them."""
        return self._scored(_BEST, board, gpu, live=True, fixed=False)

    def rejudged(self, board: str, gpu: str, *, rejudging: int, version: int) -> list[Entry]:
        """The same as it would be were this open rejudge applied now: for hosts who decide on it."""
        return self._scored(
            _REJUDGED, board, gpu, live=True, fixed=False, more={"rejudging": rejudging, "version": version}
        )

    def scored_of(self, board: str, gpu: str, people: Collection[PersonId]) -> list[Entry]:
        """The same, undisguised, for these people only; where teams count together, for all of theirs."""
        theirs = self._all(_TEAMS_OF, {"board": board.strip(), "people": list(people)})
        teams = {row["team"] for row in theirs}
        everyone = {*people, *(PersonId(one) for row in theirs for one in row["members"])}
        found = self._scored(_SCORED_OF, board, gpu, everyone, live=False, undisguised=True)
        return [one for one in found if one.person_id in people or one.team in teams]

    def records(self, board: str, gpu: str, *, live: bool = False, undisguised: bool = False) -> list[Entry]:
        """The ones that were better than all before them, oldest first. Those are history: fixing standings doesn't
        change them."""
        return self._scored(_RECORDS, board, gpu, live=live, undisguised=undisguised, fixed=False)

    def tracks(
        self, board: Board, gpu: str, since: datetime, people: Collection[PersonId] | None = None
    ) -> dict[Side, Track]:
        """How everyone, or these people and their teams, came to where they stand: what a freeze hides isn't counted.
        For boards that show people by their own names: how often somebody submitted tells who they are."""
        teams, asked = set[str](), set(people or ())
        if people is not None:
            theirs = self._all(_TEAMS_OF, {"board": board.name, "people": list(people)})
            teams = {row["team"] for row in theirs}
            asked |= {PersonId(one) for row in theirs for one in row["members"]}
        statement = _TRACKS_OF[board.ranking == "last", people is not None]
        told = {**_asked(board, gpu, asked, live=False), "last": False, "since": since}
        return {
            row["person_id"] if row["team"] is None else row["team"]: Track(
                entries=row["entries"], before_s=row["before_s"]
            )
            for row in self._all(statement, told)
            if people is None or row["team"] in teams or (row["team"] is None and row["person_id"] in people)
        }

    def lights(self, runs: Collection[int]) -> dict[int, Light]:
        """How near these runs came to what the hardware allows, where that is known."""
        found = self._all(_LIGHTS, {"runs": list(runs)})
        return {row["run_id"]: Light(share=row["share"], score=row["score"]) for row in found}

    def own(
        self, board: Board, gpu: str, person: PersonId, ranking: Callable[[str], Ranking] | None = None
    ) -> tuple[list[Standing], int]:
        """Where this person stands, for each of their teams where teams count together; and how many rank. Named as
        others see them, so that they know themselves among the others. `ranking`: the undisguised one, by GPU type,
        for whoever has it already."""
        if not access.shows_own_place(board.standings):
            return [], 0
        sides = {one.side for one in self.scored_of(board.name, gpu, [person])}
        rows = Ranking(self.best(board.name, gpu, undisguised=True)) if ranking is None else ranking(gpu)
        found = []
        disguise = self._boards.disguise(board)
        for n, one in enumerate(rows.entries):
            if one.side in sides:
                name = disguise.name_of(one.person_id, one.team) or one.person
                found.append(replace(rows[n], entry=replace(one, person=name)))
        return found, len(rows)

    def own_rows(
        self,
        board: Board,
        person: PersonId,
        gpus: Sequence[str] | None = None,
        ranking: Callable[[str], Ranking] | None = None,
    ) -> list[dict[str, Any]]:
        """The same for these or all GPU types, as people are told it: with the neighbours and the leader, where
        everybody sees them."""
        read = ranking or self._undisguised(board)
        return [row for gpu in (board.gpus if gpus is None else gpus) for row in self._own_on(board, gpu, person, read)]

    def _own_on(
        self, board: Board, gpu: str, person: PersonId, read: Callable[[str], Ranking]
    ) -> Iterator[dict[str, Any]]:
        if not access.shows_own_place(board.standings):
            return
        rows = read(gpu)
        mine, many = self.own(board, gpu, person, lambda _: rows)
        for one in mine:
            number = one.entry.submission_id if one.entry.person_id == person else None
            near = self._others_near(board, rows, one.rank)
            yield places.own_row(gpu, one, many, submission_id=number, others=near)

    def own_before(self, board: Board, gpu: str, person: PersonId, submission: int) -> Own | None:
        """The best that this person submitted before that one and that ranks; where teams count together, for the same
        team. Their own verdicts, which they see always."""
        told = {"board": board.id, "gpu": gpu, "person": person, "submission": submission}
        row = self._one(_OWN_BEFORE, told)
        return None if row is None else Own(**row)

    def leader(
        self, board: Board, gpu: str, mine: Timed, ranking: Callable[[str], Ranking] | None = None
    ) -> dict[str, Any] | None:
        """The leader as everybody sees them, and how this score compares; None where nobody is shown."""
        if not access.shows_standings(board.standings):
            return None
        rows = (ranking or self._undisguised(board))(gpu)
        return places.rival(rows[0], self._shown_as(board, rows)(0), mine) if rows else None

    def _undisguised(self, board: Board) -> Callable[[str], Ranking]:
        return lambda gpu: Ranking(self.best(board.name, gpu, undisguised=True))

    def _others_near(self, board: Board, rows: Ranking, rank: int) -> list[dict[str, Any]]:
        if not access.shows_standings(board.standings):
            return []
        return places.others_near(rows, rank, self._shown_as(board, rows))

    def _shown_as(self, board: Board, rows: Ranking) -> Callable[[int], str]:
        disguise = self._boards.disguise(board)

        def name(index: int) -> str:
            one = rows.entries[index]
            return disguise.name_of(one.person_id, one.team) or one.person

        return name

    def _scored(
        self,
        statement: str,
        board: str,
        gpu: str | None,
        people: Collection[PersonId] = (),
        *,
        live: bool,
        undisguised: bool = False,
        fixed: bool = True,
        more: Mapping[str, int] | None = None,
    ) -> list[Entry]:
        held = self._boards.find(board, counted=False)
        if held is None:
            raise NotFound("board", board, known=self._boards.names(public_only=True))
        if not undisguised and not access.shows_standings(held.standings, host=live):
            return []
        told = {**_asked(held, gpu, people, live=live), **(more or {})}
        chosen = _FIXED if fixed and held.finalisation is not None else statement
        found = [Entry(**row) for row in self._all(chosen, told)]
        if undisguised or access.names_people(held.names, host=live):
            return found
        disguise = self._boards.disguise(held)
        return [disguise.entry(one) for one in found]

    def moved(self, board: int, after: EventId) -> Moved:
        """What may have changed the ranking since `after`."""
        settled = self._events.last()
        if settled <= after:
            return Moved(upto=after, changed=False, people=frozenset())
        if settled - after > MOVED_LOOK:
            return Moved(upto=settled, changed=True, people=None)
        found = self._one(_MOVED, {"board": board, "after": after, "settled": settled, "still": _STILL})
        assert found is not None
        people = frozenset(PersonId(one) for one in found["people"] or () if one is not None)
        return Moved(
            upto=settled,
            changed=bool(found["changed"]),
            people=None if found["whole"] else people,
            renamed=bool(found["renamed"]),
        )

    def stirred(self, after: EventId, upto: EventId) -> frozenset[int] | None:
        """The boards whose rankings may have changed between these events; None: all of them."""
        if upto - after > MOVED_LOOK:
            return None
        found = self._one(_STIRRED, {"after": after, "upto": upto})
        assert found is not None
        return None if found["everywhere"] else frozenset(one for one in found["boards"] or () if one is not None)

    def around_freeze(self, board: Board, gpu: str) -> tuple[list[Entry], list[Entry], frozenset[int | str]]:
        """Undisguised, for a reveal: the standings as everybody sees them, as they are, and who has submitted for the
        ranking since the freeze: people, or teams where those count together."""
        frozen = self.best(board.name, gpu, undisguised=True)
        if board.frozen_at is None:
            return frozen, frozen, frozenset()
        told = {"board": board.id, "gpu": gpu, "since": board.frozen_at}
        rows = self._all(_SUBMITTED_SINCE, told)
        since = frozenset(row["person_id"] if row["team"] is None else row["team"] for row in rows)
        return frozen, self.best(board.name, gpu, live=True), since

    def teams_of(self, person: PersonId) -> dict[int, frozenset[str]]:
        """The teams for which this person has submitted, by the board's number, where teams count together."""
        found = self._all(
            "SELECT s.board_id, array_agg(DISTINCT s.team) AS teams FROM submission s"
            " JOIN leaderboard b ON b.id = s.board_id AND b.teams AND b.deleted_at IS NULL"
            " WHERE s.person_id = %(person)s AND s.team IS NOT NULL GROUP BY s.board_id",
            {"person": person},
        )
        return {row["board_id"]: frozenset(row["teams"]) for row in found}
