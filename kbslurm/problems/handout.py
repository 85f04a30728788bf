"""What of a problem a competitor may have at home: never a hidden case or a seed, and the reference only if published.

What stays here is left out of a copy, so that whoever hands the copy on can't hand on more.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbslurm.domain.hidden_comment import without_hidden_comment
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm.problems.python_code import BYTE_ORDER_MARK, parsed_code
from kbslurm_eval.shared import recorded
from kbslurm_eval.shared.wire import Budget, Build, Params

HIDDEN = "HIDDEN"


def handout(problem: Problem, *, reference: bool) -> Problem:
    """The copy that may leave: public cases, limits, templates, and the files that submissions see. With `reference`
    also what they are judged by: the judge's own files, the baseline, and how many calls are timed.

    Its digest isn't the version's any more, which mustn't leave: whoever has all the rest of a problem could try by it
    whether they have guessed its hidden cases. Warnings, which name paths on the server, stay here as well.
    """
    seen = {name: problem.files[name] for name in problem.runner_files if name != problem.reference}
    kept = _files(problem) if reference else seen
    config = {key: _unhidden(value) if isinstance(value, str) else value for key, value in problem.config.items()}
    if not reference:
        config.pop("baseline", None)
    return dataclasses.replace(
        problem,
        files={name: _without_hidden(name, text) for name, text in kept.items()},
        runner_files=tuple(name for name in problem.runner_files if name in kept),
        config=config,
        hidden=(),
        seed=None,
        sizes={
            gpu: {name: cases for name, cases in lists.items() if name != "hidden"}
            for gpu, lists in problem.sizes.items()
        },
        build=problem.build if reference else _public_build(problem.build),
        budget=problem.budget if reference else Budget(),
        warnings=(),
        inputs="",
    )


def has_hidden(problem: Problem, gpu: str) -> bool:
    """Whether it has hidden cases on this GPU type."""
    return bool(problem.for_gpu(gpu).hidden)


def _files(problem: Problem) -> Mapping[str, str]:
    """All files. Of recorded tensors, where there are hidden cases, only those that public cases or the problem's own
    code name in full: a name that is put together may be a hidden case's."""
    lists = problem.sizes.values()
    public = _named([*problem.tests, *problem.benchmarks, *_cases(lists, "tests"), *_cases(lists, "benchmarks")])
    hidden = [*problem.hidden, *_cases(lists, "hidden")]
    tensors = {name for name in problem.files if name.endswith(recorded.SUFFIX)}
    code = [text for name, text in problem.files.items() if name not in tensors]
    open_ = {name for name in tensors if _is_public(name, public, _named(hidden), code)}
    return {name: text for name, text in problem.files.items() if name not in tensors or not hidden or name in open_}


def _is_public(tensor: str, public: set[str], hidden: set[str], code: Sequence[str]) -> bool:
    own = tensor.removesuffix(recorded.SUFFIX)
    quoted = [f"{mark}{one}{mark}" for one in (own, tensor) for mark in "\"'"]
    return own in public or (own not in hidden and any(one in text for text in code for one in quoted))


def _cases(lists: Any, key: str) -> list[Params]:
    return [case for one in lists for case in one.get(key, ())]


def _named(cases: Sequence[Params]) -> set[str]:
    """Every text in these cases, without a file's ending."""
    values = [value for case in cases for value in case.values()]
    flat = [inner for value in values for inner in (value if isinstance(value, list) else [value])]
    return {text.removesuffix(recorded.SUFFIX) for text in flat if isinstance(text, str)}


def _public_build(build: Build) -> Build:
    """How submissions are compiled, without what the reference's own signature says."""
    return dataclasses.replace(build, adapter={})


def _without_hidden(name: str, text: str) -> str:
    return text if name.endswith(recorded.SUFFIX) else _unhidden(text)


def _unhidden(text: str) -> str:
    """A text without the hidden cases that a reference in one file lists; every other line stays where it was."""
    if text.startswith(BYTE_ORDER_MARK):  # places are counted from behind it
        return BYTE_ORDER_MARK + _unhidden(text.removeprefix(BYTE_ORDER_MARK))
    text = without_hidden_comment(text)
    if HIDDEN not in text:
        return text
    try:
        statements = parsed_code(text, Path("reference"), "reference").tree.body
    except Invalid:
        return text  # C++, where they are in a comment
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for statement in reversed(statements):
        if _is_hidden(statement):
            start = starts[statement.lineno - 1] + statement.col_offset
            end = starts[(statement.end_lineno or statement.lineno) - 1] + (statement.end_col_offset or 0)
            lines = b"\n" * data.count(b"\n", start, end)
            data = data[:start] + b"HIDDEN = [" + lines + b"]" + data[end:]
    return data.decode()


def _is_hidden(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return any(isinstance(node, ast.Name) and node.id == HIDDEN for one in targets for node in ast.walk(one))
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return name == HIDDEN
        case _:
            return False
