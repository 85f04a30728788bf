"""A problem in one file of Python, C++ or CUDA: its reference, its cases and its baseline as literals."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from kbslurm.domain.problem import Problem
from kbslurm.domain.source import checked_source
from kbslurm.errors import Invalid
from kbslurm.problems.cases import CaseCheck
from kbslurm.problems.compiled_code import (
    SUBMISSION_SUFFIXES,
    baseline_of,
    called_as_submission,
    included_once,
    literal_cases,
    read_reference,
    takes_data,
)
from kbslurm.problems.fields import TEXT_CAP, as_marked, at_place, problem_name
from kbslurm.problems.folder import Folder, sharing_notes
from kbslurm.problems.marked_yaml import Marked
from kbslurm.problems.python_code import (
    Code,
    Function,
    one_file_style,
    parsed_code,
    required_function,
)
from kbslurm.problems.roles import ANSWERS
from kbslurm_eval.shared.wire import Build, Params


def problem_of_file(file: Path, *, name: str | None) -> Problem:
    if not file.is_file():
        raise Invalid("isn't a file", file=file)
    here = Marked(file=file, line=1, key="", value=None)
    text = Folder(base=file.parent, root=file.parent).decoded(file, file.name, here)
    code = parsed_code(text, file, file.name)
    generate = required_function(code, ("generate_input",), {})
    required_function(code, ANSWERS, {})  # outputs have the layout of the reference's own
    check = required_function(code, ("check_implementation",), {})
    style = one_file_style(code, check)
    if "submission" in code.imports():
        raise Invalid("imports submission: the judge never loads the submission", file=file)
    tests = _literal_cases(code, "TESTS", generate) or (_only_case(code, generate),)
    benchmarks = _literal_cases(code, "BENCHMARKS", generate) or tests
    warnings: list[str] = []
    if generate.known and not generate.any_key and "seed" not in generate.parameters:
        warnings.append(
            f"{file}:{generate.line}: generate_input has no parameter seed, so inputs only vary if it uses `random`"
        )
    return Problem(
        name=name or problem_name(file.parent.name if file.stem == "reference" else file.stem),
        style="modern" if style == "modern" else "one-file",
        description=code.docstring()[:TEXT_CAP],
        files={"reference.py": text},
        tests=tests,
        benchmarks=benchmarks,
        hidden=_literal_cases(code, "HIDDEN", generate),
        config=_literal_baseline(code, file, text),
        warnings=tuple(warnings),
    )


def _literal_baseline(code: Code, file: Path, text: str) -> dict[str, Any]:
    """BASELINE of a one-file problem: a function in that file, or another file next to it, measured along with every
    submission."""
    found = code.literal("BASELINE")
    if found is None:
        return {}
    at = as_marked(found[0], file, found[1], "BASELINE")
    if at.text().endswith(".py"):
        beside = Folder(base=file.parent, root=file.parent).text(at.text(), at)
        return {"baseline": at_place(at, lambda: checked_source(PurePosixPath(at.text()).name, beside.encode())).text}
    if not at.text().isidentifier() or code.function(at.text()) is None:
        raise at.wrong(f"{at.text()!r} is neither a function in this file nor a .py file next to it")
    return {"baseline": f"{text.rstrip()}\n\n\ncustom_kernel = {at.text()}\n"}


def problem_of_compiled_file(file: Path, *, name: str | None) -> Problem:
    if not file.is_file():
        raise Invalid("isn't a file", file=file)
    here = Marked(file=file, line=1, key="", value=None)
    text = Folder(base=file.parent, root=file.parent).decoded(file, file.name, here)
    kept = f"reference{file.suffix}"
    found = read_reference(kept, {kept: text}, file)
    cases = {key: _commented_cases(text, key, file, found.generate) for key in ("TESTS", "BENCHMARKS", "HIDDEN")}
    needed = [n for n in found.generate.required if n != "seed"]
    if needed and not cases["TESTS"]:
        raise Invalid(
            f"generate_input needs {needed[0]}, but no case sets it",
            file=file,
            hint=f'List cases in a one-line comment: // TESTS = [{{"{needed[0]}": …}}].',
        )
    only: Params = {"seed": 1} if "seed" in found.generate.required else {}
    tests = cases["TESTS"] or (only,)
    return Problem(
        name=name or problem_name(file.parent.name if file.stem == "reference" else file.stem),
        lang="cu",
        style="one-file" if found.style == "one-file" else "modern",
        files={kept: included_once(text)},
        runner_files=found.shared,
        reference=kept,
        entry="submission.cu",
        tests=tests,
        benchmarks=cases["BENCHMARKS"] or tests,
        hidden=cases["HIDDEN"],
        config=_commented_baseline(text, file, kept),
        build=Build(when="always", adapter=dict(found.adapter)),
        warnings=sharing_notes(file, file.name, found) if kept == file.name else (),
    )


def _commented_cases(text: str, key: str, file: Path, generate: Function) -> tuple[Params, ...]:
    found = literal_cases(text, key)
    if found is None:
        return ()
    told, line = found
    try:
        rows = json.loads(told)
    except ValueError:
        raise Invalid("must be a list of tables as in JSON", file=file, line=line, key=key) from None
    return CaseCheck(generate=generate).cases(as_marked(rows, file, line, key), least=1)


def _commented_baseline(text: str, file: Path, kept: str) -> dict[str, Any]:
    """BASELINE of a compiled one-file problem: a function in that file, or another file next to it."""
    found = baseline_of(text)
    if found is None:
        return {}
    at = as_marked(found[0], file, found[1], "BASELINE")
    if at.text().endswith(SUBMISSION_SUFFIXES):
        beside = Folder(base=file.parent, root=file.parent).text(at.text(), at)
        return {"baseline": at_place(at, lambda: checked_source(PurePosixPath(at.text()).name, beside.encode())).text}
    if not takes_data(text, at.text()):
        raise at.wrong(
            f"{at.text()!r} is neither a function in this file that takes the data nor a .cu file next to it"
        )
    return {"baseline": called_as_submission(at.text(), kept)}


def _only_case(code: Code, generate: Function) -> Params:
    """The only case of a reference without TESTS: no arguments, or just a seed."""
    if generate.known and (needed := [name for name in generate.required if name != "seed"]):
        raise Invalid(
            f"generate_input needs {needed[0]}, but no case sets it",
            file=code.file,
            line=generate.line,
            hint=f"Give it a default, or list cases: TESTS = [{{{needed[0]!r}: …}}].",
        )
    return {"seed": 1} if "seed" in generate.parameters else {}


def _literal_cases(code: Code, key: str, generate: Function) -> tuple[Params, ...]:
    found = code.literal(key)
    if found is None:
        return ()
    rows, line = found
    check = CaseCheck(generate=generate)
    return check.cases(as_marked(rows, code.file, line, key), least=1)
