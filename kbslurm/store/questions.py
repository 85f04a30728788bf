"""Questions at boards and submissions, appeals, and their answers.

No event has a text in it: events stay, while the texts of a person who is deleted are erased.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain import access, questions
from kbslurm.domain.questions import State
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.errors import Banned, Invalid, NotFound, Refused
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.people import PERSON, maybe_person
from kbslurm.store.rows import Rows, note_event, or_now, row_of
from kbslurm.store.views import Person

_QUESTION = """
SELECT q.id, q.board_id, b.name AS board, q.person_id, p.name AS person, q.submission_id, q.appeal, q.text, q.asked_at,
    q.state, q.answer, q.to_all, q.answered_by, q.answered_at, q.rejudging_id, j.state AS rejudge, q.outcome
FROM question q JOIN leaderboard b ON b.id = q.board_id JOIN person p ON p.id = q.person_id
LEFT JOIN rejudging j ON j.id = q.rejudging_id
"""

_BOARD = """
SELECT b.id, b.name, b.visibility FROM leaderboard b
WHERE lower(b.name) = lower(%(board)s) AND b.deleted_at IS NULL
"""

_INVITED = """
SELECT 1 AS found WHERE EXISTS (SELECT 1 FROM invite i JOIN invite_board ib ON ib.invite_id = i.id
        WHERE i.person_id = %(person)s AND i.revoked_at IS NULL AND ib.board_id = %(board)s)
    OR EXISTS (SELECT 1 FROM roster r JOIN leaderboard b ON b.course = r.course
        WHERE b.id = %(board)s AND r.person_id = %(person)s)
    OR EXISTS (SELECT 1 FROM board_role h WHERE h.person_id = %(person)s AND h.board_id = %(board)s)
"""

_SUBMISSION = """
SELECT s.person_id, coalesce(s.removed_at, b.deleted_at) AS removed_at, b.id AS board_id, b.name AS board,
    NOT EXISTS (SELECT 1 FROM run r WHERE r.submission_id = s.id AND r.counts AND r.ended_at IS NULL) AS is_done,
    (SELECT q.id FROM question q WHERE q.submission_id = s.id AND q.appeal AND q.state = 'open') AS appeal
FROM submission s JOIN leaderboard b ON b.id = s.board_id WHERE s.id = %(submission)s
"""

_ASKED = """
SELECT ARRAY(SELECT q.asked_at FROM question q WHERE q.person_id = %(person)s AND q.asked_at > %(since)s) AS recent_at,
    (SELECT count(*) FROM question q WHERE q.person_id = %(person)s AND q.state = 'open') AS open
"""

_ASK = """
INSERT INTO question (board_id, person_id, submission_id, appeal, text, asked_at)
VALUES (%(board)s, %(person)s, %(submission)s, %(appeal)s, %(text)s, %(now)s) RETURNING id
"""

_ANSWER = """
UPDATE question SET state = 'answered', answer = %(answer)s, to_all = %(to_all)s, answered_by = %(by)s,
    answered_at = %(now)s
