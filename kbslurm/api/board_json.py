"""A board as JSON, with what a competitor may know about its problem."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kbslurm.api.context import Context
from kbslurm.domain import access, contest, lateness, measure
from kbslurm.domain.access import NamesShown, StandingsShown
from kbslurm.domain.source import for_board
from kbslurm.store.views import Board

STANDINGS: Mapping[StandingsShown, str] = {
    "shown": "",
    "own": "The standings are hidden until the hosts show them. You can see your own place.",
    "hidden": "The standings are hidden until the hosts show them.",
}
NAMES: Mapping[NamesShown, str] = {
    "real": "",
    "nicknames": "People may have nicknames here. Hosts see who is who.",
    "anonymous": "People have pseudonyms here. Hosts see who is who.",
}


def board_told(context: Context, board: Board) -> dict[str, Any]:
    now = context.clock.now()
    calibrations, paired = context.store.calibrations.of_board(board), board.problem.baseline is not None
    return {
        "id": board.id,
        "name": board.name,
        "description": board.description,
        "task": task(board),
        "deadline": board.deadline_at.isoformat() if board.deadline_at else None,
        "gpu_types": list(board.gpus),
        "visibility": board.visibility,
        "zone": board.zone,
        "is_open": is_open(board, now),
        "late_until": board.late.until.isoformat() if board.late.until else None,
        "late": lateness.in_words(board.late, board.zone),
        "frozen_at": board.frozen_at.isoformat() if board.frozen_at else None,
        "finalised_at": board.finalised_at.isoformat() if board.finalised_at else None,
        "teams_only": board.teams_only,
        "practice": board.practice,
        "names": board.names,
        "standings": board.standings,
        "publishes_reference": board.publishes_reference,
        "paired": paired,
        "calibration": {gpu: one.state for gpu, one in calibrations.items()},
        "remarks": remarks(board, now),
        "notes": {gpu: measure.sentence(gpu, calibrations, paired=paired) for gpu in board.gpus},
    }


def is_open(board: Board, now: datetime) -> bool:
    """Whether it accepts submissions now, late ones and those for practice included."""
    return board.closed_at is None and (board.practice or not is_over(board, now))


def is_over(board: Board, now: datetime) -> bool:
    """Whether it accepts nothing any more that counts, unless somebody has an extension."""
    return contest.closed(lateness.accepted_until(board.deadline_at, board.late.until), now)


def remarks(board: Board, now: datetime) -> list[str]:
    """What anybody should know about a board's times beside its deadline, and about what it shows, in sentences."""
    said = ["Only teams take part here: ask a host to put you into one."] if board.teams_only else []
    said += [text for text in (STANDINGS[board.standings], NAMES[board.names]) if text]
    if board.finalised_at is not None:
        said.append(f"These standings are final since {contest.at_home(board.finalised_at, board.zone)}.")
    if board.frozen_at is not None and access.is_frozen(board.frozen_at, now):
        since = contest.at_home(board.frozen_at, board.zone)
        said.append(
            f"The standings are frozen: they show what was submitted until {since}. You see your own results as always."
        )
    elif board.frozen_at is not None:
        said.append(f"The standings will be frozen at {contest.at_home(board.frozen_at, board.zone)}.")
    if board.practice and board.closed_at is None and is_over(board, now):
        said.append("It is over: what is submitted now is practice, and counts neither in standings nor for grades.")
    if lateness.still_late(board.late, board.deadline_at, now):
        said.append(f"The deadline has passed; {lateness.in_words(board.late, board.zone)}. They don't rank.")
    elif board.late.until is not None and not contest.closed(board.late.until, now):
        said.append(f"After the deadline: {lateness.in_words(board.late, board.zone)}. They don't rank.")
    return said


def task(board: Board) -> dict[str, Any]:
    """The problem as far as a competitor may know it: public cases, limits, templates. No reference."""
    problem = board.problem
    return {
        "name": board.problem_name,
        "lang": problem.lang,
        "modes": list(problem.modes),
        "tests": [dict(case) for case in problem.tests],
        "benchmarks": [dict(case) for case in problem.benchmarks],
        "test_timeout": problem.limits.test_s,
        "benchmark_timeout": problem.limits.benchmark_s,
        "ranked_timeout": problem.limits.ranked_s,
        "ranking_by": problem.ranking_by,
        "multi_gpu": problem.multi_gpu,
        "templates": {name: for_board(text, board.name) for name, text in problem.templates.items()},
    }
