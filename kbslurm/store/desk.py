"""What the HTTP face and the hosts ask of the rows, beside the register: queue, limits, invitations, audit log."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain import contest, policy
from kbslurm.domain.eta import Service
from kbslurm.domain.policy import Category, Facts
from kbslurm.domain.run import EventId, PersonId, RunId, SubmissionId
from kbslurm.errors import Invalid, NotFound, QuotaSpent
from kbslurm.ports import Event
from kbslurm.store import sql
from kbslurm.store.connect import Connection
from kbslurm.store.register import NAME_CAP, Register, _moment, _tell
from kbslurm.store.views import ArtifactView, Invite, Moved, Person, RateLimit, RunView

HISTORY = 60
HISTORY_DEPTH = 3000
MOST_PENDING = 5000
NEWCOMER_LOCK = 4_927_308
# Letters and digits that nobody takes for another, in groups that can be read out.
ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE_GROUPS, CODE_LETTERS = 3, 4

# What can move a place on a board: a ranked verdict of it, a second measurement that was dropped, its own changes, and
# people and submissions that come or go. Whose places, where it is known; else `whole`.
_MOVED = """
SELECT bool_or(e.subject = 'board:' || %(board)s) AS changed,
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
MOVED_LOOK = 20_000
# What hosts do to a board without moving anybody's place.
_STILL = [
    "board.calibrated", "staff.close", "staff.deadline", "staff.extend", "staff.final", "staff.final_forgotten",
    "staff.invite", "staff.quota", "staff.rate_limit", "staff.rejudge", "staff.rejudge_cancelled", "staff.visibility",
]  # fmt: skip

# Providers write their own address with a slash at its end or without; configurations, too.
_THIS_ISSUER = "issuer IN (%(issuer)s, %(issuer)s || '/')"

_ARTIFACTS = """
SELECT r.gpu, f.name, octet_length(f.data) AS size, f.at FROM run r
JOIN attempt a ON a.run_id = r.id AND a.number = r.attempts JOIN artifact f ON f.attempt_id = a.id
WHERE r.submission_id = %(submission)s ORDER BY r.id, f.name
"""

_ARTIFACT = """
SELECT f.data FROM run r JOIN attempt a ON a.run_id = r.id AND a.number = r.attempts
JOIN artifact f ON f.attempt_id = a.id
WHERE r.submission_id = %(submission)s AND r.gpu = %(gpu)s AND f.name = %(name)s ORDER BY r.id DESC LIMIT 1
"""

