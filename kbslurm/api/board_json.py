"""A board as JSON, with what a competitor may know about its problem."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kbslurm.api.context import Context
from kbslurm.domain import contest, measure
from kbslurm.domain.source import for_board
from kbslurm.store.views import Board


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
        "paired": paired,
        "calibration": {gpu: one.state for gpu, one in calibrations.items()},
        "notes": {gpu: measure.sentence(gpu, calibrations, paired=paired) for gpu in board.gpus},
    }


def is_open(board: Board, now: datetime) -> bool:
    """Whether it accepts submissions now."""
    return board.closed_at is None and not contest.closed(board.deadline_at, now)


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
