"""Decides whether a person may submit, and stores the submission, all in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain import access, fairness, policy
from kbslurm.domain.intake import Admission, Basis, ServiceToken, check_may_submit
from kbslurm.domain.policy import Category, LimitsAndUse
from kbslurm.domain.run import PersonId, RunId, SubmissionId
from kbslurm.errors import BackendTrouble, Invalid, KbslurmError, NotFound
from kbslurm.ports import NewSubmission, Receipt
from kbslurm.store.boards import Boards
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.gpu_budgets import held_by
from kbslurm.store.listening import CHANNEL
from kbslurm.store.problems import Problems
from kbslurm.store.rows import Rows, row_of
from kbslurm.store.seeds import derived_seed
from kbslurm_eval.shared.wire import Mode

INTAKE = """
SELECT p.id AS person_id, p.role, b.id AS board_id, b.name AS board, b.gpus, b.problem_version_id, b.teams_only,
    b.practice, f.*
FROM person p LEFT JOIN leaderboard b ON lower(b.name) = lower(%(board)s) AND b.deleted_at IS NULL
LEFT JOIN LATERAL kb_facts(p.id, b.id, %(category)s) f ON true
WHERE p.id = %(person)s
"""

LOCK_INTAKE = "SELECT kb_intake_lock(%(person)s)"
LIMITS = """
SELECT f.*, b.teams_only, b.practice FROM kb_facts(%(person)s, %(board)s, %(category)s) f
LEFT JOIN leaderboard b ON b.id = %(board)s
"""

ACCEPT = """
SELECT made AS submission_id, due AS run_ids FROM kb_accept(%(seen)s, %(category)s, %(person)s, %(board)s, %(mode)s,
    %(file_name)s, %(source)s, %(sha256)s, %(via)s, %(by_staff)s, %(version)s, %(gpus)s, %(fair_at)s, %(seeds)s,
    %(cost_s)s, %(paired)s, %(place)s, %(now)s)
"""

KEYED = """
SELECT s.id, s.sha256, s.mode, s.accepted_at, s.board_id, b.name AS board, array_agg(r.id ORDER BY r.id) AS run_ids,
    array_agg(r.gpu ORDER BY r.id) AS gpus, min(r.fair_at) AS fair_at
FROM submission s JOIN run r ON r.submission_id = s.id AND r.rejudging_id = 0 AND NOT r.second
JOIN leaderboard b ON b.id = s.board_id
WHERE s.person_id = %(person)s AND s.idempotency_key = %(key)s GROUP BY s.id, b.name
"""

NAME_KEY = "UPDATE submission SET idempotency_key = %(key)s WHERE id = %(submission)s"

CAME_BY = "UPDATE submission SET service_token_id = %(token)s WHERE id = %(submission)s"

# A service's runs stand behind one another by themselves.
LAST_OF_SERVICE = f"""
SELECT fair_at, cost_s FROM run WHERE person_id = %(person)s AND state IN ('queued', 'launching', 'running')
    AND counts AND fair_at >= '{fairness.SERVICE_FROM.isoformat()}'::timestamptz
ORDER BY fair_at DESC LIMIT 1
"""

CHOOSE_BENCHMARK = "UPDATE submission SET benchmark = %(benchmark)s WHERE id = %(submission)s"

IS_PRACTICE = "UPDATE submission SET practice = true WHERE id = %(submission)s"

# A ring that a crash loses costs nothing, so it doesn't wait for the disk.
RING = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '')"

# Where teams count together, two members' submissions are decided on one after the other. Whoever holds this waits for
# nobody else's.
LOCK_TEAM = "SELECT pg_advisory_xact_lock(hashtextextended(%(team)s, %(board)s))"

# Deleting a submission doesn't refund it. What came by a service token counts for that alone.
_RECENT = """
SELECT accepted_at FROM submission s
WHERE {whose} AND accepted_at > %(hour)s
    AND (mode = 'leaderboard') = (%(category)s = 'leaderboard')
"""

_USED = """
SELECT coalesce(sum(extract(epoch FROM coalesce(a.ended_at, %(now)s) - a.started_at)), 0)::float8 AS used_gpu_s,
    min(a.ended_at) AS oldest_use_at
FROM submission s JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
WHERE {whose} AND s.accepted_at > %(day)s - interval '7 days'
    AND a.started_at IS NOT NULL AND coalesce(a.ended_at, %(now)s) > %(day)s
    AND coalesce(a.ended_at, %(now)s) > a.started_at