_QUEUE = """
SELECT
    (SELECT count(*) FROM run WHERE state = 'queued' AND gpu = %(gpu)s) AS queued,
    (SELECT count(*) FROM run WHERE state IN ('launching', 'running') AND gpu = %(gpu)s) AS open_now,
    (SELECT count(*) FROM run WHERE state = 'queued' AND gpu = %(gpu)s
        AND (fair_at, id) < (%(fair_at)s::timestamptz, %(run)s::bigint)) AS ahead,
    EXISTS (SELECT 1 FROM lease WHERE expires_at > %(now)s) AS led,
    (SELECT coalesce(told.why -> 'held_up' ->> %(gpu)s, told.why -> 'held_boards' -> %(gpu)s ->> mine.board,
            told.why -> 'held_teams' -> %(gpu)s ->> mine.team)
        FROM (SELECT info -> 'overflow' AS why FROM lease WHERE name = 'daemon' AND expires_at > %(now)s) told
        LEFT JOIN (
            SELECT lower(b.name) AS board, s.team FROM run JOIN submission s ON s.id = run.submission_id
            JOIN leaderboard b ON b.id = s.board_id WHERE run.id = %(run)s
        ) mine ON true) AS held_up
"""
_SERVICE = f"""
SELECT percentile_cont(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY took_s) AS took, count(*) AS n FROM (
    SELECT extract(epoch FROM ended_at - opened_at)::float8 AS took_s FROM attempt
    WHERE id > (SELECT max(id) FROM attempt) - {HISTORY_DEPTH} AND gpu = %(gpu)s AND state = 'reported'
        AND ended_at > opened_at
    ORDER BY id DESC LIMIT {HISTORY}
) lately
"""
_OF_BOARD = """
    s.removed_at IS NULL AND (%(board)s::bigint IS NULL OR s.board_id = %(board)s)
    AND (%(since)s::timestamptz IS NULL OR s.accepted_at >= %(since)s)
"""
_STATS = f"""
SELECT count(DISTINCT s.id) AS submissions, count(DISTINCT s.person_id) AS people, count(r.id) AS runs,
    count(*) FILTER (WHERE r.state = 'queued') AS queued,
    count(*) FILTER (WHERE r.state IN ('launching', 'running')) AS running,
    count(*) FILTER (WHERE r.state = 'failed') AS failed
FROM submission s LEFT JOIN run r ON r.submission_id = s.id WHERE {_OF_BOARD}
"""
_STATS_VERDICTS = f"""
SELECT v.name, count(*) AS n FROM submission s JOIN run r ON r.submission_id = s.id JOIN verdict v ON v.run_id = r.id
WHERE {_OF_BOARD} GROUP BY v.name ORDER BY v.name
"""
_STATS_GPUS = f"""
SELECT r.gpu, count(DISTINCT r.id) AS runs,
    coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)) FILTER (WHERE a.ended_at > a.started_at), 0)::float8
    AS gpu_s
FROM submission s JOIN run r ON r.submission_id = s.id LEFT JOIN attempt a ON a.run_id = r.id
WHERE {_OF_BOARD} GROUP BY r.gpu ORDER BY r.gpu
"""
# Taking a submission back doesn't give it back.
_RECENT = """
SELECT accepted_at FROM submission
WHERE person_id = %(person)s AND board_id = %(board)s AND accepted_at > %(hour)s
    AND (mode = 'leaderboard') = (%(category)s = 'leaderboard')
"""
_USED = """
SELECT coalesce(sum(extract(epoch FROM coalesce(a.ended_at, %(now)s) - a.started_at)), 0)::float8 AS used_gpu_s,
    min(a.ended_at) AS oldest_use_at
FROM submission s JOIN run r ON r.submission_id = s.id JOIN attempt a ON a.run_id = r.id
WHERE s.person_id = %(person)s AND s.board_id = %(board)s AND s.accepted_at > %(day)s - interval '7 days'
    AND a.started_at IS NOT NULL AND coalesce(a.ended_at, %(now)s) > %(day)s
    AND coalesce(a.ended_at, %(now)s) > a.started_at
"""


@dataclass(frozen=True, kw_only=True)
class QueueNow:
    """One GPU type's queue: how many wait, hold a slot, and stand before the run that was asked about.

    `led`: a daemon leads, so that what waits will be started. `held_up`: why it waits for home.
    """

    queued: int
    open_now: int
    ahead: int
    led: bool
    held_up: str | None = None