WHERE id = %(id)s
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with its answer. `rejudge`: the state of the rejudge that decides on an appeal; `outcome`: what that
    changed, once it was applied, by GPU type."""

    id: int
    board_id: int
    board: str
    person_id: PersonId
    person: str
    submission_id: SubmissionId | None
    appeal: bool
    text: str
    asked_at: datetime
    state: State
    answer: str
    to_all: bool
    answered_by: str | None
    answered_at: datetime | None
    rejudging_id: int | None
    rejudge: str | None
    outcome: list[Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """An answer to everyone on a board; not what was asked, nor by whom."""

    id: int
    text: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class _About:
    """The submission that a question is about."""

    person_id: PersonId
    removed_at: datetime | None
    board_id: int
    board: str
    is_done: bool
    appeal: int | None


class Questions(Rows):
    """Questions and answers."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def ask(
        self,
        person: PersonId,
        text: str,
        *,
        board: str | None = None,
        submission: int | None = None,
        appeal: bool = False,
        now: datetime | None = None,
    ) -> Question:
        """Keep a question at a board that its author may see, or at a submission of theirs."""
        at, said = or_now(now), questions.checked_text(text)
        with self._pool.transaction() as connection:
            author = _author(connection, person)
            if submission is not None:
                about = _own(connection, author, submission)
                known = questions.Asking(is_done=about.is_done, appeal=about.appeal)
                board_id, name = about.board_id, about.board
                if board is not None and board.strip().lower() != name.lower():
                    raise Invalid(
                        f"submission {submission} was made to {name}, not to {board.strip()}",
                        hint="Leave the board out.",
                    )
            elif board is not None:
                known, (board_id, name) = questions.Asking(), _seen(connection, author, board)
            else:
                raise Invalid("it isn't clear what the question is about", hint="Name a board or a submission.")
            asked = row_of(connection, _ASKED, {"person": person, "since": at - questions.WINDOW})
            assert asked is not None
            known = questions.Asking(**{**vars(known), **asked})
            questions.check_may_ask(known, submission, appeal=appeal, staff=author.is_staff, now=at)
            told = {"board": board_id, "person": person, "submission": submission, "appeal": appeal, "text": said}
            made = row_of(connection, _ASK, {**told, "now": at})
            assert made is not None
            data = {"board": name, "person": person, "submission": submission, "appeal": appeal}
            note_event(connection, "question.asked", f"question:{made['id']}", data, at)
        return self.get(made["id"])

    def get(self, number: int) -> Question:
        """One question, or NotFound."""
        found = self._one(f"{_QUESTION} WHERE q.id = %(id)s AND b.deleted_at IS NULL", {"id": number})
        if found is None:
            raise NotFound("question", str(number))
        return Question(**found)

    def of_person(self, person: PersonId, *, limit: int = 50, offset: int = 0) -> list[Question]:
        """What this person asked, newest first."""
        told = {"person": person, "limit": limit, "offset": offset}
        where = "WHERE q.person_id = %(person)s ORDER BY q.id DESC LIMIT %(limit)s OFFSET %(offset)s"
        return [Question(**row) for row in self._all(f"{_QUESTION} {where}", told)]

    def find(
        self, boards: Collection[int] | None = None, *, state: State | None = None, limit: int = 50, offset: int = 0
    ) -> list[Question]:
        """The questions at these boards, or at all; the oldest open ones first, then the newest others."""
        told: dict[str, Any] = {"state": state, "limit": limit, "offset": offset}
        told |= {"boards": None if boards is None else list(boards)}
        found = self._all(
            f"{_QUESTION} WHERE b.deleted_at IS NULL AND (%(boards)s::bigint[] IS NULL OR q.board_id = ANY(%(boards)s))"
            " AND (%(state)s::text IS NULL OR q.state = %(state)s)"
            " ORDER BY q.state <> 'open', CASE WHEN q.state = 'open' THEN q.id ELSE -q.id END"
            " LIMIT %(limit)s OFFSET %(offset)s",
            told,
        )
        return [Question(**row) for row in found]

    def open(self, boards: Collection[int] | None = None) -> int:
        """How many wait for an answer."""
        found = self._one(
            "SELECT count(*) AS n FROM question q JOIN leaderboard b ON b.id = q.board_id WHERE b.deleted_at IS NULL"
            " AND q.state = 'open' AND (%(boards)s::bigint[] IS NULL OR q.board_id = ANY(%(boards)s))",
            {"boards": None if boards is None else list(boards)},
        )
        assert found is not None
        return int(found["n"])

    def announcements(self, board: int, *, most: int | None = None) -> list[Announcement]:
        """The answers to everyone on this board, newest first; at most so many."""
        found = self._all(
            "SELECT id, answer AS text, answered_at AS at FROM question"
            " WHERE board_id = %(board)s AND to_all AND state = 'answered' ORDER BY answered_at DESC, id DESC"
            " LIMIT %(most)s",
            {"board": board, "most": most},
        )
        return [Announcement(**row) for row in found]

    def answer(
        self, number: int, text: str, *, to_all: bool, again: bool, by: str, now: datetime | None = None
    ) -> Question:
        """Answer it, to its author alone or to everyone on its board. Refused if it has an answer already, unless
        `again`, which replaces it."""
        at, said = or_now(now), questions.checked_text(text, "answer")
        with self._pool.transaction() as connection:
            known = _locked(connection, number)
            if not known["text"]:
                raise Refused(f"who asked question {number} has been deleted, and the question with them")
            if known["answered_at"] is not None and not again:
                raise Refused(
                    f"question {number} has been answered by {known['answered_by']} already",
                    hint="See it: kbslurm question show. To replace that answer: --again.",
                )
            told = {"id": number, "answer": said, "to_all": to_all, "by": by, "now": at}
            connection.execute(_ANSWER.encode(), told)
            data = {"board": known["board"], "to_all": to_all, "again": known["answered_at"] is not None, "by": by}
            note_event(connection, "staff.question.answer", f"question:{number}", data, at)
            if to_all or known["to_all"]:
                note_event(connection, "board.announced", f"board:{known['board_id']}", {"question": number}, at)
        return self.get(number)

    def close(self, number: int, *, by: str, now: datetime | None = None) -> Question:
        """End an open question without an answer."""
        at = or_now(now)
        with self._pool.transaction() as connection:
            known = _locked(connection, number)
            if known["state"] != "open":
                raise Invalid(f"question {number} is {known['state']} already")
            connection.execute(b"UPDATE question SET state = 'closed' WHERE id = %(id)s", {"id": number})
            data = {"board": known["board"], "by": by}
            note_event(connection, "staff.question.close", f"question:{number}", data, at)
        return self.get(number)