"""

# What a service's open runs may still take, as long as those of the last day took; without any, as long as they may:
# else thousands could be accepted on an unused quota.
_RESERVED = """
WITH usual AS (
    SELECT avg(extract(epoch FROM a.ended_at - a.started_at)) AS took_s
    FROM submission s JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
    WHERE s.service_token_id = %(token)s AND a.started_at IS NOT NULL AND a.ended_at > %(day)s)
SELECT coalesce(sum(least(r.cost_s, coalesce(usual.took_s, r.cost_s))), 0)::float8 AS reserved_gpu_s
FROM usual, submission s JOIN run r ON r.submission_id = s.id
WHERE s.service_token_id = %(token)s AND r.state IN ('queued', 'launching', 'running')
"""

_OF_PERSON = "s.person_id = %(person)s AND s.board_id = %(board)s AND s.service_token_id IS NULL"
_OF_TEAM = "s.board_id = %(board)s AND s.team = %(team)s AND s.service_token_id IS NULL"
_OF_SERVICE = "s.service_token_id = %(token)s"

TRIES = 20


class Intake(Rows):
    """ports.Intake: rows and events of a submission, or a refusal."""

    def __init__(self, pool: Pool, boards: Boards, problems: Problems) -> None:
        super().__init__(pool)
        self._boards, self._problems = boards, problems

    def admission(self, person: PersonId, board: str, mode: Mode = "test") -> Admission:
        found = self._one(INTAKE, {"person": person, "board": board, "category": policy.category(mode)})
        if found is None:
            raise NotFound("person", str(person))
        if found["board_id"] is None:
            raise NotFound("board", board, known=self._boards.names(public_only=True))
        by_staff = access.is_staff(found["role"])
        seen = access.may_see_board(found["visibility"], invited=found["invited"], staff=by_staff)
        counted = any(found[what] is not None for what in ("most_per_hour", "quota_gpu_s", "budget_course"))
        return Admission(
            person_id=PersonId(found["person_id"]),
            person=found["person"],
            board_id=found["board_id"],
            board=found["board"],
            gpus=tuple(found["gpus"]),
            problem_version_id=found["problem_version_id"],
            problem=self._problems.of_version(found["problem_version_id"]),
            by_staff=by_staff,
            banned=found["ban_reason"] if found["banned_at"] else None,
            accepting=found["accepts_jobs"] is not False,
            closed=found["closed_at"] is not None,
            private=not seen,
            teamless=found["teams_only"] and found["team"] is None,
            practice=found["practice"],
            deadline_at=policy.deadline(found["deadline_at"], found["extended_to"]),
            late_until=found["late_until"],
            zone=found["zone"],
            basis=None if counted else _basis(found),
        )

    def keyed(
        self, person: PersonId, key: str, *, board: str, gpus: Sequence[str], mode: Mode, source_sha256: str
    ) -> Receipt | None:
        found = self._one(KEYED, {"person": person, "key": key})
        if found is None:
            return None
        there = str(found["board"]).lower() == board.lower()
        return _known(found, key, gpus, mode, source_sha256, there=there)

    def accept(self, new: NewSubmission, now: datetime) -> Receipt:
        """Rows and events, or a refusal. The decision is valid if its basis is unchanged; otherwise it is made
        again."""
        quick = new.basis is not None and new.benchmark is None and not new.practice
        quick = quick and new.service is None and new.key is None
        told = self._told(new, new.basis, now) if quick and new.basis is not None else None
        made = None if told is None else self._one(ACCEPT, told)
        if told is None or made is None or made["submission_id"] is None:
            locked = self._accept_locked(new, now)
            if isinstance(locked, Receipt):
                return locked
            told, made = locked
        self._ring()
        return Receipt(
            submission_id=SubmissionId(made["submission_id"]),
            run_ids=tuple(RunId(n) for n in made["run_ids"]),
            first_gpu=told["gpus"][0],
            first_fair_at=told["fair_at"][0],
            accepted_at=now,
        )

    def use(self, admission: Admission, mode: Mode, now: datetime) -> LimitsAndUse:
        """What limits hold for such a submission, and how much of them is used; nothing is locked or stored. To be told
        to the person: it may be different when they submit."""
        asked = {
            "person": admission.person_id,
            "board": admission.board_id,
            "category": policy.category(mode),
        }
        with self._pool.transaction() as connection:
            found = row_of(connection, LIMITS, asked)
            if found is None or found["name"] is None:
                raise NotFound("board", admission.board)
            person, board = admission.person_id, admission.board_id
            known = completed(connection, found, person, board, policy.category(mode), now)
            if found["budget_course"] is not None and not admission.by_staff:
                held = held_by(connection, found["budget_course"], person, admission.gpus, now)
                known = replace(known, budgets=held)
        return known

    def _ring(self) -> None:
        """Wake the others, now that it is committed. Without this they would notice within a heartbeat."""
        with suppress(KbslurmError):
            self._do(RING)

    def _accept_locked(self, new: NewSubmission, now: datetime) -> tuple[dict[str, Any], DictRow] | Receipt:
        """Ban, pause, closing, deadline and limits are checked again under locks. A receipt: that of the submission
        that has used its key meanwhile.

        The locks keep a person's own submissions, a ban and a pause apart from this. Limits, deadlines and the person's
        open runs can still change between the check and the insert: then both are done again.
        """
        asked = {"person": new.person_id, "board": new.board_id, "category": policy.category(new.mode)}
        with self._pool.transaction() as connection:
            row_of(connection, LOCK_INTAKE, asked)
            if new.key is not None:
                known = row_of(connection, KEYED, {"person": new.person_id, "key": new.key})
                if known is not None:
                    there = known["board_id"] == new.board_id
                    return _known(known, new.key, new.gpus, new.mode, new.source_sha256, there=there)
            for _ in range(TRIES):
                basis = self._decided(connection, new, asked, now)
                told = self._told(new, basis, now)
                if new.service is not None:
                    last = row_of(connection, LAST_OF_SERVICE, asked)
                    own = Basis(
                        seen=basis.seen,
                        fair_at=None if last is None else last["fair_at"],
                        cost_s=0.0 if last is None else last["cost_s"],
                    )
                    told["fair_at"] = _stamps(new, own, now)
                made = row_of(connection, ACCEPT, told)
                if made is not None and made["submission_id"] is not None:
                    if new.benchmark is not None:
                        which = {"submission": made["submission_id"], "benchmark": new.benchmark}
                        connection.execute(CHOOSE_BENCHMARK.encode(), which)
                    if new.key is not None:
                        named = {"submission": made["submission_id"], "key": new.key}
                        connection.execute(NAME_KEY.encode(), named)
                    if new.service is not None:
                        by = {"submission": made["submission_id"], "token": new.service.id}
                        connection.execute(CAME_BY.encode(), by)
                    if new.practice:
                        connection.execute(IS_PRACTICE.encode(), {"submission": made["submission_id"]})
                    return told, made
        raise BackendTrouble("database", "what decides on a submission kept changing while it was stored")

    def _decided(self, connection: Connection, new: NewSubmission, asked: Mapping[str, Any], now: datetime) -> Basis:
        """What the decision rests on, as it is now; or the refusal."""
        now_so = row_of(connection, LIMITS, asked)
        if now_so is None or now_so["person"] is None:
            raise NotFound("person", str(new.person_id))
        if now_so["name"] is None:
            raise NotFound("board", str(new.board_id))
        if now_so["team"] is not None and (now_so["most_per_hour"] is not None or now_so["quota_gpu_s"] is not None):
            row_of(connection, LOCK_TEAM, {"team": now_so["team"], "board": new.board_id})
        known = completed(connection, now_so, new.person_id, new.board_id, asked["category"], now, new.service)
        if now_so["budget_course"] is not None and not new.by_staff:
            held = held_by(connection, now_so["budget_course"], new.person_id, new.gpus, now)
            known = replace(known, budgets=held)
        self._check_again(new, now_so, known, now)
        return _basis(now_so)

    def _told(self, new: NewSubmission, basis: Basis, now: datetime) -> dict[str, Any]:
        problem = self._problems.of_version(new.problem_version_id)
        paired = new.mode == "leaderboard" and problem.baseline is not None
        category = policy.category(new.mode)
        told = _accepted(new, _stamps(new, basis, now), now)
        return {**told, "paired": paired, "seen": basis.seen, "category": category}

    def _check_again(self, new: NewSubmission, now_so: DictRow, known: policy.LimitsAndUse, now: datetime) -> None:
        seen = access.may_see_board(now_so["visibility"], invited=known.invited, staff=new.by_staff)
        check_may_submit(
            Admission(
                person_id=new.person_id,
                person=now_so["person"],
                board_id=new.board_id,
                board=now_so["name"],
                gpus=new.gpus,
                problem_version_id=new.problem_version_id,
                problem=self._problems.of_version(new.problem_version_id),
                by_staff=new.by_staff,
                banned=now_so["ban_reason"] if now_so["banned_at"] else None,
                accepting=now_so["accepts_jobs"] is not False,
                closed=now_so["closed_at"] is not None,
                private=not seen,
                teamless=now_so["teams_only"] and now_so["team"] is None,
                practice=now_so["practice"],
                deadline_at=policy.deadline(now_so["deadline_at"], known.extended_to),
                late_until=now_so["late_until"],
                zone=now_so["zone"],
            ),
            now,
        )
        policy.check(now_so["name"], new.mode, known, now, staff=new.by_staff, service=new.service is not None)


def completed(
    connection: Connection,
    found: Mapping[str, Any],
    person: PersonId,
    board: int,
    kind: Category,
    now: datetime,
    service: ServiceToken | None = None,
) -> LimitsAndUse:
    """The policy's facts, including those that cost more to count: only needed for boards with limits and quotas, and
    for service tokens, which have their own instead."""
    told: dict[str, Any] = {"person": person, "board": board, "category": kind}
    told |= {"hour": now - policy.WINDOW, "day": now - policy.QUOTA_WINDOW, "now": now}
    known = {name: found[name] for name in ("invited", "extended_to", "most_per_hour", "quota_gpu_s")}
    told["team"] = found["team"]
    whose = _OF_PERSON if found["team"] is None else _OF_TEAM
    if service is not None:
        known |= {"most_per_hour": None, "quota_gpu_s": service.gpu_s_per_day}
        whose, told["token"] = _OF_SERVICE, service.id
    if known["most_per_hour"] is not None:
        recent = connection.execute(_RECENT.format(whose=whose).encode(), told)
        known["recent_at"] = [row["accepted_at"] for row in recent]
    if known["quota_gpu_s"] is not None:
        used = connection.execute(_USED.format(whose=whose).encode(), told).fetchone()
        assert used is not None
        known |= used
        if service is not None and (open_runs := connection.execute(_RESERVED.encode(), told).fetchone()) is not None:
            known |= open_runs
    return LimitsAndUse(**known)


def _known(
    found: Mapping[str, Any], key: str, gpus: Sequence[str], mode: Mode, source_sha256: str, *, there: bool
) -> Receipt:
    """The receipt of a submission that was sent before with this key; Invalid if that was something else. `gpus`: those
    that were asked for, none for all of the board's. `there`: whether that was to the same board."""
    other = None
    if found["sha256"] != source_sha256:
        other = "with another file"
    elif found["mode"] != mode:
        other = f"in mode {found['mode']}"
    elif not there:
        other = f"to board {found['board']}"
    elif gpus and {one.lower() for one in gpus} != {one.lower() for one in found["gpus"]}:
        other = f"on {', '.join(found['gpus'])}"
    if other is not None:
        raise Invalid(
            f"the idempotency key {key!r} was used for submission {found['id']}, {other}",
            hint="Use a new key for what is to be submitted anew.",
        )
    return Receipt(
        submission_id=SubmissionId(found["id"]),
        run_ids=tuple(RunId(n) for n in found["run_ids"]),
        first_gpu=found["gpus"][0],
        first_fair_at=found["fair_at"],
        accepted_at=found["accepted_at"],
    )


