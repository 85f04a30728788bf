"""The README of a board's problem in a directory of one's own: the task, the cases, and the commands that come next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbslurm.domain.amounts import counted
from kbslurm.domain.problem import Problem
from kbslurm.trial.pulled_board import MARK, PulledBoard

SEALED = "the board doesn't publish its reference, so that only the service can judge"


def readme(board: PulledBoard, begun: Sequence[str]) -> str:
    """The whole text. `begun`: the files to begin with."""
    return "\n".join([*_head(board), *_commands(board), *_files(board, begun), *_cases(board.problem), ""])


def _head(board: PulledBoard) -> Iterator[str]:
    where = f" at {board.service}" if board.service else ""
    yield f"# {board.leaderboard}"
    yield ""
    yield f"Version {board.version} of the problem {board.problem.name} ({board.digest[:12]}){where}."
    yield f"GPU types of the board: {', '.join(board.gpus) or 'none'}."
    for gpu in board.gpus:
        for packages in board.packages(gpu):
            yield f"On {gpu}, runs have {packages}."
    yield ""
    yield (board.description.strip() or board.problem.description.strip() or "There is no description.")
    yield ""


def _commands(board: PulledBoard) -> Iterator[str]:
    entry, gpu = board.problem.entry, board.gpus[0] if board.gpus else "GPU"
    submit = f"kbslurm submit {entry} --board {board.leaderboard} --gpu {gpu}"
    yield "## What next"
    yield ""
    yield "```sh"
    if board.publishes_reference:
        yield f"kbslurm try {entry}   # judged on this machine; --python PATH names a Python that has torch"
    yield f"{submit} --mode test --watch   # is it correct?"
    yield f"{submit} --watch               # for the leaderboard"
    yield "```"
    yield ""
    if not board.publishes_reference:
        yield f"`kbslurm try` can't judge here: {SEALED}."
        yield ""


def _files(board: PulledBoard, begun: Sequence[str]) -> Iterator[str]:
    problem = board.problem
    yield "## Files"
    yield ""
    for name in begun:
        yield f"* `{name}`: to begin with; yours to change."
    for name in problem.files:
        if name in problem.runner_files and name != problem.reference:
            yield f"* `{name}`: lies beside your file when it runs."
        elif name == problem.reference:
            yield f"* `{name}`: makes the inputs and judges the answers. Your file can't import it."
        else:
            yield f"* `{name}`: used by the reference; not there when your file runs."
    yield f"* `{MARK}`: what the service sent; `kbslurm try` reads it."
    yield ""


def _cases(problem: Problem) -> Iterator[str]:
    yield "## Public cases"
    yield ""
    for name, cases in (("tests", problem.tests), ("benchmarks", problem.benchmarks)):
        yield f"{counted(len(cases), name[:-1])}:"
        yield ""
        yield from (f"* {_told(case)}" for case in cases)
        yield ""
    for gpu, lists in problem.sizes.items():
        yield f"On {gpu} instead:"
        yield ""
        yield from (f"* {name[:-1]}: {_told(case)}" for name, cases in lists.items() for case in cases)
        yield ""
    yield "Ranked runs may have hidden cases too; their inputs are drawn from seeds that nobody knows."


def _told(case: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in case.items()) or "no parameters"
