"""What places runs: what waits, what is spent, how places fare, and who is wanted back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain import placement
from kbslurm.domain.breaker import Breaker, Outcomes, kept, told
from kbslurm.domain.drift import SHADOW, Drift, Pair, Ranked, drift
from kbslurm.domain.eta import Service
from kbslurm.domain.finals import FINAL
from kbslurm.domain.measure import CALIBRATION
from kbslurm.domain.placement import Demand, Facts, Rules
from kbslurm.domain.run import AttemptId, AttemptState, OpenAttempt, RunId, Slot, SubmissionId, Work, new_job_name
from kbslurm.domain.usage import By, Usage
from kbslurm.domain.why import Told, Tried
from kbslurm.errors import Invalid, NotFound
from kbslurm.store import sql
from kbslurm.store.connect import Connection
from kbslurm.store.finals import FinalsDesk
from kbslurm.store.register import _tell

OF_THE_HOUSE = [CALIBRATION, FINAL, SHADOW]
BUDGET_LOCK = 4_927_309
BREAKER = "breaker:"
BY_POLICY = "the policy"
LATELY = 500  # attempts that are looked at for how a place fares


_DEMAND = """
SELECT run.gpu, lower(b.name) AS board, s.team, count(*) AS waiting, min(run.cost_s * v.ranks) AS least_gpu_s,
    array_agg(DISTINCT run.pinned) FILTER (WHERE run.pinned IS NOT NULL) AS pinned
FROM run JOIN problem_version v ON v.id = run.problem_version_id
JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
WHERE run.state = 'queued' AND NOT run.held GROUP BY run.gpu, lower(b.name), s.team
"""
_NEXT_UP = """
SELECT run.id, run.attempts, run.submission_id, run.problem_version_id, s.by_staff, s.mode, s.file_name, s.via,
    p.name AS person, b.name AS board, b.min_isolation
FROM run JOIN submission s ON s.id = run.submission_id JOIN person p ON p.id = s.person_id
JOIN leaderboard b ON b.id = s.board_id
WHERE run.state = 'queued' AND NOT run.held AND run.gpu = %(gpu)s AND coalesce(run.pinned, %(backend)s) = %(backend)s
ORDER BY run.fair_at, run.id LIMIT 1
"""
_SPENT = f"""
SELECT lower(b.name) AS board, s.team, sum({sql.MONEY}) AS money
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id
WHERE a.price > 0 AND a.opened_at >= %(begins)s AND a.opened_at < %(ends)s GROUP BY 1, 2
"""
_OUTCOMES = f"""
SELECT backend, max(good_at) AS good_at, max(ended_at) FILTER (WHERE is_bad) AS bad_at,
    count(DISTINCT person_id) FILTER (WHERE is_bad AND (good_at IS NULL OR ended_at > good_at)) AS people
FROM (
    SELECT a.backend, run.person_id, a.ended_at, a.state = 'dead' AND a.{sql.INFRASTRUCTURE} AS is_bad,
        max(a.ended_at) FILTER (WHERE a.state = 'reported') OVER (PARTITION BY a.backend) AS good_at
    FROM attempt a JOIN run ON run.id = a.run_id
    WHERE a.id > (SELECT max(id) FROM attempt) - {LATELY} AND a.ended_at > %(now)s - interval '1 hour'
) lately GROUP BY backend
"""

_WHY = """
SELECT run.id AS run, run.submission_id AS submission, b.name AS board, s.team, run.gpu, run.state, s.mode,
    run.by_staff, v.ranks AS gpus, run.cost_s * v.ranks AS most_gpu_s, run.held, run.second, run.pinned,
    greatest(0, extract(epoch FROM %(now)s - run.queued_at))::float8 AS waited_s,
    (SELECT count(*) FROM run o WHERE o.state = 'queued' AND NOT o.held AND o.gpu = run.gpu
        AND (o.fair_at, o.id) < (run.fair_at, run.id)) AS ahead,
    verdict.name AS verdict, verdict.ranked, coalesce(verdict.reason, run.reason) AS reason,
    (SELECT info FROM lease WHERE name = 'daemon' AND expires_at > %(now)s) AS leader
