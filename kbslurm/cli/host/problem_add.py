"""`kbslurm problem add`: a problem, a new version of it, or a whole set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json, Root
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.output.printing import caution
from kbslurm.domain.amounts import ordinal
from kbslurm.errors import EXIT_OK, Invalid, KbslurmError

if TYPE_CHECKING:
    from kbslurm.domain.problem import Problem
    from kbslurm.problems.problem_set import ProblemSet


def problem_add(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A problem's directory (with task.yml), a single reference file, or a problem set's YAML file."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="The name, if not the directory's.")] = None,
    root: Root = None,
    as_json: Json = False,
) -> int:
    """Add a problem, or a new version of it. Boards keep their version until you give them the new one.

    From a set, every valid problem is added; exit code 2 if any isn't valid.
    """
    from kbslurm.problems import folder, problem_set
    from kbslurm.problems.packing import Packed

    if directory.suffix in (".yaml", ".yml") and directory.name not in folder.TASK_FILES:
        return _add_set(problem_set.load_set(directory, root=root), name, as_json)
    sent = Packed(directory, name=name, root=root)
    problem = sent.problem
    with host() as hosts:
        known = () if as_json else hosts.problems()
        came = hosts.add_problem(sent)
    if as_json:
        printing.as_json(_added(problem, came))
        return EXIT_OK
    _tell_added(problem, came, known)
    printing.say(f"kbslurm board create NAME --problem {problem.name} --gpus … makes a board from it")
    return EXIT_OK


def _add_set(found: ProblemSet, name: str | None, as_json: bool) -> int:
    """Every problem of the set under its board's name; one faulty problem doesn't keep out the others."""
    from kbslurm.problems import problem_set
    from kbslurm.problems.packing import Packed

    if name is not None:
        raise Invalid(
            "the problems of a set get their names from the set",
            hint="Leave --name out, or give a single problem's directory.",
        )
    rows: list[dict[str, Any]] = []
    for warning in found.warnings:
        caution(warning)
    with host() as hosts:
        known = () if as_json else hosts.problems()
        for entry, loaded in problem_set.load_each(found):
            if isinstance(loaded, KbslurmError):
                rows.append({"problem": entry.name, "error": {"message": loaded.message, "hint": loaded.hint}})
                if not as_json:
                    printing.error(loaded, as_json=False)
                continue
            try:
                came = hosts.add_problem(Packed(entry.directory, loaded, root=found.root))
            except Invalid as error:  # its inputs can't be made or sent
                rows.append({"problem": entry.name, "error": {"message": error.message, "hint": error.hint}})
                if not as_json:
                    printing.error(error, as_json=False)
                continue
            board = {"gpus": entry.gpus or loaded.gpus, "deadline_at": entry.deadline, "zone": found.zone}
            rows.append({**_added(loaded, came), **board})
            if not as_json:
                _tell_added(loaded, came, known)
    bad = [row for row in rows if "error" in row]
    if as_json:
        printing.as_json({"set": found.name, "problems": rows})
    else:
        left_out = f", {len(bad)} failed" if bad else ""
        printing.say(f"set {found.name}: {len(rows) - len(bad)} problems added{left_out}")
    return Invalid.exit_code if bad else EXIT_OK


def _added(problem: Problem, came: Mapping[str, Any]) -> dict[str, Any]:
    told = {"problem": problem.name, "version": came["version"], "digest": problem.digest}
    return {**told, "warnings": problem.warnings, "inputs": came.get("inputs", "")}


def _tell_added(problem: Problem, came: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> None:
    """Versions are numbered over all problems, so say which of its own it is as well. `known`: those there before."""
    for warning in problem.warnings:
        caution(warning)
    if came.get("inputs", "").startswith("unchecked"):
        caution(f"inputs {came['inputs']}")
    ours = [one["id"] for one in known if one["name"] == problem.name]
    nth = ours.index(came["version"]) + 1 if came["version"] in ours else len(ours) + 1
    which = "first" if nth == 1 else ordinal(nth)
    printing.say(f"problem {problem.name}, its {which} version (number {came['version']}, {problem.digest[:12]})")