def _author(connection: Connection, person: PersonId) -> Person:
    """Whoever asks, locked: their questions are counted one after the other."""
    statement = f"SELECT {PERSON} FROM person WHERE id = %(id)s FOR NO KEY UPDATE"
    found = maybe_person(row_of(connection, statement, {"id": person}))
    if found is None:
        raise NotFound("person", str(person))
    if not access.may_sign_in(found):
        raise Banned(f"{found.name} is banned{f': {found.ban_reason}' if found.ban_reason else ''}")
    return found


def _seen(connection: Connection, author: Person, board: str) -> tuple[int, str]:
    """The board, or NotFound, which looks the same for one that they may not see."""
    found = row_of(connection, _BOARD, {"board": board.strip()})
    if found is None:
        raise NotFound("board", board)
    asks = not access.is_for_everybody(found["visibility"])
    invited = asks and row_of(connection, _INVITED, {"person": author.id, "board": found["id"]}) is not None
    if not access.may_see_board(found["visibility"], invited=invited, staff=author.is_staff):
        raise NotFound("board", board)
    return found["id"], found["name"]


def _own(connection: Connection, author: Person, submission: int) -> _About:
    """The submission, which only its author may ask about."""
    found = row_of(connection, _SUBMISSION, {"submission": submission})
    about = None if found is None else _About(**found)
    if about is not None and access.may_see_submission(author, about):
        return about
    if about is None or about.removed_at is not None:
        raise NotFound("submission", str(submission))
    raise Refused(f"submission {submission} isn't yours", hint="Ask about a board, or one of your own submissions.")


def _locked(connection: Connection, number: int) -> Mapping[str, Any]:
    """A question that somebody is about to change."""
    found = row_of(
        connection,
        "SELECT q.*, b.name AS board FROM question q JOIN leaderboard b ON b.id = q.board_id"
        " WHERE q.id = %(id)s AND b.deleted_at IS NULL FOR UPDATE OF q",
        {"id": number},
    )
    if found is None:
        raise NotFound("question", str(number))
    return found