FROM run JOIN submission s ON s.id = run.submission_id JOIN leaderboard b ON b.id = s.board_id
JOIN problem_version v ON v.id = run.problem_version_id LEFT JOIN verdict ON verdict.run_id = run.id
WHERE run.id = %(run)s
"""
_WHY_TRIED = f"""
SELECT a.number, a.backend, a.state, a.ending, a.reason, a.why_here, a.gpu_class, a.ranks,
    coalesce(a.telemetry ->> 'waits', '') AS waits, a.withdraw_at IS NOT NULL AS wanted_back,
    {sql.GPU_S} AS gpu_s, {sql.MONEY} AS money
FROM attempt a WHERE a.run_id = %(run)s ORDER BY a.number
"""
_TOGETHER = """
SELECT s.id, (SELECT min(run.pinned) FROM run WHERE run.submission_id = s.id) AS place
FROM submission s JOIN submission first ON first.person_id = s.person_id AND first.board_id = s.board_id
    AND first.via = s.via AND first.mode = s.mode AND first.accepted_at = s.accepted_at
WHERE first.id = %(submission)s AND s.via = %(via)s AND s.id >= first.id ORDER BY s.id
"""
_OPEN_AT = f"SELECT backend, sum(gpus) AS n FROM attempt WHERE {sql.OPEN_ATTEMPT} AND gpu = %(gpu)s GROUP BY backend"
# By board, person, team, place or run. What has been held is counted in the month in which it was opened.
_USAGE = f"""
SELECT {{key}} AS name, count(*) AS attempts, count(*) FILTER (WHERE a.{sql.OPEN_ATTEMPT}) AS open,
    count(DISTINCT r.id) AS runs, sum({sql.GPU_S}) AS gpu_s, sum({sql.MONEY}) AS money,
    sum({sql.GPU_S}) FILTER (WHERE a.price > 0) AS paid_gpu_s
FROM attempt a JOIN run r ON r.id = a.run_id JOIN submission s ON s.id = r.submission_id
JOIN leaderboard b ON b.id = s.board_id JOIN person p ON p.id = s.person_id
WHERE a.opened_at >= %(begins)s AND a.opened_at < %(ends)s
    AND (%(board)s::text IS NULL OR lower(b.name) = %(board)s)
GROUP BY 1 ORDER BY money DESC, gpu_s DESC, name
"""
_MEASURED = """
SELECT r.id AS run, r.problem_version_id AS version, r.gpu, r.cost_s, r.by_staff, s.board_id AS board, s.source,
    s.sha256, s.file_name
FROM run r JOIN submission s ON s.id = r.submission_id JOIN verdict v ON v.run_id = r.id
WHERE s.id = %(submission)s AND s.mode = 'leaderboard' AND s.via <> ALL(%(of_the_house)s) AND r.counts
    AND v.name = 'passed' AND v.score_s IS NOT NULL AND r.gpu = ANY(%(gpus)s) ORDER BY r.id
"""
# Of the last runs only: what isn't ordered soon is no news of a place any more.
_RANKED = f"""
SELECT r.id AS run, r.submission_id AS submission, lower(b.name) AS board, r.gpu, a.backend,
    r.cost_s * pv.ranks AS gpu_s
FROM run r JOIN submission s ON s.id = r.submission_id JOIN leaderboard b ON b.id = s.board_id
JOIN problem_version pv ON pv.id = r.problem_version_id
JOIN verdict v ON v.run_id = r.id JOIN attempt a ON a.id = v.attempt_id
WHERE r.id > (SELECT max(id) FROM run) - {LATELY} AND r.ended_at > %(now)s - interval '1 hour' AND r.counts
    AND s.mode = 'leaderboard' AND v.name = 'passed' AND v.ranked AND v.score_s IS NOT NULL AND s.removed_at IS NULL
    AND s.via <> ALL(%(of_the_house)s)
    AND b.deleted_at IS NULL AND b.problem_version_id = r.problem_version_id
    AND NOT EXISTS (SELECT FROM shadow WHERE shadow.of_run_id = r.id)
