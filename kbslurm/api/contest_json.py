"""A board as the CLICS Contest API, 2026-01, words it: contest, problems, teams, submissions, judgements."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from kbslurm.contract.contests import (
    ContestLanguage,
    ContestProblem,
    ContestState,
    ContestSubmission,
    ContestTeam,
    ContestTold,
    Judgement,
    JudgementType,
)
from kbslurm.domain import access, contest
from kbslurm.domain.problem import Lang
from kbslurm.store.contests import Entered
from kbslurm.store.views import Board
from kbslurm_eval.shared.wire import VerdictName

WITHOUT_END = timedelta(days=36500)
NONE = timedelta()
ACCEPTED, REJECTED, NOT_JUDGED = "AC", "RE", "JE"
TYPES: Mapping[VerdictName, str] = {
    "passed": ACCEPTED,
    "wrong": "WA",
    "error": "RTE",
    "timeout": "TLE",
    "memory": "MLE",
    "violation": "SV",
    "infrastructure": NOT_JUDGED,
}
LANGUAGES: Mapping[Lang, dict[str, Any]] = {
    "py": {"id": "python3", "name": "Python 3", "entry_point_required": False, "extensions": ["py"]},
    "cu": {"id": "cuda", "name": "CUDA C++", "entry_point_required": False, "extensions": ["cu"]},
}
SHAPES: Mapping[str, type[BaseModel]] = {
    "contest": ContestTold,
    "judgement-types": JudgementType,
    "languages": ContestLanguage,
    "problems": ContestProblem,
    "teams": ContestTeam,
    "submissions": ContestSubmission,
    "judgements": Judgement,
    "state": ContestState,
}
_ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_ID_CAP, _GPU_CAP = 36, 16


def contest_id(board: Board) -> str:
    """The board's name, or its number where that is no ID of this API."""
    return board.name if _fits(board.name, _ID_CAP) else f"_{board.id}"


def problem_id(gpu: str) -> str:
    """The GPU type, or a name for it where that is no ID of this API."""
    return gpu if _fits(gpu, _GPU_CAP) else f"_{hashlib.sha256(gpu.encode()).hexdigest()[:12]}"


def team_id(board: Board, side: str) -> str:
    """An ID that says nothing of whose it is, not even that somebody on another board is the same."""
    return hmac.new(board.secret_seed.encode(), f"contest team {side}".encode(), hashlib.sha256).hexdigest()[:16]


def _fits(text: str, most: int) -> bool:
    return len(text) <= most and _ID.fullmatch(text) is not None


def contest_told(board: Board) -> dict[str, Any]:
    end = _end(board)
    freeze = None if board.frozen_at is None or end is None else max(end - board.frozen_at, NONE)
    return {
        "id": contest_id(board),
        "name": board.name,
        "formal_name": board.description or board.name,
        "start_time": _time(board.created_at),
        "duration": _span(WITHOUT_END if end is None else max(end - board.created_at, NONE)),
        "scoreboard_freeze_duration": None if freeze is None else _span(freeze),
        "scoreboard_type": "pass-fail",
        "penalty_time": _span(NONE),
    }


def state_told(board: Board, now: datetime) -> dict[str, Any]:
    """What the board shows of its own times. Once standings are shown again nothing tells of the freeze."""
    end = _end(board)
    ended = end if contest.closed(end, now) else None
    frozen = board.frozen_at if access.is_frozen(board.frozen_at, now) else None
    finalized = board.finalised_at if ended else None
    return {
        "started": _time(board.created_at),
        "frozen": _time_or_none(frozen),
        "ended": _time_or_none(ended),
        "thawed": None,
        "finalized": _time_or_none(finalized),
        "end_of_updates": None if frozen else _time_or_none(finalized),
    }


def problems_told(board: Board) -> list[dict[str, Any]]:
    cases = len(board.problem.tests) + len(board.problem.benchmarks)
    return [
        {
            "id": problem_id(gpu),
            "label": gpu,
            "name": f"{board.problem_name} on {gpu}",
            "ordinal": n,
            "test_data_count": cases,
        }
        for n, gpu in enumerate(board.gpus, 1)
    ]


def languages_told(board: Board) -> list[dict[str, Any]]:
    return [LANGUAGES[board.problem.lang]]


def judgement_types_told() -> list[dict[str, Any]]:
    names = {code: name for name, code in TYPES.items()} | {REJECTED: "rejected"}
    return [
        {
            "id": code,
            "name": name,
            "penalty": False,
            "solved": code == ACCEPTED,
            "simplified_judgement_type_id": _simplified(code),
        }
        for code, name in names.items()
    ]


def team_told(board: Board, side: str, name: str) -> dict[str, Any]:
    return {"id": team_id(board, side), "name": name, "label": name}


def submission_told(board: Board, entered: Entered) -> dict[str, Any]:
    return {
        "id": submission_id(entered),
        "language_id": LANGUAGES[board.problem.lang]["id"],
        "problem_id": problem_id(entered.gpu),
        "team_id": team_id(board, entered.side),
        "time": _time(entered.at),
        "contest_time": _span(entered.at - board.created_at),
        "files": [],
    }


def submission_id(entered: Entered) -> str:
    return f"{entered.submission_id}-{problem_id(entered.gpu)}"


def judgement_told(board: Board, entered: Entered, *, in_full: bool) -> dict[str, Any] | None:
    """The verdict, if there is one. `in_full`: how it failed, not only that it did."""
    if entered.verdict is None or entered.judged_at is None:
        return None
    code = TYPES[entered.verdict]
    began_at = min(entered.began_at, entered.judged_at)
    has_interval = entered.score_s is not None and entered.low_s is not None and entered.high_s is not None
    return {
        "id": submission_id(entered),
        "submission_id": submission_id(entered),
        "judgement_type_id": code if in_full else _simplified(code),
        "start_time": _time(began_at),
        "start_contest_time": _span(began_at - board.created_at),
        "end_time": _time(entered.judged_at),
        "end_contest_time": _span(entered.judged_at - board.created_at),
        "kbslurm_score_s": entered.score_s,
        "kbslurm_interval_s": [entered.low_s, entered.high_s] if has_interval else None,
    }


def access_told() -> dict[str, Any]:
    """The same for everybody: what they aren't told is left out or null."""
    return {
        "capabilities": [],
        "endpoints": [{"type": name, "properties": list(shape.model_fields)} for name, shape in SHAPES.items()],
    }


def _simplified(code: str) -> str:
    return code if code in (ACCEPTED, NOT_JUDGED) else REJECTED


def _end(board: Board) -> datetime | None:
    return min((at for at in (board.deadline_at, board.closed_at) if at is not None), default=None)


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _time_or_none(at: datetime | None) -> str | None:
    return None if at is None else _time(at)


def _span(length: timedelta) -> str:
    thousandths = round(length / timedelta(milliseconds=1))
    seconds, part = divmod(abs(thousandths), 1000)
    minutes, hours = seconds // 60, seconds // 3600
    return f"{'-' if thousandths < 0 else ''}{hours}:{minutes % 60:02}:{seconds % 60:02}.{part:03}"
