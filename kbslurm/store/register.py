"""The hosts' register: people, tokens, problems, boards, settings, and what the faces are shown of the rows.

Cold paths in plain SQL. What a host does (`by`) is kept as an event `staff.*` in the same transaction;
who leaves `by` out tells it by `audit`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from kbslurm.domain import contest
from kbslurm.domain.board import Entry
from kbslurm.domain.problem import Problem, as_json, from_json
from kbslurm.domain.run import PersonId, RunId, RunState, SubmissionId
from kbslurm.domain.verdict import Verdict
from kbslurm.errors import Invalid, NotFound
from kbslurm.store import sql
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.views import (
    AttemptView,
    Attention,
    Board,
    LeaseLine,
    Person,
    ProblemVersion,
    QueueLine,
    Ranking,
    Role,
    RunView,
    SubmissionView,
    Token,
    TokenKind,
    Visibility,
    Waiting,
    Want,
)

NAME_CAP = 64
PROBLEMS_KEPT = 64
OLD_IN_QUEUE = timedelta(hours=6)
OLD_UNSENT = timedelta(minutes=10)

_PERSON = "id, name, role, banned_at, ban_reason, discord_id, github_id, created_at, team"
_TOKEN = "id, person_id, device, kind, created_at, expires_at, revoked_at, used_at"
_BOARD = """
SELECT b.id, b.name, b.description, pr.name AS problem_name, b.problem_version_id, b.deadline_at, b.zone, b.visibility,
    b.gpus, b.ranking, b.secret_seed, b.min_isolation, b.confirm, b.created_by, b.created_at, b.closed_at,
    {submissions} AS submissions
FROM leaderboard b JOIN problem pr ON pr.id = b.problem_id
WHERE b.deleted_at IS NULL
"""
# Of a board with a million submissions they aren't counted for somebody who only reads its standings.
_COUNTED = _BOARD.format(
    submissions="(SELECT count(*) FROM submission s WHERE s.board_id = b.id AND s.removed_at IS NULL)"
)
_UNCOUNTED = _BOARD.format(submissions="NULL::bigint")
_SUBMISSION = """
SELECT s.id, s.person_id, p.name AS person, s.board_id, b.name AS board, s.mode, s.file_name, s.sha256, s.via,
    s.by_staff, s.accepted_at, s.removed_at, {source}
FROM submission s JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id
"""
_RUNS = """
SELECT r.id, r.submission_id, r.gpu, r.state, r.problem_version_id, r.attempts, r.queued_at, r.fair_at, r.cancel_at,
    r.ended_at, r.reason, r.second, r.held, f.score_s AS first_score_s,
    v.name AS verdict, v.reason AS verdict_reason, v.score_s, v.low_s, v.high_s, v.isolation,
    v.ranked, v.at AS verdict_at, {detail} AS detail
FROM run r LEFT JOIN verdict v ON v.run_id = r.id
LEFT JOIN LATERAL (
    SELECT fv.score_s FROM run fr JOIN verdict fv ON fv.run_id = fr.id
    WHERE fr.submission_id = r.submission_id AND fr.gpu = r.gpu AND fr.problem_version_id = r.problem_version_id
        AND fr.rejudging_id = r.rejudging_id AND NOT fr.second
) f ON r.second
WHERE r.submission_id = ANY(%(submissions)s) AND r.counts ORDER BY r.id
"""
_ATTEMPTS = """
SELECT a.run_id, a.number, a.name, a.backend, a.state, a.handle, a.node, a.ending, a.exit_code, a.reason, a.opened_at,
    a.submitted_at, a.started_at, a.ended_at, a.deadline_at, a.telemetry, a.why_here
FROM attempt a JOIN run r ON r.id = a.run_id
WHERE r.submission_id = ANY(%(submissions)s) ORDER BY a.run_id, a.number
"""
# Polled more often than anything else is asked: one journey to the database and back instead of three.
_WHOLE = (
    _SUBMISSION.format(
        source=f"""s.source,
    (SELECT json_agg(a) FROM ({_ATTEMPTS}) a) AS attempts,
    (SELECT json_agg(r) FROM ({_RUNS.format(detail="v.detail")}) r) AS runs"""
    )
    + "WHERE s.id = %(id)s"
)
_SCORED_BY = """
SELECT p.id AS person_id, p.name AS person, s.id AS submission_id, r.id AS run_id,
    coalesce(fs.score_s, v.score_s) AS score_s, coalesce(fs.low_s, v.low_s) AS low_s,
    coalesce(fs.high_s, v.high_s) AS high_s, s.accepted_at AS at, s.file_name
