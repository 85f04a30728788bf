"""Published code: of whom, on which board, under which licence. `domain.access.may_read_code` is the one rule; every
outlet of others' code but the hosts' asks here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbslurm.domain import access, contest
from kbslurm.domain.board import Ranking
from kbslurm.domain.run import PersonId
from kbslurm.domain.source import files_of
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from kbslurm.domain.board import Standing
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.publishing import CodePolicy
    from kbslurm.store.views import Board


def rule_told(store: PostgresStore, board: Board, person: PersonId | None, now: datetime) -> dict[str, Any]:
    """What holds on this board, and whether this person agreed."""
    policy = store.publishing.of_board(board.id)
    return {
        "leaderboard": board.name,
        "rule": policy.rule,
        "licence": policy.licence,
        "in_words": in_words(policy, board, now),
        "is_over": access.is_past(policy.over_at, now),
        "consents": person in policy.consents,
    }


def in_words(policy: CodePolicy, board: Board, now: datetime) -> str:
    """The rule as a sentence for everybody."""
    licence = f" under the licence {policy.licence}" if policy.licence else ""
    if policy.rule == "never":
        return "Code on this board isn't published."
    if not access.may_be_handed_on(board.names, board.standings):
        return "Code on this board isn't published as long as names or standings are hidden."
    if policy.over_at is None:
        begins = "once a host has closed the board"
    elif access.is_past(policy.over_at, now):
        begins = "now that the board is over"
    else:
        begins = f"after {contest.at_home(policy.over_at, board.zone)}"
    if policy.rule == "consent":
        return f"Of everybody who agrees, the code that ranks is published{licence}, {begins}."
    return f"Everybody's code that ranks is published{licence}, {begins}."


def published(store: PostgresStore, board: Board, gpu: str, now: datetime) -> list[Standing]:
    """The places of the standings that everybody sees whose code is published, in order."""
    if not access.may_be_handed_on(board.names, board.standings):
        return []
    policy = store.publishing.of_board(board.id)
    return [row for row in Ranking(store.standings.best(board.name, gpu)) if is_published(policy, board, row, now)]


def is_published(policy: CodePolicy, board: Board, row: Standing, now: datetime) -> bool:
    """Whether the code at this place of the standings that everybody sees is published."""
    return access.may_be_handed_on(board.names, board.standings) and access.may_read_code(
        policy.rule,
        is_over=access.is_past(policy.over_at, now),
        has_agreed=row.entry.person_id in policy.consents,
        announced_at=policy.since,
        accepted_at=row.entry.at,
        frozen_at=board.frozen_at,
    )


def list_told(store: PostgresStore, board: Board, gpu: str, person: PersonId | None, now: datetime) -> dict[str, Any]:
    """The rule, and whose code is published."""
    known = contest.known_gpu(gpu, board.gpus)
    return {
        **rule_told(store, board, person, now),
        "gpu": known,
        "published": [
            {
                "rank": row.rank,
                "person": row.entry.person,
                "submission": row.entry.submission_id,
                "score_s": row.entry.score_s,
            }
            for row in published(store, board, known, now)
        ],
    }


def code_told(store: PostgresStore, board: Board, gpu: str, submission: int, now: datetime) -> Mapping[str, Any]:
    """A published submission's files; NotFound looks the same for one that there isn't and one that isn't published.
    What its author called the file isn't told: it may name them."""
    known = contest.known_gpu(gpu, board.gpus)
    row = next((one for one in published(store, board, known, now) if one.entry.submission_id == submission), None)
    name, text = store.sources.text(submission) if row is not None else ("", "")
    if row is None or not text:
        raise NotFound("published code of submission", str(submission))
    files = files_of(name, text)
    shown = {f"submission.{name.rpartition('.')[2]}": text} if len(files) == 1 and name in files else files
    return {
        "leaderboard": board.name,
        "gpu": known,
        "licence": store.publishing.of_board(board.id).licence,
        "person": row.entry.person,
        "submission": submission,
        "files": [{"name": path, "text": content} for path, content in shown.items()],
    }