class Desk(Register):
    """Cold and lukewarm paths of the API and of the hosts' commands, in plain SQL."""

    # ------------------------------------------------------------------------------------------------- the queue

    def last_event(self) -> EventId:
        """The newest event that no event with a lower number can follow any more."""
        found = self._one(sql.SETTLED)
        assert found is not None
        return EventId(found["settled"])

    def queue_now(self, gpu: str, now: datetime, *, before: RunView | None = None) -> QueueNow:
        """How it stands with this GPU type's queue."""
        told = {
            "gpu": gpu,
            "now": now,
            "fair_at": before.fair_at if before else None,
            "run": before.id if before else RunId(0),
        }
        found = self._one(_QUEUE, told)
        assert found is not None
        return QueueNow(**found)

    def service(self, gpu: str) -> Service | None:
        """How long runs of this type held their slot lately; None: too few have."""
        found = self._one(_SERVICE, {"gpu": gpu})
        if found is None or found["n"] < 3:
            return None
        quick_s, slow_s = found["took"]
        return Service(quick_s=quick_s, slow_s=slow_s)

    def moved(self, board: int, after: EventId) -> Moved:
        """What may have moved a place since standings held for `after`."""
        settled = self.last_event()
        if settled <= after:
            return Moved(upto=after, changed=False, people=frozenset())
        if settled - after > MOVED_LOOK:
            return Moved(upto=settled, changed=True, people=None)
        found = self._one(_MOVED, {"board": board, "after": after, "settled": settled, "still": _STILL})
        assert found is not None
        people = frozenset(PersonId(one) for one in found["people"] or () if one is not None)
        return Moved(upto=settled, changed=bool(found["changed"]), people=None if found["whole"] else people)

    def submission_count(self, board: int, gpu: str, person: int | None = None) -> int:
        """How many submissions this board has for the GPU type, those taken back left out."""
        found = self._one(
            "SELECT count(DISTINCT s.id) AS n FROM submission s JOIN run r ON r.submission_id = s.id"
            " WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND r.gpu = %(gpu)s"
            " AND (%(person)s::bigint IS NULL OR s.person_id = %(person)s)",
            {"board": board, "gpu": gpu, "person": person},
        )
        assert found is not None
        return int(found["n"])

    def submission_ids(self, board: int, *, limit: int, offset: int) -> list[SubmissionId]:
        """The numbers of a board's submissions, newest first, those taken back left out."""
        found = self._all(
            "SELECT id FROM submission WHERE board_id = %(board)s AND removed_at IS NULL"
            " ORDER BY id DESC LIMIT %(limit)s OFFSET %(offset)s",
            {"board": board, "limit": limit, "offset": offset},
        )
        return [SubmissionId(row["id"]) for row in found]

    def take_back(self, submission: SubmissionId, by: str, now: datetime, person: PersonId | None = None) -> None:
        """Off every list, and without its source. Its open runs are cancelled by `cancel`, not by this.

        Who takes back their own doesn't get rid of what was measured of it: see `domain.measure.settled`.
        """
        told = {"id": submission, "now": now}
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"UPDATE submission SET removed_at = coalesce(removed_at, %(now)s), source = '' WHERE id = %(id)s"
                b" RETURNING id",
                told,
            ).fetchone()
            if found is None:
                raise NotFound("submission", str(submission))
            connection.execute(
                b"DELETE FROM artifact USING attempt a JOIN run r ON r.id = a.run_id"
                b" WHERE artifact.attempt_id = a.id AND r.submission_id = %(id)s",
                told,
            )
            _tell(connection, "submission.removed", f"submission:{submission}", {"by": by, "person": person}, now)

    def artifacts(self, submission: SubmissionId) -> list[ArtifactView]:
        """What the profiles of this submission left, as far as it is still kept."""
        return [
            ArtifactView(gpu=row["gpu"], name=row["name"], size=row["size"], at=row["at"])
            for row in self._all(_ARTIFACTS, {"submission": submission})
        ]

    def artifact(self, submission: SubmissionId, gpu: str, name: str) -> bytes:
        """One of them. Its bytes were made where the submission ran: never look into them, never show them."""
        found = self._one(_ARTIFACT, {"submission": submission, "gpu": gpu, "name": name})
        if found is None:
            raise NotFound("artifact", name, known=[a.name for a in self.artifacts(submission) if a.gpu == gpu])
        return bytes(found["data"])

    def forget_artifacts(self, before: datetime) -> int:
        """Remove what is older; how many."""
        with self._pool.transaction() as connection:
            return connection.execute(b"DELETE FROM artifact WHERE at < %(before)s", {"before": before}).rowcount

    # --------------------------------------------------------------------------------------------------- people

    def person_by_name_or_id(self, text: str) -> Person | None:
        """Whoever is meant by a number, else by a name."""
        if text.isascii() and text.isdecimal() and len(text) < 19:
            return self.person_by_id(PersonId(int(text)))
        return self.person(text)

    def person_for_account(
        self, provider: str, account: str, name: str, *, by: str, now: datetime | None = None
    ) -> Person:
        """Whoever this account stands for; a new person when it stands for nobody, under a name that is still free."""
        found = self.person_by_account(provider, account)
        if found is not None:
            return found
        with self._newcomers_in_turn():
            found = self.person_by_account(provider, account)
            if found is not None:
                return found
            wanted = self._free_name(name, f"{provider} {account[-8:]}")
            person = self.add_person(wanted, now=now)
            self.link_account(person.id, provider, account)
            self.audit(by, "user.add", f"person:{person.id}", {"name": wanted, "account": provider}, now=now)
        return self._known(person.id)

    def person_for_subject(self, issuer: str, subject: str, name: str, *, now: datetime | None = None) -> Person:
        """Whoever a university's provider means by this subject; a new person when it is the first time."""
        told = {"issuer": issuer.rstrip("/"), "subject": subject}
        statement = f"SELECT person_id FROM oidc_account WHERE {_THIS_ISSUER} AND subject = %(subject)s"
        found = self._one(statement, told)
        if found is not None:
            return self._known(PersonId(found["person_id"]))
        with self._newcomers_in_turn():
            found = self._one(statement, told)
            if found is None:
                person = self.add_person(self._free_name(name, subject[-8:]), now=now)
                self.audit("sign-on", "user.add", f"person:{person.id}", {"account": "oidc"}, now=now)
                self._do(
                    "INSERT INTO oidc_account (issuer, subject, person_id) VALUES (%(issuer)s, %(subject)s, %(person)s)"
                    " ON CONFLICT DO NOTHING",
                    {**told, "person": person.id},
                )
                found = self._one(statement, told)
                assert found is not None
        return self._known(PersonId(found["person_id"]))

    @contextmanager
    def _newcomers_in_turn(self) -> Iterator[None]:
        """Who comes twice at once (a double click, two of a bot's calls) becomes one person; two of a name get two."""
        with self._pool.transaction() as connection:
            connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (NEWCOMER_LOCK,))
            yield

    def link_subject(self, person: PersonId, issuer: str, subject: str) -> None:
        """Let a university's account stand for the person, too. Invalid when it stands for somebody else, or they have
        another of the same university."""
        told = {"issuer": issuer.rstrip("/"), "subject": subject, "person": person}
        self._do(
            "INSERT INTO oidc_account (issuer, subject, person_id) SELECT %(issuer)s, %(subject)s, id FROM person"
            " WHERE id = %(person)s AND NOT EXISTS (SELECT 1 FROM oidc_account"
            f" WHERE {_THIS_ISSUER} AND (person_id = %(person)s OR subject = %(subject)s)) ON CONFLICT DO NOTHING",
            told,
        )
        found = self._one(f"SELECT person_id FROM oidc_account WHERE {_THIS_ISSUER} AND subject = %(subject)s", told)
        if found is None:
            raise Invalid("you have another account of this university already", hint="Ask a host.")
        if found["person_id"] != person:
            raise Invalid("that account of the university belongs to somebody else", hint="Ask a host.")

    def use_state(self, hashed: bytes, expires_at: datetime, *, now: datetime) -> bool:
        """Spend a state of a sign-on. False: it was spent before."""
        with self._pool.transaction() as connection:
            connection.execute(b"DELETE FROM used_state WHERE expires_at < %(now)s", {"now": now})
            found = connection.execute(
                b"INSERT INTO used_state (hash, expires_at) VALUES (%(hash)s, %(expires_at)s)"
                b" ON CONFLICT DO NOTHING RETURNING hash",
                {"hash": hashed, "expires_at": expires_at},
            ).fetchone()
        return found is not None

    def secret_setting(self, key: str) -> bytes:
        """A random secret of this installation by its name, made when it is first asked for."""
        self._do(
            "INSERT INTO setting (key, value) VALUES (%(key)s, to_jsonb(%(value)s::text)) ON CONFLICT DO NOTHING",
            {"key": f"secret.{key}", "value": secrets.token_hex(32)},
        )
        return bytes.fromhex(str(self.setting(f"secret.{key}")))

    def _free_name(self, name: str, mark: str) -> str:
        """A name that nobody has yet, as near to the wanted one as may be."""
        usual = " ".join(name.split())[:NAME_CAP] or "somebody"
        for wanted in (usual, f"{usual[:40]} ({mark})"):
            if wanted.isprintable() and self.person(wanted) is None:
                return wanted
        return f"somebody {secrets.token_hex(4)}"

    def check_pending_room(self, *, now: datetime) -> None:
        """Refuse a flood of tokens that nobody links; those that nobody linked in time are forgotten."""
        with self._pool.transaction() as connection:
            connection.execute(
                b"DELETE FROM token WHERE kind = 'pending' AND person_id IS NULL AND expires_at < %(now)s", {"now": now}
            )
            found = connection.execute(
                b"SELECT count(*) AS n, min(expires_at) AS first FROM token"
                b" WHERE kind = 'pending' AND person_id IS NULL"
            ).fetchone()
        assert found is not None
        if found["n"] >= MOST_PENDING:
            raise QuotaSpent(
                "tokens that wait to be linked", used=found["n"], limit=MOST_PENDING, resets_at=found["first"]
            )

    # --------------------------------------------------------------------------------------------------- boards

    def edit_board(
        self,
        board: str,
        *,
        by: str,
        description: str | None = None,
        gpus: Sequence[str] | None = None,
        min_isolation: int | None = None,
        reopen: bool = False,
        now: datetime | None = None,
    ) -> list[str]:
        """Change what is told and is different; the names of what was changed. Runs that wait keep their GPU type."""
        held, at = self._held(board), _moment(now)
        types = None if gpus is None else list(dict.fromkeys(contest.gpu_name(gpu) for gpu in gpus))
        if types is not None and not types:
            raise Invalid(f"board {held.name} needs a GPU type", hint="Name at least one.")
        wanted: dict[str, tuple[Any, Any]] = {
            "description": (description, held.description),
            "gpus": (types, list(held.gpus)),
            "min_isolation": (min_isolation, held.min_isolation),
        }
        changed = {name: new for name, (new, old) in wanted.items() if new is not None and new != old}
        if reopen and held.closed_at is not None:
            changed["closed_at"] = None
        if not changed:
            return []
        # The names are those of `wanted` and nobody else's: no text of a caller gets into the statement.
        sets = ", ".join(f"{name} = %({name})s" for name in changed)
        with self._pool.transaction() as connection:
            connection.execute(f"UPDATE leaderboard SET {sets} WHERE id = %(id)s".encode(), {**changed, "id": held.id})
            _tell(connection, "staff.edit_board", f"board:{held.id}", {"changed": sorted(changed), "by": by}, at)
        return sorted(changed)

    def stats(self, *, board: str | None = None, since: datetime | None = None) -> dict[str, Any]:
        """What was done on this board, or on all, since then: counts only."""
        held = None if board is None else self._held(board)
        told = {"board": held.id if held else None, "since": since}
        counts = self._one(_STATS, told)
        verdicts = self._all(_STATS_VERDICTS, told)
        gpus = self._all(_STATS_GPUS, told)
        assert counts is not None
        return {
            **counts,
            "verdicts": {row["name"]: row["n"] for row in verdicts},
            "gpus": {row["gpu"]: {"runs": row["runs"], "gpu_s": row["gpu_s"]} for row in gpus},
        }

    # ----------------------------------------------------------------------------------------- limits, extensions

    def set_rate_limit(
        self, board: str, kind: Category, most: int, *, by: str, now: datetime | None = None
    ) -> RateLimit:
        """How many submissions of this category a person may make to this board within an hour."""
        held, at = self._held(board), _moment(now)
        told = {"board": held.id, "category": kind, "most": policy.per_hour(most)}
        with self._pool.transaction() as connection:
            connection.execute(
                b"INSERT INTO rate_limit (board_id, category, most_per_hour)"
                b" VALUES (%(board)s, %(category)s, %(most)s)"
                b" ON CONFLICT (board_id, category) DO UPDATE SET most_per_hour = excluded.most_per_hour",
                told,
            )
            _tell(connection, "staff.rate_limit", f"board:{held.id}", {"category": kind, "most": most, "by": by}, at)
        return RateLimit(board=held.name, category=kind, most_per_hour=most)

    def rate_limits(self, board: str) -> list[RateLimit]:
        """The rate limits of this board."""
        held = self._held(board)
        found = self._all(
            "SELECT category, most_per_hour FROM rate_limit WHERE board_id = %(board)s ORDER BY category",
            {"board": held.id},
        )
        return [RateLimit(board=held.name, **row) for row in found]

    def drop_rate_limit(self, board: str, kind: Category, *, by: str, now: datetime | None = None) -> None:
        """Let everybody submit as often as they like. NotFound when there was no such limit."""
        held, at = self._held(board), _moment(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"DELETE FROM rate_limit WHERE board_id = %(board)s AND category = %(category)s RETURNING board_id",
                {"board": held.id, "category": kind},
            ).fetchone()
            if found is None:
                raise NotFound(f"rate limit of board {held.name}", kind)
            _tell(connection, "staff.rate_limit", f"board:{held.id}", {"category": kind, "most": None, "by": by}, at)

    def set_quota(self, board: str, gpu_s: float | None, *, by: str, now: datetime | None = None) -> None:
        """How many GPU-seconds a person may use on this board within a day; None: as many as they like."""
        held, at = self._held(board), _moment(now)
        if gpu_s is not None and not 0 <= gpu_s < 1e9:
            raise Invalid(f"{gpu_s:g} GPU-seconds is no quota")
        statement = (
            b"DELETE FROM quota WHERE board_id = %(board)s"
            if gpu_s is None
            else b"INSERT INTO quota (board_id, gpu_s_per_day) VALUES (%(board)s, %(gpu_s)s)"
            b" ON CONFLICT (board_id) DO UPDATE SET gpu_s_per_day = excluded.gpu_s_per_day"
        )
        with self._pool.transaction() as connection:
            connection.execute(statement, {"board": held.id, "gpu_s": gpu_s})
            _tell(connection, "staff.quota", f"board:{held.id}", {"gpu_s_per_day": gpu_s, "by": by}, at)

    def quota(self, board: int) -> float | None:
        """The GPU-seconds per person and day of this board."""
        found = self._one("SELECT gpu_s_per_day FROM quota WHERE board_id = %(board)s", {"board": board})
        return None if found is None else float(found["gpu_s_per_day"])

    def extend(
        self, board: str, person: Person, deadline_at: datetime | None, *, by: str, now: datetime | None = None
    ) -> None:
        """Let this person submit until then; None takes the extension away."""
        held, at = self._held(board), _moment(now)
        told = {"board": held.id, "person": person.id, "deadline_at": deadline_at}
        statement = (
            b"DELETE FROM extension WHERE board_id = %(board)s AND person_id = %(person)s"
            if deadline_at is None
            else b"INSERT INTO extension (board_id, person_id, deadline_at)"
            b" VALUES (%(board)s, %(person)s, %(deadline_at)s)"
            b" ON CONFLICT (board_id, person_id) DO UPDATE SET deadline_at = excluded.deadline_at"
        )
        said = {"person": person.id, "deadline_at": deadline_at.isoformat() if deadline_at else None, "by": by}
        with self._pool.transaction() as connection:
            connection.execute(statement, told)
            _tell(connection, "staff.extend", f"board:{held.id}", said, at)

    # ---------------------------------------------------------------------------------------------- invitations

    def make_invites(
        self, boards: Sequence[str], count: int, *, by: str, now: datetime | None = None
    ) -> tuple[list[str], list[str]]:
        """(the boards' names, new codes): each code opens all of these boards to the one person who takes it up."""
        policy.check_invites(boards, count)
        held = [self._held(name) for name in dict.fromkeys(boards)]
        codes, at = [_code() for _ in range(count)], _moment(now)
        told = {"codes": codes, "boards": [board.id for board in held], "now": at}
        with self._pool.transaction() as connection:
            connection.execute(
                b"WITH made AS (INSERT INTO invite (code, created_at) SELECT unnest(%(codes)s::text[]), %(now)s"
                b" RETURNING id) INSERT INTO invite_board (invite_id, board_id)"
                b" SELECT made.id, b.id FROM made, unnest(%(boards)s::bigint[]) AS b(id)",
                told,
            )
            for board in held:
                _tell(connection, "staff.invite", f"board:{board.id}", {"count": count, "by": by}, at)
        return [board.name for board in held], codes

    def invites(self, board: str) -> list[Invite]:
        """The invitations to this board that weren't revoked, oldest first."""
        found = self._all(
            "SELECT i.code, i.person_id, p.name AS person, i.claimed_at, i.created_at"
            " FROM invite i JOIN invite_board ib ON ib.invite_id = i.id LEFT JOIN person p ON p.id = i.person_id"
            " WHERE ib.board_id = %(board)s AND i.revoked_at IS NULL ORDER BY i.id",
            {"board": self._held(board).id},
        )
        return [Invite(**row) for row in found]

    def claim_invite(self, code: str, person: PersonId, *, now: datetime | None = None) -> list[str]:
        """The boards that are open to this person from now on. Twice by the same person is fine."""
        at = _moment(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"SELECT id, person_id, revoked_at FROM invite WHERE code = %(code)s FOR UPDATE",
                {"code": code.strip().upper()},
            ).fetchone()
            if found is None:
                raise NotFound("invitation", code)
            held = {"invite": found["id"], "person": person, "now": at}
            revoked = found["revoked_at"] is not None
            if policy.check_claim(code, revoked=revoked, claimed_by=found["person_id"], person=person):
                connection.execute(
                    b"UPDATE invite SET person_id = %(person)s, claimed_at = %(now)s WHERE id = %(invite)s", held
                )
                _tell(connection, "person.joined", f"person:{person}", {"invite": found["id"]}, at)
            names = connection.execute(
                b"SELECT b.name FROM invite_board ib JOIN leaderboard b ON b.id = ib.board_id"
                b" WHERE ib.invite_id = %(invite)s AND b.deleted_at IS NULL ORDER BY b.name",
                held,
            ).fetchall()
        return [row["name"] for row in names]

    def revoke_invite(self, code: str, *, by: str, now: datetime | None = None) -> bool:
        """End an invitation, and with it the access of whoever took it up; whether somebody had."""
        at = _moment(now)
        with self._pool.transaction() as connection:
            found = connection.execute(
                b"UPDATE invite SET revoked_at = %(now)s WHERE code = %(code)s AND revoked_at IS NULL"
                b" RETURNING id, person_id",
                {"code": code.strip().upper(), "now": at},
            ).fetchone()
            if found is None:
                raise NotFound("invitation", code)
            claimed = found["person_id"] is not None
            _tell(connection, "staff.revoke_invite", f"invite:{found['id']}", {"was_claimed": claimed, "by": by}, at)
        return claimed

    def joined(self, person: PersonId) -> frozenset[int]:
        """The boards to which this person was invited."""
        found = self._all(
            "SELECT DISTINCT ib.board_id FROM invite i JOIN invite_board ib ON ib.invite_id = i.id"
            " WHERE i.person_id = %(person)s AND i.revoked_at IS NULL",
            {"person": person},
        )
        return frozenset(row["board_id"] for row in found)

    # ---------------------------------------------------------------------------------------------- the audit log

    def audit_log(self, *, limit: int = 100, before: int | None = None) -> list[Event]:
        """What hosts did, newest first."""
        found = self._all(
            "SELECT id, kind, subject, data, at FROM event WHERE kind LIKE 'staff.%%'"
            " AND (%(before)s::bigint IS NULL OR id < %(before)s) ORDER BY id DESC LIMIT %(limit)s",
            {"limit": limit, "before": before},
        )
        return [Event(**{**row, "id": EventId(row["id"])}) for row in found]


def completed(
    connection: Connection, found: Mapping[str, Any], person: PersonId, board: int, kind: Category, now: datetime
) -> Facts:
    """What the policy must know, with what costs more to count: only boards with limits and quotas ask for that."""
    told: dict[str, Any] = {"person": person, "board": board, "category": kind}
    told |= {"hour": now - policy.WINDOW, "day": now - policy.QUOTA_WINDOW, "now": now}
    known = {name: found[name] for name in ("invited", "extended_to", "most_per_hour", "quota_gpu_s")}
    if known["most_per_hour"] is not None:
        known["recent_at"] = [row["accepted_at"] for row in connection.execute(_RECENT.encode(), told)]
    if known["quota_gpu_s"] is not None:
        used = connection.execute(_USED.encode(), told).fetchone()
        assert used is not None
        known |= used
    return Facts(**known)


def _code() -> str:
    groups = ("".join(secrets.choice(ALPHABET) for _ in range(CODE_LETTERS)) for _ in range(CODE_GROUPS))
    return "-".join(groups)