FROM submission s
JOIN leaderboard b ON b.id = s.board_id
JOIN person p ON p.id = s.person_id
JOIN {run} ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.may_rank
JOIN verdict v ON v.run_id = r.id AND v.ranked
LEFT JOIN final_score fs ON fs.run_id = r.id
WHERE s.board_id = %(board)s AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND (%(gpu)s::text IS NULL OR r.gpu = %(gpu)s){whose}
    AND (b.ranking = 'best' OR s.id = (
        SELECT max(t.id) FROM submission t
        JOIN run tr ON tr.submission_id = t.id AND tr.problem_version_id = r.problem_version_id AND tr.gpu = r.gpu
            AND tr.counts AND tr.may_rank
        JOIN verdict tv ON tv.run_id = tr.id AND tv.ranked
        WHERE t.board_id = s.board_id AND t.person_id = s.person_id AND t.removed_at IS NULL
    ))
ORDER BY coalesce(fs.score_s, v.score_s), s.accepted_at, s.id, r.id
"""
_SCORED = _SCORED_BY.format(run="run r", whose="")
# Looked up one by one: the planner takes the price of the part that only `last` needs for a reason to read every run.
_SCORED_OF = _SCORED_BY.format(
    run="LATERAL (SELECT * FROM run WHERE run.submission_id = s.id OFFSET 0) r",
    whose=" AND s.person_id = ANY(%(people)s)",
)
_BEST = f"""
SELECT * FROM (
    SELECT DISTINCT ON (person_id) * FROM ({_SCORED}) scored ORDER BY person_id, score_s, at, submission_id, run_id
) best ORDER BY score_s, at, submission_id, run_id
"""
_RECORDS = f"""
SELECT person_id, person, submission_id, run_id, score_s, low_s, high_s, at, file_name FROM (
    SELECT scored.*, min(score_s) OVER (
        ORDER BY at, submission_id, score_s, run_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM ({_SCORED}) scored
) compared WHERE before IS NULL OR score_s < before ORDER BY at, submission_id, score_s, run_id
"""
_ATTENTION = f"""
SELECT 'ambiguous' AS kind, 'run:' || a.run_id AS subject, 'attempt ' || a.number || ' at ' || a.backend
    || ' may or may not have been started: ' || a.reason AS text, a.opened_at AS since
FROM attempt a WHERE a.state = 'ambiguous'
UNION ALL
SELECT 'failed', 'run:' || id, 'failed after ' || attempts || ' attempts: ' || reason, ended_at
FROM run WHERE state = 'failed' AND ended_at > %(now)s - interval '1 day'
UNION ALL
SELECT 'quarantined', 'node:' || node, node || ' at ' || backend || ' is left out: runs of ' || people
    || ' people failed there within the hour', since
FROM ({sql.QUARANTINED}) q
UNION ALL
SELECT 'unsteady', 'node:' || node, 'the baseline was not its usual self on ' || node || ' at ' || backend || ' in '
    || count(*) || ' runs of ' || count(DISTINCT person_id) || ' people within a day', max(at)
FROM baseline_point WHERE NOT inside AND at > %(now)s - interval '1 day' GROUP BY backend, node
UNION ALL
SELECT 'old', 'gpu:' || gpu, count(*) || ' runs have waited for ' || gpu || ' for more than '
    || extract(epoch FROM %(old)s::interval)::int / 3600 || ' hours', min(queued_at)
FROM run WHERE state = 'queued' AND queued_at < %(now)s - %(old)s::interval GROUP BY gpu
UNION ALL
SELECT 'old', 'run:' || run_id, 'attempt ' || number || ' was given to ' || backend
    || ', which has not taken it so far (the daemon''s log says why: a full disk, a limit on jobs)', opened_at
FROM attempt WHERE state = 'intent' AND opened_at < %(now)s - %(unsent)s::interval
ORDER BY since
"""


class Register:
    """What hosts and faces read and change, apart from the walk. Base of PostgresStore."""

    def __init__(self, url: str) -> None:
        self._pool = Pool(url)
        self._problems: dict[int, tuple[str, Problem]] = {}

    @property
    def where(self) -> str:
        """The database's place, without user and password."""
        return self._pool.where

    @property
    def url(self) -> str:
        """Where it is, with all that it takes to connect: not to be shown."""
        return self._pool.url

    def server_version(self) -> str:
        """The server's version, like `18.4`. Raises when it can't be reached: the cheapest question there is."""
        found = self._one("SELECT current_setting('server_version') AS version")
        assert found is not None
        return str(found["version"]).split()[0]

    # ------------------------------------------------------------------------------------------------- people

    def add_person(self, name: str, role: Role = "participant", *, now: datetime | None = None) -> Person:
        """A new person. Invalid when the name is taken (in whatever case) or can't be one."""
        told = {"name": person_name(name), "role": role, "now": _moment(now)}
        try:
            found = self._one(
                f"INSERT INTO person (name, role, created_at) VALUES (%(name)s, %(role)s, %(now)s) RETURNING {_PERSON}",
                told,
            )
        except psycopg.errors.UniqueViolation:
            raise Invalid(f"there is already a person {told['name']!r}", hint="Choose another name.") from None
        assert found is not None
        return _person(found)

    def ensure_person(self, name: str, role: Role = "participant", *, now: datetime | None = None) -> Person:
        """The person of this name, made when there is none. An existing one keeps its role."""
        told = {"name": person_name(name), "role": role, "now": _moment(now)}
        self._do(
            "INSERT INTO person (name, role, created_at) VALUES (%(name)s, %(role)s, %(now)s)"
            " ON CONFLICT (lower(name)) DO NOTHING",
            told,
        )
        found = self.person(name)
        assert found is not None
        return found

    def person(self, name: str) -> Person | None:
        """Whoever has this name, in whatever case."""
        return _maybe_person(
            self._one(f"SELECT {_PERSON} FROM person WHERE lower(name) = lower(%(name)s)", {"name": name.strip()})
        )

    def person_by_id(self, person: PersonId) -> Person | None:
        return _maybe_person(self._one(f"SELECT {_PERSON} FROM person WHERE id = %(id)s", {"id": person}))

    def person_by_account(self, provider: str, account: str) -> Person | None:
        """Whoever linked this account of `discord` or `github`."""
        return _maybe_person(
            self._one(f"SELECT {_PERSON} FROM person WHERE {_account(provider)} = %(account)s", {"account": account})
        )

    def link_account(self, person: PersonId, provider: str, account: str) -> None:
        """Let this account stand for the person. Invalid when it stands for somebody else, or they have another."""
        column = _account(provider)
        try:
            found = self._one(
                f"UPDATE person SET {column} = %(account)s"
                f" WHERE id = %(id)s AND ({column} IS NULL OR {column} = %(account)s) RETURNING id",
                {"id": person, "account": account},
            )
        except psycopg.errors.UniqueViolation:
            raise Invalid(f"that {provider} account belongs to somebody else", hint="Ask a host.") from None
        if found is None:
            raise Invalid(f"this person already has another {provider} account", hint="Ask a host.")

    def people(self) -> list[Person]:
        return [_person(found) for found in self._all(f"SELECT {_PERSON} FROM person ORDER BY lower(name)")]

    def people_like(self, text: str, *, limit: int) -> list[Person]:
        """Whose names have this text in them, in whatever case; those that begin with it first."""
        told = {"text": text.lower(), "limit": limit}
        found = self._all(
            f"SELECT {_PERSON} FROM person WHERE strpos(lower(name), %(text)s) > 0"
            " ORDER BY strpos(lower(name), %(text)s), lower(name) LIMIT %(limit)s",
            told,
        )
        return [_person(one) for one in found]

    def set_role(self, person: PersonId, role: Role, *, by: str | None = None, now: datetime | None = None) -> Person:
        self._change(
            "person",
            "UPDATE person SET role = %(role)s WHERE id = %(id)s RETURNING id",
            {"id": person, "role": role},
            (by, "role", f"person:{person}", {"role": role}),
            now,
        )
        return self._known(person)

    def set_team(
        self, person: PersonId, team: str | None, *, by: str | None = None, now: datetime | None = None
    ) -> Person:
        """Which team they submit for from now on, or none. What they submitted stays with the team of then."""
        named = None if team is None else contest.team_name(team)
        self._change(
            "person",
            "UPDATE person SET team = %(team)s WHERE id = %(id)s RETURNING id",
            {"id": person, "team": named},
            (by, "team", f"person:{person}", {"team": named}),
            now,
        )
        return self._known(person)

    def ban(self, person: PersonId, reason: str = "", *, by: str | None = None, now: datetime | None = None) -> Person:
        """They may no longer submit, and leave every board until the ban is lifted."""
        self._change(
            "person",
            "UPDATE person SET banned_at = coalesce(banned_at, %(now)s), ban_reason = %(reason)s"
            " WHERE id = %(id)s RETURNING id",
            {"id": person, "reason": reason, "now": _moment(now)},
            (by, "ban", f"person:{person}", {"reason": reason}),
            now,
        )
        return self._known(person)

    def unban(self, person: PersonId, *, by: str | None = None, now: datetime | None = None) -> Person:
        self._change(
            "person",
            "UPDATE person SET banned_at = NULL, ban_reason = '' WHERE id = %(id)s RETURNING id",
            {"id": person},
            (by, "unban", f"person:{person}", {}),
            now,
        )
        return self._known(person)

    def _known(self, person: PersonId) -> Person:
        found = self.person_by_id(person)
        if found is None:
            raise NotFound("person", str(person))
        return found

    # ------------------------------------------------------------------------------------------------- tokens

    def issue_token(
        self,
        person: PersonId | None,
        *,
        kind: TokenKind = "cli",
        device: str = "",
        expires_at: datetime | None = None,
        now: datetime | None = None,
    ) -> str:
        """A new secret. It is told this once; the row keeps its hash. A pending token has nobody yet."""
        secret = secrets.token_urlsafe(32)
        self._do(
            "INSERT INTO token (hash, person_id, device, kind, created_at, expires_at)"
            " VALUES (%(hash)s, %(person)s, %(device)s, %(kind)s, %(now)s, %(expires_at)s)",
            {
                "hash": _hash(secret),
                "person": person,
                "device": device,
                "kind": kind,
                "now": _moment(now),
                "expires_at": expires_at,
            },
        )
        return secret

    def person_of_token(self, secret: str, *, now: datetime | None = None) -> Person | None:
        """Who holds this token, or None: unknown, revoked, expired or nobody's. Its use is noted once a minute."""
        told = {"hash": _hash(secret), "now": _moment(now)}
        found = self._one(
            f"""
            WITH held AS (
                SELECT id, person_id, used_at FROM token
                WHERE hash = %(hash)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(now)s)
            ), used AS (
                UPDATE token SET used_at = %(now)s FROM held
                WHERE token.id = held.id AND (held.used_at IS NULL OR held.used_at < %(now)s - interval '1 minute')
            )
            SELECT {", ".join(f"p.{name.strip()}" for name in _PERSON.split(","))}
            FROM held JOIN person p ON p.id = held.person_id
            """,
            told,
        )
        return _maybe_person(found)

    def claim_token(self, secret: str, person: PersonId, *, device: str = "", now: datetime | None = None) -> bool:
        """Give a pending token its person, once. False when it isn't pending, is used, expired or unknown."""
        found = self._one(
            "UPDATE token SET person_id = %(person)s, kind = 'cli', expires_at = NULL,"
            " device = CASE WHEN %(device)s = '' THEN device ELSE %(device)s END"
            " WHERE hash = %(hash)s AND kind = 'pending' AND person_id IS NULL AND revoked_at IS NULL"
            " AND (expires_at IS NULL OR expires_at > %(now)s) RETURNING id",
            {"hash": _hash(secret), "person": person, "device": device, "now": _moment(now)},
        )
        return found is not None

    def tokens(self, person: PersonId) -> list[Token]:
        found = self._all(f"SELECT {_TOKEN} FROM token WHERE person_id = %(id)s ORDER BY id", {"id": person})
        return [Token(**row) for row in found]

    def revoke_token(self, token: int, *, now: datetime | None = None) -> None:
        """End it. Twice is fine."""
        found = self._one(
            "UPDATE token SET revoked_at = coalesce(revoked_at, %(now)s) WHERE id = %(id)s RETURNING id",
            {"id": token, "now": _moment(now)},
        )
        if found is None:
            raise NotFound("token", str(token))

    def revoke_secret(self, secret: str, *, now: datetime | None = None) -> bool:
        """End the token that this secret is."""
        found = self._one(
            "UPDATE token SET revoked_at = %(now)s WHERE hash = %(hash)s AND revoked_at IS NULL RETURNING id",
            {"hash": _hash(secret), "now": _moment(now)},
        )
        return found is not None

    # ----------------------------------------------------------------------------------------------- problems

    def add_problem_version(self, problem: Problem, *, now: datetime | None = None) -> int:
        """The id of the version with this problem's digest, made when there is none. Versions never change."""
        with self._pool.transaction() as connection:
            return _version(connection, problem, _moment(now))

    def problems(self) -> list[ProblemVersion]:
        """Every version of every problem, by name and then oldest first."""
        found = self._all(
            "SELECT v.id, v.problem_id, p.name, v.digest, v.created_at"
            " FROM problem_version v JOIN problem p ON p.id = v.problem_id ORDER BY p.name, v.id"
        )
        return [ProblemVersion(**row) for row in found]

    def problem_of_version(self, version: int) -> Problem:
        return self._version(version)[1]

    def digest_of_version(self, version: int) -> str:
        """The digest that was recorded: what the harness must report, whatever newer code would compute."""
        return self._version(version)[0]

    def _version(self, version: int) -> tuple[str, Problem]:
        known = self._problems.get(version)
        if known is None:
            found = self._one("SELECT digest, content FROM problem_version WHERE id = %(id)s", {"id": version})
            if found is None:
                raise NotFound("problem version", str(version))
            known = (found["digest"], from_json(found["content"]))
            if len(self._problems) >= PROBLEMS_KEPT:
                self._problems.clear()
            self._problems[version] = known
        return known

    # ------------------------------------------------------------------------------------------------- boards

    def add_board(
        self,
        name: str,
        problem: Problem | None = None,
        *,
        problem_version_id: int | None = None,
        gpus: Sequence[str] = (),
        description: str | None = None,
        deadline_at: datetime | None = None,
        zone: str = "UTC",
        visibility: Visibility = "public",
        ranking: Ranking = "best",
        min_isolation: int = 0,
        confirm: bool = True,
        created_by: PersonId | None = None,
        now: datetime | None = None,
    ) -> Board:
        """A board on a problem, which becomes a version when it is new, or on a version that is there.

        `gpus` empty: the problem's own list. `confirm`: what would improve its author's rank is measured once more.
        """
        known = contest.board_name(name)
        if problem is None:
            if problem_version_id is None:
                raise Invalid(f"board {known} has no problem", hint="Name one.")
            problem = self.problem_of_version(problem_version_id)
        types = tuple(dict.fromkeys(contest.gpu_name(gpu) for gpu in (gpus or problem.gpus)))
        if not types:
            raise Invalid(f"board {known} has no GPU type", hint="Name at least one.")
        contest.zone(zone)
        at = _moment(now)
        with self._pool.transaction() as connection:
            version = _version(connection, problem, at) if problem_version_id is None else problem_version_id
            told = {
                "name": known,
                "description": problem.description if description is None else description,
                "version": version,
                "deadline_at": deadline_at,
                "zone": zone,
                "visibility": visibility,
                "gpus": list(types),
                "ranking": ranking,
                "seed": secrets.token_hex(16),
                "min_isolation": min_isolation,
                "confirm": confirm,
                "by": created_by,
                "now": at,
            }
            found = connection.execute(
                b"INSERT INTO leaderboard (name, description, problem_id, problem_version_id, deadline_at, zone,"
                b" visibility, gpus, ranking, secret_seed, min_isolation, confirm, created_by,"
                b" created_at)"
                b" SELECT %(name)s, %(description)s, problem_id, id, %(deadline_at)s, %(zone)s, %(visibility)s,"
                b" %(gpus)s, %(ranking)s, %(seed)s, %(min_isolation)s, %(confirm)s, %(by)s, %(now)s"
                b" FROM problem_version WHERE id = %(version)s"
                b" ON CONFLICT (lower(name)) WHERE deleted_at IS NULL DO NOTHING RETURNING id",
                told,
            ).fetchone()
            if found is None:
                raise Invalid(f"there is already a board {known!r}", hint="Pick another name, or delete that one.")
            _tell(connection, "board.created", f"board:{found['id']}", {"name": known, "by": created_by}, at)
        return self._held(known)

    def boards(self, *, public_only: bool = False, counted: bool = True) -> list[Board]:
        """Every board that isn't deleted, newest first."""
        wanted = " AND b.visibility = 'public'" if public_only else ""
        statement = _COUNTED if counted else _UNCOUNTED
        return [self._board(found) for found in self._all(f"{statement}{wanted} ORDER BY b.id DESC")]

    def board_names(self, *, public_only: bool = False) -> list[str]:
        wanted = " AND visibility = 'public'" if public_only else ""
        found = self._all(f"SELECT name FROM leaderboard WHERE deleted_at IS NULL{wanted} ORDER BY name")
        return [row["name"] for row in found]

    def board(self, name: str, *, counted: bool = True) -> Board | None:
        """The board of this name, in whatever case."""
        statement = _COUNTED if counted else _UNCOUNTED
        found = self._one(f"{statement} AND lower(b.name) = lower(%(name)s)", {"name": name.strip()})
        return None if found is None else self._board(found)

    def _held(self, name: str) -> Board:
        found = self.board(name)
        if found is None:
            raise NotFound("board", name, known=self.board_names(public_only=True))
        return found

    def _board(self, row: DictRow) -> Board:
        digest, problem = self._version(row["problem_version_id"])
        return Board(**{**row, "gpus": tuple(row["gpus"]), "problem": problem, "problem_digest": digest})

    def set_live(self, board: str, version: int, *, by: str | None = None, now: datetime | None = None) -> None:
        """Let the board rank by this version of its problem. Nothing is judged again by this alone."""
        held = self._held(board)
        found = self._change(
            "board",
            "UPDATE leaderboard b SET problem_version_id = v.id FROM problem_version v"
            " WHERE b.id = %(id)s AND v.id = %(version)s AND v.problem_id = b.problem_id RETURNING b.id",
            {"id": held.id, "version": version},
            (by, "set_live", f"board:{held.id}", {"from": held.problem_version_id, "to": version}),
            now,
            required=False,
        )
        if not found:
            raise NotFound(f"version of problem {held.problem_name}", str(version))

    def set_deadline(
        self,
        board: str,
        deadline_at: datetime | None,
        zone: str = "UTC",
        *,
        by: str | None = None,
        now: datetime | None = None,
    ) -> None:
        contest.zone(zone)
        held = self._held(board)
        said = None if deadline_at is None else deadline_at.isoformat()
        self._change(
            "board",
            "UPDATE leaderboard SET deadline_at = %(deadline_at)s, zone = %(zone)s WHERE id = %(id)s RETURNING id",
            {"id": held.id, "deadline_at": deadline_at, "zone": zone},
            (by, "deadline", f"board:{held.id}", {"deadline_at": said, "zone": zone}),
            now,
        )

    def set_visibility(
        self, board: str, visibility: Visibility, *, by: str | None = None, now: datetime | None = None
    ) -> None:
        held = self._held(board)
        self._change(
            "board",
            "UPDATE leaderboard SET visibility = %(visibility)s WHERE id = %(id)s RETURNING id",
            {"id": held.id, "visibility": visibility},
            (by, "visibility", f"board:{held.id}", {"visibility": visibility}),
            now,
        )

    def close_board(self, board: str, *, by: str | None = None, now: datetime | None = None) -> None:
        """No more submissions, except by staff; what is there stays."""
        held = self._held(board)
        self._change(
            "board",
            "UPDATE leaderboard SET closed_at = coalesce(closed_at, %(now)s) WHERE id = %(id)s RETURNING id",
            {"id": held.id, "now": _moment(now)},
            (by, "close", f"board:{held.id}", {}),
            now,
        )

    def delete_board(
        self,
        board: str,
        *,
        force: bool = False,
        only: int | None = None,
        by: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """Take it away; with submissions only by `force`. The rows stay, the name is free again. `only`: the id that
        it must have; a name may be another board's by now."""
        held = self._held(board)
        if only is not None and held.id != only:
            raise Invalid(
                f"board {held.name} is another one now: the one that was meant is gone, and this was made since",
                hint="Look at it before you delete it.",
            )
        if held.submissions and not force:
            raise Invalid(
                f"board {held.name} has {held.submissions} submissions", hint="Delete it by force, or close it."
            )
        self._change(
            "board",
            "UPDATE leaderboard SET deleted_at = %(now)s WHERE id = %(id)s AND deleted_at IS NULL RETURNING id",
            {"id": held.id, "now": _moment(now)},
            (by, "delete_board", f"board:{held.id}", {"name": held.name, "force": force}),
            now,
        )

    def scored(self, board: str, gpu: str | None = None) -> list[Entry]:
        """Every run that ranks on this board, best first: of the live version, not of banned people, not removed.

        On a board that ranks by `last` only each person's latest one per GPU type.
        """
        return self._scored(_SCORED, board, gpu)

    def best(self, board: str, gpu: str) -> list[Entry]:
        """Of the same the best of each person, in order: all that a standing is made of."""
        return self._scored(_BEST, board, gpu)

    def scored_of(self, board: str, gpu: str, people: Collection[PersonId]) -> list[Entry]:
        """The same of these people alone."""
        return self._scored(_SCORED_OF, board, gpu, people)

    def records(self, board: str, gpu: str) -> list[Entry]:
        """Of the same those that were better than all before them, oldest first."""
        return self._scored(_RECORDS, board, gpu)

    def _scored(self, statement: str, board: str, gpu: str | None, people: Collection[PersonId] = ()) -> list[Entry]:
        held = self._one(
            "SELECT id FROM leaderboard WHERE lower(name) = lower(%(name)s) AND deleted_at IS NULL",
            {"name": board.strip()},
        )
        if held is None:
            raise NotFound("board", board, known=self.board_names(public_only=True))
        told = {"board": held["id"], "gpu": gpu, "people": list(people)}
        return [Entry(**row) for row in self._all(statement, told)]

    # -------------------------------------------------------------------------------------------- submissions

    def submission(self, submission: SubmissionId) -> SubmissionView:
        """All of it: source, runs, attempts, verdicts with their reports."""
        found = self._one(_WHOLE, {"id": submission, "submissions": [submission]})
        if found is None:
            raise NotFound("submission", str(submission))
        attempts, runs = ([_timed(row) for row in found.pop(name) or ()] for name in ("attempts", "runs"))
        return _views([found], attempts, runs)[0]

    def submissions(
        self,
        *,
        person: PersonId | None = None,
        board: str | None = None,
        limit: int = 50,
        offset: int = 0,
        removed: bool = False,
    ) -> list[SubmissionView]:
        """The newest first, without sources and reports; of this person, of this board, or all."""
        told = {"person": person, "board": board, "limit": limit, "offset": offset}
        wanted = {
            "s.person_id = %(person)s": person is not None,
            # Looked up first, so that the index on (board_id, id) gives the newest without a look at the others.
            "s.board_id = (SELECT id FROM leaderboard WHERE lower(name) = lower(%(board)s) AND deleted_at IS NULL)": (
                board is not None
            ),
            "s.removed_at IS NULL": not removed,
        }
        where = " AND ".join(words for words, is_wanted in wanted.items() if is_wanted)
        found = self._all(
            _SUBMISSION.format(source="NULL::text AS source")
            + (f"WHERE {where}" if where else "")
            + " ORDER BY s.id DESC LIMIT %(limit)s OFFSET %(offset)s",
            told,
        )
        if not found:
            return []
        these = {"submissions": [row["id"] for row in found]}
        attempts = self._all(_ATTEMPTS, these)
        return _views(found, attempts, self._all(_RUNS.format(detail="NULL::jsonb"), these))

    # ----------------------------------------------------------------------------------------- settings, state

    def setting(self, key: str, default: Any = None) -> Any:
        found = self._one(sql.SETTING, {"key": key})
        return default if found is None else found["value"]

    def put_setting(self, key: str, value: Any) -> None:
        self._do(sql.PUT_SETTING, {"key": key, "value": Jsonb(value)})

    def accepts_jobs(self) -> bool:
        return self.setting("accepts_jobs", default=True) is not False

    def set_accepts_jobs(self, accepting: bool, *, by: str | None = None, now: datetime | None = None) -> None:
        """Pause or resume intake. When a pause returns, nothing is being accepted any more."""
        with self._pool.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": sql.INTAKE_LOCK})
            connection.execute(sql.PUT_SETTING.encode(), {"key": "accepts_jobs", "value": Jsonb(accepting)})
            if by is not None:
                act = "resume" if accepting else "pause"
                _tell(connection, f"staff.{act}", "intake", {"by": by}, _moment(now))

    def queue_view(self) -> list[QueueLine]:
        """The open runs by GPU type."""
        found = self._all(
            "SELECT gpu, count(*) FILTER (WHERE state = 'queued') AS queued,"
            " count(*) FILTER (WHERE state = 'launching') AS launching,"
            " count(*) FILTER (WHERE state = 'running') AS running,"
            " min(queued_at) FILTER (WHERE state = 'queued') AS oldest_at"
            " FROM run WHERE state IN ('queued', 'launching', 'running') GROUP BY gpu ORDER BY gpu"
        )
        return [QueueLine(**row) for row in found]

    def wants(self) -> list[Want]:
        """What the queued runs that may be claimed want of a place."""
        found = self._all(
            "SELECT run.gpu, v.ranks AS gpus, run.by_staff, count(*) AS runs"
            " FROM run JOIN problem_version v ON v.id = run.problem_version_id"
            " WHERE run.state = 'queued' AND NOT run.held GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [Want(**row) for row in found]

    def waits(self) -> list[Waiting]:
        """Why attempts that were submitted haven't begun."""
        found = self._all(
            "SELECT backend, gpu, telemetry ->> 'waits' AS reason, count(*) AS attempts FROM attempt"
            " WHERE state = 'submitted' AND telemetry ->> 'waits' <> '' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [Waiting(**row) for row in found]

    def lease_view(self) -> list[LeaseLine]:
        return [LeaseLine(**row) for row in self._all(sql.LEASES)]

    def attention(self, *, now: datetime | None = None) -> list[Attention]:
        """What a host should look at, oldest first."""
        return [
            Attention(**row)
            for row in self._all(_ATTENTION, {"now": _moment(now), "old": OLD_IN_QUEUE, "unsent": OLD_UNSENT})
        ]

    def audit(
        self, by: str, act: str, subject: str, data: Mapping[str, Any] | None = None, *, now: datetime | None = None
    ) -> None:
        """Keep what a host did, as the event `staff.<act>`."""
        with self._pool.transaction() as connection:
            _tell(connection, f"staff.{act}", subject, {**(data or {}), "by": by}, _moment(now))

    # ------------------------------------------------------------------------------------------------- within

    def _one(self, statement: str, told: Mapping[str, Any] | None = None) -> DictRow | None:
        with self._pool.statement() as connection:
            return connection.execute(statement.encode(), told).fetchone()

    def _all(self, statement: str, told: Mapping[str, Any] | None = None) -> list[DictRow]:
        with self._pool.statement() as connection:
            return connection.execute(statement.encode(), told).fetchall()

    def _do(self, statement: str, told: Mapping[str, Any] | None = None) -> None:
        with self._pool.statement() as connection:
            connection.execute(statement.encode(), told)

    def _change(
        self,
        what: str,
        statement: str,
        told: Mapping[str, Any],
        act: tuple[str | None, str, str, Mapping[str, Any]],
        now: datetime | None,
        *,
        required: bool = True,
    ) -> bool:
        """One host's act on one row, kept as an event where `by` is told. NotFound when there is no such row."""
        by, name, subject, data = act
        with self._pool.transaction() as connection:
            if connection.execute(statement.encode(), told).fetchone() is None:
                if required:
                    raise NotFound(what, str(told["id"]))
                return False
            if by is not None:
                _tell(connection, f"staff.{name}", subject, {**data, "by": by}, _moment(now))
        return True


def person_name(text: str) -> str:
    """The name as it is kept, or Invalid."""
    name = " ".join(text.split())
    if not name or len(name) > NAME_CAP or not name.isprintable():
        raise Invalid(f"{text[:80]!r} can't be a person's name", hint=f"1 to {NAME_CAP} letters that can be printed.")
    return name


def _version(connection: Connection, problem: Problem, now: datetime) -> int:
    told = {"name": problem.name, "digest": problem.digest, "content": Jsonb(as_json(problem)),
            "ranks": problem.world_size, "paired": problem.baseline is not None, "now": now}  # fmt: skip
    connection.execute("INSERT INTO problem (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING", told)
    connection.execute(
        "INSERT INTO problem_version (problem_id, digest, content, ranks, paired, created_at)"
        " SELECT id, %(digest)s, %(content)s, %(ranks)s, %(paired)s, %(now)s FROM problem WHERE name = %(name)s"
        " ON CONFLICT (problem_id, digest) DO NOTHING",
        told,
    )
    found = connection.execute(
        "SELECT v.id FROM problem_version v JOIN problem p ON p.id = v.problem_id"
        " WHERE p.name = %(name)s AND v.digest = %(digest)s",
        told,
    ).fetchone()
    assert found is not None
    return int(found["id"])


def _tell(connection: Connection, kind: str, subject: str, data: Mapping[str, Any], now: datetime) -> None:
    connection.execute(sql.EVENT.encode(), {"kind": kind, "subject": subject, "data": Jsonb(dict(data)), "now": now})


def _moment(now: datetime | None) -> datetime:
    return now or datetime.now(UTC)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _account(provider: str) -> str:
    columns = {"discord": "discord_id", "github": "github_id"}
    if provider not in columns:
        raise NotFound("account provider", provider, known=list(columns))
    return columns[provider]


def _person(row: DictRow) -> Person:
    return Person(**row)


def _maybe_person(row: DictRow | None) -> Person | None:
    return None if row is None else Person(**row)


def _views(found: Sequence[DictRow], attempts: Sequence[DictRow], runs: Sequence[DictRow]) -> list[SubmissionView]:
    tries: dict[int, list[AttemptView]] = {}
    for row in attempts:
        tries.setdefault(row.pop("run_id"), []).append(AttemptView(**row))
    ran: dict[int, list[RunView]] = {}
    for row in runs:
        ran.setdefault(row["submission_id"], []).append(_run(row, tries.get(row["id"], ())))
    return [SubmissionView(**row, runs=tuple(ran.get(row["id"], ()))) for row in found]


def _timed(row: DictRow) -> DictRow:
    """A row that came as JSON, with its moments."""
    return {
        name: datetime.fromisoformat(value) if name.endswith("_at") and value is not None else value
        for name, value in row.items()
    }


def _run(row: DictRow, attempts: Iterable[AttemptView]) -> RunView:
    verdict = None
    if row["verdict"] is not None:
        verdict = Verdict(
            name=row["verdict"],
            reason=row["verdict_reason"],
            score_s=row["score_s"],
            low_s=row["low_s"],
            high_s=row["high_s"],
            isolation=row["isolation"],
            ranked=row["ranked"],
            detail=row["detail"],
        )
    return RunView(
        id=RunId(row["id"]),
        gpu=row["gpu"],
        state=RunState(row["state"]),
        problem_version_id=row["problem_version_id"],
        attempt_count=row["attempts"],
        queued_at=row["queued_at"],
        fair_at=row["fair_at"],
        cancel_at=row["cancel_at"],
        ended_at=row["ended_at"],
        reason=row["reason"],
        verdict=verdict,
        verdict_at=row["verdict_at"],
        second=row["second"],
        held=row["held"],
        first_score_s=row["first_score_s"],
        attempts=tuple(attempts),
    )