def _basis(row: DictRow) -> Basis:
    return Basis(seen=row["seen"], fair_at=row["fair_at"], cost_s=row["cost_s"] or 0.0)


def _stamps(new: NewSubmission, basis: Basis, now: datetime) -> list[datetime]:
    """The runs' virtual times: each is pushed back by the expected cost of the person's previous run."""
    last, cost_s = basis.fair_at, basis.cost_s
    stamp = fairness.fair_at if new.service is None else fairness.service_fair_at
    stamps: list[datetime] = []
    for _ in new.gpus:
        last, cost_s = stamp(now, last, cost_s=cost_s), new.cost_s
        stamps.append(last)
    return stamps


def _accepted(new: NewSubmission, stamps: list[datetime], now: datetime) -> dict[str, Any]:
    return {
        "person": new.person_id,
        "board": new.board_id,
        "mode": new.mode,
        "file_name": new.file_name,
        "source": new.source,
        "sha256": new.source_sha256,
        "via": new.via,
        "place": new.place,
        "by_staff": new.by_staff,
        "version": new.problem_version_id,
        "cost_s": new.cost_s,
        "gpus": list(new.gpus),
        "fair_at": stamps,
        "seeds": [derived_seed(new.secret_seed, gpu) for gpu in new.gpus],
        "now": now,
    }