ORDER BY r.id
"""
_ORDER_SHADOW = f"""
WITH taken AS (
    INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at,
        removed_at)
    VALUES (%(person)s, %(board)s, 'leaderboard', %(file_name)s, %(source)s, %(sha256)s, '{SHADOW}', %(by_staff)s,
        %(now)s, %(now)s)
    RETURNING id
), due AS (
    INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,
        secret_seed, counts, may_rank, pinned)
    SELECT id, %(version)s, %(person)s, %(gpu)s, %(now)s, %(now)s, %(cost_s)s, %(by_staff)s, %(seed)s, false, false,
        %(place)s FROM taken
    RETURNING id, submission_id, gpu
), noted AS (
    INSERT INTO event (kind, subject, data, at)
    SELECT 'run.queued', 'run:' || id, jsonb_build_object('submission', submission_id, 'gpu', gpu,
        'shadow', %(run)s::bigint, 'backend', %(place)s::text), %(now)s FROM due
)
INSERT INTO shadow (run_id, of_run_id, backend, created_by, created_at)
SELECT id, %(run)s, %(place)s, %(by)s, %(now)s FROM due RETURNING run_id
"""
_SHADOWS = """
SELECT sh.backend AS place, r.gpu, r.state, v.name AS verdict, v.score_s AS there_s, v.low_s AS there_low_s,
    v.high_s AS there_high_s, o.score_s AS home_s, o.low_s AS home_low_s, o.high_s AS home_high_s
FROM shadow sh JOIN run r ON r.id = sh.run_id JOIN submission s ON s.id = r.submission_id
LEFT JOIN verdict v ON v.run_id = r.id JOIN verdict o ON o.run_id = sh.of_run_id
WHERE s.board_id = %(board)s AND r.problem_version_id = %(version)s ORDER BY sh.backend, r.gpu, r.id
"""
_KEYS: dict[By, str] = {
    "board": "b.name",
    "person": "p.name",
    "team": "s.team",
    "place": "a.backend || ' ' || a.gpu",
    "run": "'run ' || r.id || ' (' || b.name || ', ' || p.name || ')'",
}


@dataclass(frozen=True, kw_only=True)
class ShadowView:
    """What shadows of a board's submissions tell of a place: how many are open, failed otherwise, or make pairs."""

    place: str
    gpu: str
    open: int
    without_score: int
    drift: Drift | None


