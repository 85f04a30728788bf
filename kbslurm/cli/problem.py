"""`kbslurm problem …`: add, verify, list and show problems."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, opened_store
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, Invalid, KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.problem import Problem
    from kbslurm.problems.problem_set import ProblemSet
    from kbslurm.store.postgres import PostgresStore

group = typer.Typer(help="Problems: add, verify, list, show.", no_args_is_help=True)
app.add_typer(group, name="problem")

Place = Annotated[Path, typer.Argument(help="The problem's directory (with task.yml), or its one reference file.")]


@group.command()
def add(
    directory: Annotated[
        Path,
        typer.Argument(help="A problem's directory (with task.yml), its one reference file, or a set's yaml file."),
    ],
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    as_json: Json = False,
) -> int:
    """Add a problem, or a new version of it. Boards keep the version that they have until given the new one.

    Of a set every problem is added that can be; exit code 2 when one can't.
    """
    from kbslurm.problems import folder, loading, problem_set

    if directory.suffix in (".yaml", ".yml") and directory.name not in folder.TASK_FILES:
        return _add_set(problem_set.load_set(directory), name, as_json)
    problem = loading.load(directory, name=name)
    with opened_store() as store:
        version = store.add_problem_version(problem)
    if as_json:
        show.as_json(_added(problem, version))
        return EXIT_OK
    _tell_added(problem, version)
    show.say(f"kbslurm board create NAME --problem {problem.name} --gpus … makes a board of it")
    return EXIT_OK


def _add_set(found: ProblemSet, name: str | None, as_json: bool) -> int:
    """Every problem of the set under its board's name; what is wrong with one doesn't keep out the others."""
    from kbslurm.problems import problem_set

    if name is not None:
        raise Invalid(
            "a set's problems are named by the set", hint="Leave --name out, or name one problem's directory."
        )
    rows: list[dict[str, Any]] = []
    for warning in found.warnings:
        _caution(warning)
    with opened_store() as store:
        for entry, loaded in problem_set.load_each(found):
            if isinstance(loaded, KbslurmError):
                rows.append({"problem": entry.name, "error": {"message": loaded.message, "hint": loaded.hint}})
                if not as_json:
                    show.error(loaded, as_json=False)
                continue
            version = store.add_problem_version(loaded)
            board = {"gpus": entry.gpus or loaded.gpus, "deadline_at": entry.deadline, "zone": found.zone}
            rows.append({**_added(loaded, version), **board})
            if not as_json:
                _tell_added(loaded, version)
    bad = [row for row in rows if "error" in row]
    if as_json:
        show.as_json({"set": found.name, "problems": rows})
    else:
        left_out = f", {len(bad)} can't be" if bad else ""
        show.say(f"set {found.name}: {len(rows) - len(bad)} problems added{left_out}")
    return Invalid.exit_code if bad else EXIT_OK


def _added(problem: Problem, version: int) -> dict[str, Any]:
    return {"problem": problem.name, "version": version, "digest": problem.digest, "warnings": problem.warnings}


def _tell_added(problem: Problem, version: int) -> None:
    for warning in problem.warnings:
        _caution(warning)
    show.say(f"problem {problem.name}, version {version} ({problem.digest[:12]})")


def _caution(warning: str) -> None:
    show.err().print(f"[yellow]caution[/]: {show.escape(warning)}")


@group.command()
def verify(
    directory: Place,
    mode: Annotated[str | None, typer.Option(help="By default the fullest mode of the problem.")] = None,
    mutate: Annotated[bool, typer.Option(help="Also put spoilt answers to the problem's check.")] = True,
    as_json: Json = False,
) -> int:
    """Judge submissions/{accepted,wrong_answer,crash,timeout,memory,cheat}/* and compare with their folders' names.

    Then the reference's own answers, spoilt in known ways, are put to the problem's check. Exit code 0: every verdict
    is that of its folder, and the check takes neither zeros nor a constant. 3: one differs, or it does.
    """
    from kbslurm.cli.trial import checked_mode
    from kbslurm.config import shared_folders
    from kbslurm.problems import loading
    from kbslurm.trial import mutations, verifying

    rows: list[dict[str, Any]] = []
    problem = loading.load(directory)
    seen = mutations.Mutations()
    with TemporaryDirectory(prefix="kbslurm-verify-") as work, show.progress(as_json) as tell:
        for found in verifying.verify(
            directory,
            problem=problem,
            work=Path(work),
            eval_dir=shared_folders.eval_dir(),
            mode=checked_mode(mode) if mode else None,
            on_start=lambda file: tell({"phase": f"judging {file.parent.name}/{file.name}"}),
        ):
            rows.append(
                {
                    "file": f"{found.file.parent.name}/{found.file.name}",
                    "expected": found.expected,
                    "got": found.got,
                    "reason": found.reason,
                    "score_s": found.score_s,
                    "ok": found.ok,
                }
            )
            if not as_json:
                _told(rows[-1])
        if mutate:
            tell({"phase": "spoiling answers"})
            seen = mutations.try_mutations(problem, work=Path(work), eval_dir=shared_folders.eval_dir())
    bad = [row for row in rows if not row["ok"]]
    findings = [one for one in seen.findings if one["severity"] != "none"]
    errors = [one for one in findings if one["severity"] == "error"]
    if as_json:
        show.as_json(
            {"ok": not bad and not errors, "submissions": rows, "mutations": seen.findings, "trouble": seen.trouble}
        )
    else:
        for one in findings:
            colour = "red" if one["severity"] == "error" else "yellow"
            show.out().print(f"[{colour}]{one['severity']}[/] {show.escape(one['message'])}", soft_wrap=True)
        if seen.trouble:
            _caution(f"spoilt answers couldn't be put to the check: {seen.trouble}")
        said = f"; {len(findings)} of {len(seen.findings)} mutations pass the check" if seen.findings else ""
        show.say(f"{len(rows) - len(bad)} as expected, {len(bad)} not{said}")
    return EXIT_REJECTED if bad or errors else EXIT_OK


def newest(store: PostgresStore, name: str) -> Problem:
    """The newest version of the problem of that name, or NotFound with those that there are."""
    known = store.problems()
    ids = [version.id for version in known if version.name.lower() == name.lower()]
    if not ids:
        raise NotFound("problem", name, known=sorted({version.name for version in known}))
    return store.problem_of_version(max(ids))


def _told(row: dict[str, Any]) -> None:
    mark = "[green]ok[/] " if row["ok"] else "[red]NO[/] "
    got = show.coloured(row["got"]) if row["ok"] else f"{show.coloured(row['got'])}, expected {row['expected']}"
    detail = show.seconds(row["score_s"]) if row["score_s"] is not None else row["reason"]
    show.out().print(f"{mark}{show.escape(row['file'])}  {got}  {show.escape(detail)}", soft_wrap=True)


@group.command("list")
def list_(as_json: Json = False) -> int:
    """The problems that there are, newest version first."""
    with opened_store() as store:
        found = store.problems()
    if as_json:
        show.as_json(found)
    elif found:
        rows = [(p.name, str(p.id), p.digest[:12], show.when(p.created_at)) for p in found]
        show.table(("problem", "version", "digest", "added"), rows)
    else:
        show.say("no problem yet; kbslurm problem add DIRECTORY adds one")
    return EXIT_OK


@group.command("show")
def show_(
    name: Annotated[str, typer.Argument(help="The problem's name, or its directory.")], as_json: Json = False
) -> int:
    """What a problem asks, how it is judged and what it allows. Hidden cases are counted, not shown."""
    from kbslurm.domain import problem as values
    from kbslurm.problems import loading

    if Path(name).exists():
        problem = loading.load(Path(name))
    else:
        with opened_store() as store:
            problem = newest(store, name)
    if as_json:
        told = values.as_json(problem)
        told["hidden"] = len(problem.hidden)
        show.as_json(told)
        return EXIT_OK
    show.problem(problem)
    return EXIT_OK
