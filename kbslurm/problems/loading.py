"""Problems and problem sets, from disk to values: `task.yml` directories, one reference file, sets of them.

No problem code runs here. A bundled eval.py never runs anywhere: it would put judge and submission into one process.
What it does beyond the three functions that our judge calls is ignored; then the problem has a warning and no
leaderboard mode.
"""

from __future__ import annotations

import re
from pathlib import Path

from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid, NotFound
from kbslurm.problems import importable
from kbslurm.problems.folder import TASK_FILES
from kbslurm.problems.one_file import problem_of_compiled_file, problem_of_file
from kbslurm.problems.task_yml import problem_of_task

LACKS = re.compile(r"the function \w+ is missing\Z")


def load(path: Path, *, root: Path | None = None, name: str | None = None) -> Problem:
    """The problem in this directory (or task.yml, or one reference file), or Invalid with file, line and key.

    Files may be outside the directory (`../`) but within `root`: by default the repository that contains the problem,
    or else its own directory. The error's hint says how it is imported, if it looks like one of a collection's.
    """
    try:
        return _loaded(path, root=root, name=name)
    except Invalid as error:
        # what an import makes contains the collection's own file, and may have been changed since
        is_ours = path.name in TASK_FILES or any((path / known).is_file() for known in TASK_FILES)
        if (not is_ours or LACKS.search(error.message)) and (found := importable.hint(path)):
            error.hint = found
        raise


def _loaded(path: Path, *, root: Path | None, name: str | None) -> Problem:
    try:
        place = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise NotFound("problem", str(path), hint="Give a directory with a task.yml, or a reference file.") from None
    if place.is_dir():
        task = next((place / known for known in TASK_FILES if (place / known).is_file()), None)
        if task is None:
            raise Invalid("there is no task.yml in this directory", file=path, hint="See the problem author's guide.")
        return problem_of_task(task, root=root, name=name)
    if place.name in TASK_FILES:
        return problem_of_task(place, root=root, name=name)
    match place.suffix:
        case ".py":
            return problem_of_file(place, name=name)
        case ".cu" | ".cuh" | ".cpp" | ".hip":
            return problem_of_compiled_file(place, name=name)
        case ".yaml" | ".yml":
            raise Invalid("this is a problem set, not a problem", file=path, hint="Give one of its directories.")
        case _:
            raise Invalid("neither a task.yml directory nor a reference .py or .cu file", file=path)