class PlacingDesk(FinalsDesk):
    """The rows that the placement policy reads, and the few that it writes beside a claim."""

    def waiting_facts(self, now: datetime) -> Facts:
        begins, ends = placement.month_of(now)
        found = self._all(_DEMAND)
        spent = self.spent_between(begins, ends, now)
        return Facts(
            demand={
                gpu: _demand([row for row in found if row["gpu"] == gpu], self.service(gpu))
                for gpu in {row["gpu"] for row in found}
            },
            pinned=frozenset(name for row in found for name in row["pinned"] or ()),
            spent=sum(row["money"] for row in spent),
            spent_by_board=_sums(spent, "board"),
            spent_by_team=_sums(spent, "team"),
        )

    def next_up(self, gpu: str, backend: str, now: datetime) -> Work | None:
        found = self._one(_NEXT_UP, {"gpu": gpu, "backend": backend})
        if found is None:
            return None
        run, version = RunId(found["id"]), found["problem_version_id"]
        avoided = self._all(sql.AVOID, {"run": run, "backend": backend, "now": now})
        return Work(
            attempt=OpenAttempt(
                id=AttemptId(0),
                run_id=run,
                number=found["attempts"] + 1,
                name=new_job_name(),
                backend=backend,
                gpu=gpu,
                state=AttemptState.INTENT,
                handle=None,
                opened_at=now,
                deadline_at=None,
            ),
            submission_id=SubmissionId(found["submission_id"]),
            person=found["person"],
            by_staff=found["by_staff"],
            board=found["board"],
            mode=found["mode"],
            file_name=found["file_name"],
            source="",
            problem=self.problem_of_version(version),
            problem_digest="",
            nonce="",
            key=b"",
            secret_seed="",
            avoid_nodes=tuple(row["node"] for row in avoided),
            ranked_min_isolation=found["min_isolation"],
            via=found["via"],
        )

    def spent_between(self, begins: datetime, ends: datetime, now: datetime) -> list[dict[str, Any]]:
        """What attempts that were opened between these moments cost, by board and team; open ones at their most."""
        return self._all(_SPENT, {"begins": begins, "ends": ends, "now": now})

    def why(self, run: int, now: datetime) -> Told:
        """What there is to say of why this run is where it is."""
        found = self._one(_WHY, {"run": run, "now": now})
        if found is None:
            raise NotFound("run", str(run))
        tries = [Tried(**row) for row in self._all(_WHY_TRIED, {"run": run, "now": now})]
        open_at = {row["backend"]: row["n"] for row in self._all(_OPEN_AT, {"gpu": found["gpu"]})}
        spent = self.spent_between(*placement.month_of(now), now) if found["state"] == "queued" else []
        return Told(
            **found,
            tries=tries,
            open_at=open_at,
            spent=sum(row["money"] for row in spent),
            spent_of_board=_sums(spent, "board").get(found["board"].lower(), 0.0),
            spent_of_team=_sums(spent, "team").get(found["team"], 0.0),
        )

    def ordered_together(self, submission: SubmissionId, via: str) -> list[tuple[SubmissionId, str | None]]:
        """This one, and those that were submitted this way in the same moment by the same, each with its place."""
        found = self._all(_TOGETHER, {"submission": submission, "via": via})
        return [(SubmissionId(row["id"]), row["place"]) for row in found]

    def usage(
        self, by: By, begins: datetime, ends: datetime, now: datetime, *, board: str | None = None
    ) -> list[Usage]:
        """What was used between these moments, of this board or all, by board, person, team, place or run; the dearest
        first. By the team that a person was in when they submitted."""
        ever = (
            "SELECT FROM leaderboard WHERE lower(name) = %(board)s LIMIT 1"  # one that was deleted has its costs, too
        )
        if board is not None and self._one(ever, {"board": board}) is None:
            raise NotFound("board", board, known=self.board_names())
        told = {"begins": begins, "ends": ends, "now": now, "board": board}
        return [
            Usage(**{**row, "paid_gpu_s": row["paid_gpu_s"] or 0.0})
            for row in self._all(_USAGE.format(key=_KEYS[by]), told)
        ]

    def order_shadow(self, submission: int, place: str, gpus: Sequence[str], *, by: str, now: datetime) -> list[int]:
        """Measure a submission that has its score once more, at this place: the runs' numbers. They never rank."""
        asked = {"submission": submission, "of_the_house": OF_THE_HOUSE, "gpus": list(gpus)}
        with self._pool.transaction() as connection:
            found = connection.execute(_MEASURED.encode(), asked).fetchall()
            if not found:
                raise Invalid(
                    f"submission {submission} has no score of a GPU type that {place} has",
                    hint="It takes a leaderboard submission that has passed.",
                )
            person = self._house(connection, now)
            ids = [_ordered(connection, row, person, place, by, now) for row in found]
            _tell(connection, "staff.shadow", f"submission:{submission}", {"place": place, "by": by}, now)
        return ids

    def shadowable(self, now: datetime) -> Sequence[Ranked]:
        return [Ranked(**row) for row in self._all(_RANKED, {"now": now, "of_the_house": OF_THE_HOUSE})]

    def shadow_once(self, ranked: Ranked, place: str, now: datetime) -> bool:
        asked = {"submission": ranked.submission, "of_the_house": OF_THE_HOUSE, "gpus": [ranked.gpu]}
        with self._pool.transaction() as connection:
            # Two that order at once are one after the other here, and the second one sees what the first one did.
            connection.execute(b"SELECT FROM run WHERE id = %(run)s FOR UPDATE", {"run": ranked.run})
            there = connection.execute(b"SELECT FROM shadow WHERE of_run_id = %(run)s", {"run": ranked.run}).fetchone()
            found = connection.execute(_MEASURED.encode(), asked).fetchall()
            rows = [row for row in found if row["run"] == ranked.run]
            if there is not None or not rows:
                return False
            _ordered(connection, rows[0], self._house(connection, now), place, BY_POLICY, now)
            return True

    def shadows(self, board: str) -> list[ShadowView]:
        """How other places time this board's problem, by place and GPU type."""
        held = self._held(board)
        seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._all(_SHADOWS, {"board": held.id, "version": held.problem_version_id}):
            seen.setdefault((row.pop("place"), row.pop("gpu")), []).append(row)
        return [_shadow(place, gpu, rows) for (place, gpu), rows in seen.items()]

    def outcomes(self, now: datetime) -> Mapping[str, Outcomes]:
        return {
            row["backend"]: Outcomes(people=row["people"], bad_at=row["bad_at"], good_at=row["good_at"])
            for row in self._all(_OUTCOMES, {"now": now})
        }

    def withdraw(self, attempt: OpenAttempt, slots: Sequence[Slot], why: str, now: datetime) -> bool:
        wanted = {
            "attempt": attempt.id,
            "number": attempt.number,
            "backends": [slot.backend for slot in slots],
            "most": [sql.ANY_WIDTH if slot.most is None else slot.most for slot in slots],
            "staff_only": [slot.staff_only for slot in slots],
            "why": why,
            "now": now,
        }
        return self._one(sql.WITHDRAW, wanted) is not None

    def breakers(self) -> Mapping[str, Breaker]:
        found = self._all("SELECT key, value FROM setting WHERE starts_with(key, %(mark)s)", {"mark": BREAKER})
        return {row["key"].removeprefix(BREAKER): kept(row["value"]) for row in found}

    def keep_breaker(self, backend: str, breaker: Breaker) -> None:
        self._do(
            "INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s::text::jsonb)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            {"key": BREAKER + backend, "value": json.dumps(told(breaker))},
        )


