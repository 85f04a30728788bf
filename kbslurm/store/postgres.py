"""The Store on Postgres: ports.Store by the statements of `sql`, and the hosts' register beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, assert_never

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain import fairness, policy
from kbslurm.domain.finals import FINAL, staged
from kbslurm.domain.intake import Basis, Intake, check_may_submit
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import (
    AttemptId,
    AttemptState,
    Ending,
    EventId,
    Handle,
    JobName,
    OpenAttempt,
    PersonId,
    RunId,
    RunState,
    Seen,
    Sighting,
    Slot,
    SubmissionId,
    Work,
    new_job_name,
    tries_owed,
)
from kbslurm.domain.verdict import Verdict
from kbslurm.errors import KbslurmError, NotFound, Refused
from kbslurm.ports import Event, NewSubmission, Receipt
from kbslurm.store import sql
from kbslurm.store.connect import Connection, connect
from kbslurm.store.desk import completed
from kbslurm.store.placing import BUDGET_LOCK, PlacingDesk, conditions
from kbslurm_eval.wire import Mode

CHANNEL = "kbslurm_news"


class PostgresStore(PlacingDesk):
    """All of ports.Store, and the register. Safe to share between threads; connections are made when first needed.

    Trouble with the database comes as BackendTrouble("database", …) when it may pass and as Misconfigured when an
    operator must act. After a restart of the server the next call works again.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._news = _News(url)

    def close(self) -> None:
        """Give the connections back. The store can't be used afterwards."""
        self._news.end()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------ 1: accept

    def intake(self, person: PersonId, board: str, mode: Mode = "test") -> Intake:
        found = self._one(sql.INTAKE, {"person": person, "board": board, "category": policy.category(mode)})
        if found is None:
            raise NotFound("person", str(person))
        if found["board_id"] is None:
            raise NotFound("board", board, known=self.board_names(public_only=True))
        by_staff = found["role"] in ("owner", "staff")
        seen = policy.may_see(found["visibility"], invited=found["invited"], staff=by_staff)
        counted = found["most_per_hour"] is not None or found["quota_gpu_s"] is not None
        return Intake(
            person_id=PersonId(found["person_id"]),
            person=found["person"],
            board_id=found["board_id"],
            board=found["board"],
            gpus=tuple(found["gpus"]),
            problem_version_id=found["problem_version_id"],
            problem=self.problem_of_version(found["problem_version_id"]),
            by_staff=by_staff,
            banned=found["ban_reason"] if found["banned_at"] else None,
            accepting=found["accepts_jobs"] is not False,
            closed=found["closed_at"] is not None or not seen,
            deadline_at=policy.deadline(found["deadline_at"], found["extended_to"]),
            zone=found["zone"],
            basis=None if counted else _basis(found),
        )

    def accept(self, new: NewSubmission, now: datetime) -> Receipt:
        """Rows and events, or a refusal. What was decided by holds if it is still so; else it is decided anew."""
        made = None if new.basis is None else self._one(sql.ACCEPT, self._told(new, new.basis, now))
        if made is None or made["submission_id"] is None:
            made = self._accept_locked(new, now)
        return Receipt(
            submission_id=SubmissionId(made["submission_id"]),
            run_ids=tuple(RunId(n) for n in made["run_ids"]),
            accepted_at=now,
        )

    def _accept_locked(self, new: NewSubmission, now: datetime) -> DictRow:
        """Ban, pause, closing, deadline and limits are looked at again where nobody can change them."""
        kind = policy.category(new.mode)
        asked = {"person": new.person_id, "board": new.board_id, "category": kind}
        with self._pool.transaction() as connection:
            _row(connection, sql.LOCK_INTAKE, asked)
            now_so = _row(connection, sql.FACTS, asked)
            if now_so is None or now_so["person"] is None:
                raise NotFound("person", str(new.person_id))
            if now_so["name"] is None:
                raise NotFound("board", str(new.board_id))
            known = completed(connection, now_so, new.person_id, new.board_id, kind, now)
            self._check_again(new, now_so, known, now)
            made = _row(connection, sql.ACCEPT, self._told(new, _basis(now_so), now))
            assert made is not None and made["submission_id"] is not None, "under the locks it is still so"
            return made

    def _told(self, new: NewSubmission, basis: Basis, now: datetime) -> dict[str, Any]:
        problem = self.problem_of_version(new.problem_version_id)
        paired = new.mode == "leaderboard" and problem.baseline is not None
        category = policy.category(new.mode)
        told = _accepted(new, _stamps(new, basis, now), now)
        return {**told, "paired": paired, "seen": basis.seen, "category": category}

    def _check_again(self, new: NewSubmission, now_so: DictRow, known: policy.Facts, now: datetime) -> None:
        seen = policy.may_see(now_so["visibility"], invited=known.invited, staff=new.by_staff)
        check_may_submit(
            Intake(
                person_id=new.person_id,
                person=now_so["person"],
                board_id=new.board_id,
                board=now_so["name"],
                gpus=new.gpus,
                problem_version_id=new.problem_version_id,
                problem=self.problem_of_version(new.problem_version_id),
                by_staff=new.by_staff,
                banned=now_so["ban_reason"] if now_so["banned_at"] else None,
                accepting=now_so["accepts_jobs"] is not False,
                closed=now_so["closed_at"] is not None or not seen,
                deadline_at=policy.deadline(now_so["deadline_at"], known.extended_to),
                zone=now_so["zone"],
            ),
            now,
        )
        policy.check(now_so["name"], new.mode, known, now, staff=new.by_staff)

    # ------------------------------------------------------------------------------------------------- 2: claim

    def claim(self, slots: Sequence[Slot], now: datetime, *, rules: Rules | None = None) -> OpenAttempt | None:
        """One statement. None can also mean that every candidate was just being claimed by others: ask again later."""
        free = [slot for slot in slots if slot.free > 0]
        if not free:
            return None
        told = {"name": new_job_name(), "key": secrets.token_bytes(32), "nonce": secrets.token_hex(16), "now": now}
        ours: dict[str, Any] = {
            "gpus": [slot.gpu for slot in free],
            "backends": [slot.backend for slot in free],
            "most": [sql.ANY_WIDTH if slot.most is None else slot.most for slot in free],
            "staff_only": [slot.staff_only for slot in free],
        }
        if rules is not None:
            return self._claim_by_policy(free, rules, now, {**told, **ours})
        if any(slot.staff_only for slot in free):
            statement = sql.CLAIM_BESIDE_STAFF
        elif len(free) > 1:
            statement = sql.CLAIM
        else:
            statement, ours = sql.CLAIM_OF_ONE, {name: values[0] for name, values in ours.items()}
        found = self._one(statement, {**told, **ours})
        return None if found is None else _attempt(found)

    def _claim_by_policy(
        self, free: Sequence[Slot], rules: Rules, now: datetime, told: dict[str, Any]
    ) -> OpenAttempt | None:
        """Where money is bounded, one after the other: each sees what the one before it may cost."""
        told |= conditions(free, rules, now)
        bounded = rules.budget.is_set
        if not bounded or not any(slot.price for slot in free):
            found = self._one(sql.CLAIM_BY_POLICY, told)
            return None if found is None else _attempt(found)
        with self._pool.transaction() as connection:
            connection.execute(b"SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": BUDGET_LOCK})
            found = _row(connection, sql.CLAIM_BY_POLICY, told)
        return None if found is None else _attempt(found)

    def open_attempts(self) -> Sequence[OpenAttempt]:
        return [_attempt(found) for found in self._all(sql.OPEN_ATTEMPTS)]

    def lately_dead(self, since: datetime) -> Sequence[OpenAttempt]:
        return [_attempt(found) for found in self._all(sql.LATELY_DEAD, {"since": since})]

    def waiting(self) -> Mapping[str, int]:
        return {found["gpu"]: found["runs"] for found in self._all(sql.WAITING)}

    def work(self, attempt: AttemptId) -> Work:
        """All of it. The secret seed is this attempt's own: what an earlier one saw helps no later one."""
        found = self._one(sql.WORK, {"attempt": attempt})
        if found is None:
            raise NotFound("attempt", str(attempt))
        opened = _attempt(found)
        avoided = self._all(sql.AVOID, {"run": opened.run_id, "backend": opened.backend, "now": opened.opened_at})
        version = found["problem_version_id"]
        problem = self.problem_of_version(version)
        if found["via"] == FINAL:
            problem = staged(problem, self.rivals_of_run(opened.run_id))
        return Work(
            attempt=opened,
            submission_id=SubmissionId(found["submission_id"]),
            person=found["person"],
            by_staff=found["by_staff"],
            board=found["board"],
            mode=found["mode"],
            file_name=found["file_name"],
            source=found["source"],
            problem=problem,
            problem_digest=self.digest_of_version(version),
            nonce=found["nonce"],
            key=bytes(found["key"]),
            secret_seed=derived_seed(found["secret_seed"], str(opened.number)),
            avoid_nodes=tuple(row["node"] for row in avoided),
            ranked_min_isolation=found["min_isolation"],
            via=found["via"],
        )

    # ------------------------------------------------------------------------------------ 4 and 6: launch, collect

    def note_handle(self, attempt: OpenAttempt, handle: Handle, deadline_at: datetime, now: datetime) -> bool:
        return self._fenced(sql.NOTE_HANDLE, attempt, now, handle=handle, deadline_at=deadline_at)

    def note_ambiguous(self, attempt: OpenAttempt, why: str, now: datetime) -> bool:
        return self._fenced(sql.NOTE_AMBIGUOUS, attempt, now, why=clean(why))

    def note_clean_sweep(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(sql.NOTE_CLEAN_SWEEP, attempt, now)

    def note_resend(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(sql.NOTE_RESEND, attempt, now)

    def put_off_deadlines(self, by_s: float) -> int:
        return len(self._all(sql.PUT_OFF_DEADLINES, {"by_s": by_s}))

    def note_seen(self, attempt: OpenAttempt, sighting: Sighting, now: datetime) -> bool:
        """RUNNING moves the run along; ENDED keeps what was seen, the attempt stays open; ABSENT, UNKNOWN: nothing."""
        seen = {
            "handle": sighting.handle,
            "node": sighting.node,
            "started_at": sighting.started_at,
            "ended_at": sighting.ended_at,
            "exit_code": sighting.exit_code,
            "reason": clean(sighting.reason),
        }
        match sighting.seen:
            case Seen.WAITING:
                return self._fenced(sql.NOTE_WAITING, attempt, now, **seen)
            case Seen.RUNNING:
                return self._fenced(sql.NOTE_RUNNING, attempt, now, **seen)
            case Seen.ENDED:
                return self._fenced(sql.NOTE_ENDED, attempt, now, **seen)
            case Seen.ABSENT | Seen.UNKNOWN:
                return True
            case _:
                assert_never(sighting.seen)

    def note_told(self, told: Mapping[AttemptId, Mapping[str, Any]]) -> None:
        if told:
            said = [json.dumps(one) for one in told.values()]
            self._do(sql.NOTE_TOLD, {"attempts": list(told), "said": said})

    # ------------------------------------------------------------------------------------------------- 7: score

    def score(
        self,
        attempt: OpenAttempt,
        verdict: Verdict,
        ending: Ending,
        now: datetime,
        *,
        telemetry: Mapping[str, Any],
        samples: bytes | None = None,
        second_seed: str | None = None,
        b_ref_s: Sequence[float] | None = None,
        artifacts: Mapping[str, bytes] | None = None,
    ) -> bool:
        files = artifacts or {}
        told: dict[str, Any] = {
            "verdict": verdict.name,
            "reason": clean(verdict.reason),
            "score_s": verdict.score_s,
            "low_s": verdict.low_s,
            "high_s": verdict.high_s,
            "isolation": verdict.isolation,
            "ranked": verdict.ranked,
            "detail": None if verdict.detail is None else as_jsonb(verdict.detail),
            "ending": ending.value,
            "telemetry": as_jsonb(telemetry),
            "samples": samples,
            "second_seed": second_seed,
            "b_ref_s": None if b_ref_s is None else list(b_ref_s),
            "names": list(files),
            "files": list(files.values()),
        }
        if second_seed is None:
            return self._fenced(sql.SCORE, attempt, now, **told)
        with self._pool.transaction() as connection:
            self._line_up(connection)
            if connection.execute(sql.SCORE.encode(), {**_fence(attempt), "now": now, **told}).fetchone() is None:
                return False
            self._release_seconds(connection, now)
        return True

    def keep_stale(self, attempt: OpenAttempt, report: bytes, why: str, now: datetime) -> None:
        told = {**_fence(attempt), "report": report, "why": clean(why), "now": now}
        with self._pool.statement() as connection:
            connection.execute(sql.KEEP_STALE.encode(), told)

    def give_up_attempt(
        self, attempt: OpenAttempt, ending: Ending, why: str, now: datetime, *, elsewhere: Sequence[str] = ()
    ) -> RunState | None:
        told = {
            **_fence(attempt),
            "ending": ending.value,
            "why": clean(why),
            "owed": tries_owed(ending),
            "elsewhere": list(elsewhere),
            "now": now,
        }
        found = self._one(sql.GIVE_UP, told)
        return None if found is None else RunState(found["state"])

    # --------------------------------------------------------------------------------------------------- cancel

    def cancel(self, submission: SubmissionId, by: PersonId | None, now: datetime) -> Sequence[OpenAttempt]:
        told = {"submission": submission, "by": by, "now": now}
        with self._pool.transaction() as connection:
            may = _row(connection, sql.MAY_CANCEL, told)
            if may is None:
                raise NotFound("submission", str(submission))
            if by is not None and not may["may"]:
                raise Refused(f"submission {submission} isn't yours", hint="Its owner or staff can cancel it.")
            connection.execute(sql.LOCK_RUNS.encode(), told)
            connection.execute(sql.CANCEL_QUEUED.encode(), told)
            connection.execute(sql.ASK_TO_CANCEL.encode(), told)
            return [_attempt(found) for found in connection.execute(sql.ASKED_ATTEMPTS.encode(), told)]

    def end_cancelled(self, attempt: OpenAttempt, now: datetime) -> bool:
        return self._fenced(sql.END_CANCELLED, attempt, now)

    # --------------------------------------------------------------------------------------- 8: events and leases

    def events(self, after: EventId, limit: int = 500) -> Sequence[Event]:
        """In order, without gaps to come: an event is shown only when none with a lower id can appear any more."""
        with self._pool.statement() as connection:
            settled = _row(connection, sql.SETTLED, {})
            assert settled is not None
            if settled["settled"] <= after:
                return []
            told = {"after": after, "settled": settled["settled"], "limit": limit}
            found = connection.execute(sql.EVENTS.encode(), told).fetchall()
        return [
            Event(id=EventId(row["id"]), kind=row["kind"], subject=row["subject"], data=row["data"], at=row["at"])
            for row in found
        ]

    def cursor(self, reader: str) -> EventId:
        found = self._one(sql.CURSOR, {"reader": reader})
        return EventId(0 if found is None else found["event_id"])

    def move_cursor(self, reader: str, to: EventId) -> None:
        with self._pool.statement() as connection:
            connection.execute(sql.MOVE_CURSOR.encode(), {"reader": reader, "to": to})

    def hold_lease(
        self, name: str, holder: str, ttl_s: float, now: datetime, *, info: Mapping[str, Any] | None = None
    ) -> bool:
        """Take or keep it. Moments are the caller's: hosts whose clocks differ by a ttl may both believe they lead.

        That costs double work and nothing else, since every write is fenced by its attempt.
        """
        told = {
            "name": name,
            "holder": holder,
            "now": now,
            "expires_at": now + timedelta(seconds=ttl_s),
            "info": as_jsonb(info or {}),
        }
        return self._one(sql.HOLD_LEASE, told) is not None

    def release_lease(self, name: str, holder: str) -> None:
        with self._pool.statement() as connection:
            connection.execute(sql.RELEASE_LEASE.encode(), {"name": name, "holder": holder})

    def wait_for_news(self, timeout_s: float) -> bool:
        return self._news.wait(timeout_s)

    # ----------------------------------------------------------------------------------------------------- within

    def _fenced(self, statement: str, attempt: OpenAttempt, now: datetime, **told: Any) -> bool:
        return self._one(statement, {**_fence(attempt), "now": now, **told}) is not None


class _News:
    """One listening connection per store, whoever waits: one thread listens, the others wait for it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._turn = threading.Condition()
        self._is_listened = self._is_over = False
        self._heard = 0

    def wait(self, timeout_s: float) -> bool:
        """True when something was said since this store last listened, or when that can't be known."""
        until = time.monotonic() + timeout_s
        with self._turn:
            before = self._heard
            self._turn.wait_for(lambda: self._heard != before or not self._is_listened, timeout_s)
            if self._heard != before:
                return True
            if self._is_listened:
                return False
            self._is_listened = True
        heard = False
        try:
            heard = self._listen(max(0.0, until - time.monotonic()))
        finally:
            with self._turn:
                self._is_listened = False
                self._heard += heard
                self._turn.notify_all()
        return heard

    def _listen(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        try:
            if self._connection is not None:
                return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))
        except psycopg.Error:
            self.close()
        if not self._is_over:
            with contextlib.suppress(psycopg.Error, KbslurmError):
                self._connection = connect(self._url)
                self._connection.execute(f"LISTEN {CHANNEL}")
                if not self._is_over:  # else nobody else would close it
                    return True
        # News are a hint. Without a database there are none, and hurrying back would only hammer at it.
        self.close()
        threading.Event().wait(max(0.0, until - time.monotonic()))
        return False

    def end(self) -> None:
        """Nobody listens any more, nor connects again."""
        self._is_over = True
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def derived_seed(seed: str, part: str) -> str:
    """A 128-bit seed for a part of what `seed` stands for, which tells nothing about the other parts."""
    return hashlib.sha256(f"{seed}/{part}".encode()).hexdigest()[:32]


def clean(text: str) -> str:
    """What Postgres can keep: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def as_jsonb(value: Any) -> Jsonb:
    """JSON that Postgres can keep."""
    return Jsonb(value, dumps=_dumps)


def _dumps(value: Any) -> str:
    text = json.dumps(value, allow_nan=False)
    # \\u0000 is a backslash and four digits to jsonb's eye; only an odd number of backslashes makes it a NUL.
    return json.dumps(_without_nul(value), allow_nan=False) if "\\u0000" in text or "\\ud" in text else text


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(str(key)): _without_nul(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_without_nul(inner) for inner in value]
        case _:
            return value


def _basis(facts: DictRow) -> Basis:
    return Basis(seen=facts["seen"], fair_at=facts["fair_at"], cost_s=facts["cost_s"] or 0.0)


def _stamps(new: NewSubmission, basis: Basis, now: datetime) -> list[datetime]:
    """The runs' virtual times: each pays for the person's run before it, by what that one is expected to cost."""
    last, cost_s = basis.fair_at, basis.cost_s
    stamps: list[datetime] = []
    for _ in new.gpus:
        last, cost_s = fairness.fair_at(now, last, cost_s=cost_s), new.cost_s
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


def _fence(attempt: OpenAttempt) -> dict[str, Any]:
    return {"attempt": attempt.id, "run": attempt.run_id, "number": attempt.number}


def _row(connection: Connection, statement: str, told: Mapping[str, Any]) -> DictRow | None:
    return connection.execute(statement.encode(), told).fetchone()


def _attempt(row: DictRow) -> OpenAttempt:
    handle = row["handle"]
    return OpenAttempt(
        id=AttemptId(row["id"]),
        run_id=RunId(row["run_id"]),
        number=row["number"],
        name=JobName(row["name"]),
        backend=row["backend"],
        gpu=row["gpu"],
        state=AttemptState(row["state"]),
        handle=None if handle is None else Handle(handle),
        opened_at=row["opened_at"],
        deadline_at=row["deadline_at"],
        clean_sweeps=row["clean_sweeps"],
        swept_at=row["swept_at"],
        seen_at=row["seen_at"],
        started_at=row["started_at"],
        node=row["node"],
        cancel_at=row["cancel_at"],
        gpus=row["gpus"],
        ranks=row["ranks"],
        withdraw_at=row["withdraw_at"],
    )
