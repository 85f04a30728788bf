"""`kbslurm try`: run one submission through the whole harness on this machine; no daemon, and nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Entry, Json, Root, checked_mode, read_source
from kbslurm.cli.output import printing
from kbslurm.cli.output.trial import print_trial
from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.domain.problem import Problem
    from kbslurm.domain.source import Source
    from kbslurm.trial.pulled_board import PulledBoard


class Profiler(StrEnum):
    """What may run around the submission for a profile."""

    NCU = "ncu"
    ROCPROF = "rocprof"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What is judged by what. `board`: if the problem is a board's; `changed`: its files that were changed here."""

    problem: Problem
    source: Source
    board: PulledBoard | None = None
    changed: tuple[str, ...] = ()


def try_(
    problem: Annotated[
        Path,
        typer.Argument(
            metavar="PROBLEM",
            help="A problem's directory (with task.yml, or one that `problem pull` made), or its one reference file."
            " With --board, or for a file in a directory that was pulled, only the submission is given.",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The submission: a file, a folder, or a zip.", show_default=False),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option("--board", "--leaderboard", "-l", help="Judge by this board's problem, as it is there now."),
    ] = None,
    mode: Annotated[str, typer.Option(help="test, benchmark, profile or leaderboard.")] = "leaderboard",
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The GPU type reported to the submission (default: cpu, or the board's first).", show_default=False
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option("--python", help="The Python that judges and runs, or its environment (default: kbslurm's own)."),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option("--image", help="Judge and run in this Apptainer image, as a job does (needs Apptainer)."),
    ] = None,
    entry: Entry = None,
    root: Root = None,
    profiles: Annotated[Path | None, typer.Option(help="Folder for the profile's files (with --mode profile).")] = None,
    benchmark: Annotated[
        int | None, typer.Option("--benchmark", help="Profile only this benchmark, from 0; with --mode profile.", min=0)
    ] = None,
    profiler: Annotated[
        Profiler | None,
        typer.Option("--profiler", help="Also profile with ncu or rocprof, if they are installed here."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge one submission on this machine, as the competition would. Without --board it needs no service.

    Of a board's problem the result is never official; it says how far this machine is from the board's. Exit code 0:
    passed. 3: rejected. 6: the machine or the problem failed, not the submission.
    """
    from kbslurm.config import shared_folders
    from kbslurm.trial import run
    from kbslurm.trial.at_home import at_home
    from kbslurm.trial.chosen_python import check_has, found_python
    from kbslurm.trial.in_image import image_at
    from kbslurm.trial.pulled_board import check_can_judge

    if image is not None and python is not None:
        raise Invalid("--image has a Python of its own", hint="Leave out --python, or --image.")
    asked, used, within = checked_mode(mode), found_python(python), None if image is None else image_at(image)
    tried = _of_board(board, problem, file, entry) if board is not None else _of_place(problem, file, entry, root)
    of_board = tried.board
    named = gpu or "cpu"
    if of_board is not None:
        named = of_board.gpu(gpu)
        check_can_judge(of_board, tried.source)
    if within is None:
        check_has(used, tried.problem, tried.source, images=of_board.packages(named) if of_board else ())
    with TemporaryDirectory(prefix="kbslurm-try-") as work, printing.progress(as_json) as tell:
        found = run.run_trial(
            tried.problem,
            tried.source.file_name,
            tried.source.text,
            asked,
            named,
            work=Path(work),
            eval_dir=shared_folders.eval_dir(),
            on_heartbeat=tell,
            benchmark=benchmark,
            profiler=None if profiler is None else profiler.value,
            python=used,
            image=within,
        )
    if profiles is not None and found.artifacts:
        profiles.mkdir(parents=True, exist_ok=True)
        for name, data in found.artifacts.items():
            (profiles / name).write_bytes(data)
    home = None if of_board is None else at_home(of_board, found.report, named, tried.changed)
    print_trial(found, as_json=as_json, ranking_by=tried.problem.ranking_by, home=home)
    return run.exit_code(found.report.verdict)


def _of_board(board: str, first: Path, second: Path | None, entry: str | None) -> Tried:
    """By the board's problem as the service has it now; only a file is named."""
    from kbslurm.cli.competitor.board_problem import board_problem
    from kbslurm.domain.source import checked_source

    if second is not None:
        raise Invalid("--board says which problem it is", hint=f"Name only the submission: kbslurm try {second}")
    source = checked_source(*read_source(first, entry))
    found, _ = board_problem(board)
    return Tried(problem=found.problem, source=source, board=found)


def _of_place(first: Path, second: Path | None, entry: str | None, root: Path | None) -> Tried:
    """By a problem on this machine; of a directory that was pulled one argument is enough."""
    from kbslurm.domain.source import checked_source
    from kbslurm.problems import loading
    from kbslurm.trial import pulled_folder

    place, file = (first, second) if second is not None else (first, None) if first.is_dir() else (first.parent, first)
    if pulled_folder.is_pulled(place):
        found, changed = pulled_folder.read(place)
        source = checked_source(*read_source(file or place / found.problem.entry, entry))
        return Tried(problem=found.problem, source=source, board=found, changed=tuple(changed))
    if second is None or file is None:
        raise Invalid(
            f"it isn't said which problem {first} is a submission to",
            hint="Run: kbslurm try PROBLEM_DIR FILE, or kbslurm try FILE --board NAME, or kbslurm problem pull NAME.",
        )
    return Tried(problem=loading.load(place, root=root), source=checked_source(*read_source(file, entry)))