def _demand(rows: Sequence[dict[str, Any]], service: Service | None) -> Demand:
    """What waits for one GPU type, of its rows by board."""
    return Demand(
        waiting=sum(row["waiting"] for row in rows),
        least_gpu_s=min(row["least_gpu_s"] for row in rows),
        least_by_board=_least(rows, "board"),
        least_by_team=_least(rows, "team"),
        service=service,
    )


def _least(rows: Sequence[dict[str, Any]], by: str) -> dict[str, float]:
    names = {row[by] for row in rows if row[by] is not None}
    return {name: min(row["least_gpu_s"] for row in rows if row[by] == name) for name in names}


def _sums(rows: Sequence[dict[str, Any]], by: str) -> dict[str, float]:
    names = {row[by] for row in rows if row[by] is not None}
    return {name: sum(row["money"] for row in rows if row[by] == name) for name in names}


def _ordered(connection: Connection, row: DictRow, person: int, place: str, by: str, now: datetime) -> int:
    """The run's number that measures this one at another place, too."""
    told = {**row, "person": person, "place": place, "by": by, "now": now, "seed": secrets.token_hex(16)}
    made = connection.execute(_ORDER_SHADOW.encode(), told).fetchone()
    assert made is not None
    return int(made["run_id"])


def _shadow(place: str, gpu: str, rows: Sequence[dict[str, Any]]) -> ShadowView:
    still = [row for row in rows if row["state"] in ("queued", "launching", "running")]
    pairs = [
        Pair(**{name: value for name, value in row.items() if name not in ("state", "verdict")})
        for row in rows
        if row["verdict"] == "passed" and all(row[name] is not None for name in Pair.__dataclass_fields__)
    ]
    return ShadowView(
        place=place, gpu=gpu, open=len(still), without_score=len(rows) - len(still) - len(pairs), drift=drift(pairs)
    )


def conditions(slots: Sequence[Slot], rules: Rules, now: datetime) -> dict[str, Any]:
    """What a claim by policy is told beside the slots themselves."""
    begins, ends = placement.month_of(now)
    budget = rules.budget
    return {
        "overflow": [slot.overflow for slot in slots],
        "queued_before": [slot.queued_before for slot in slots],
        "pinned_only": [slot.pinned_only for slot in slots],
        "leaderboard": [slot.leaderboard for slot in slots],
        "price": [slot.price for slot in slots],
        "gpu_class": [slot.gpu_class for slot in slots],
        "why": [slot.why for slot in slots],
        "of_the_house": OF_THE_HOUSE,
        "listed": list(rules.boards),
        "allowed": [f"{place}/{board}" for board, places in rules.boards.items() for place in places],
        "budget": budget.month,
        "bounded": list(budget.boards),
        "bounds": list(budget.boards.values()),
        "each_team": budget.team,
        "teams": list(budget.teams),
        "team_bounds": list(budget.teams.values()),
        "month_begins": begins,
        "month_ends": ends,
    }
