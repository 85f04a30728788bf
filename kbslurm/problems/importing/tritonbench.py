"""TritonBench: `TritonBench_*_v1/*.py`, each an operator, a line of number signs, and a test that calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.fields import problem_name
from kbslurm.problems.importing.source import Files, Found, part, task_yml, text_of, tree_of

RULE = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
CALLS_CAP = 16


def found(root: Path) -> Iterator[Found]:
    for file in sorted(root.rglob("TritonBench_[A-Z]_v1/*.py")):
        origin = file.relative_to(root).as_posix()
        kind = file.parent.name.split("_")[1].lower()
        name = problem_name(f"tritonbench-{kind}-{file.stem}")
        yield Found(name=name, origin=origin, make=partial(_made, root, file, origin))


def _made(root: Path, file: Path, origin: str) -> Files:
    pieces = RULE.split(text_of(root, file))
    if len(pieces) != 2:
        raise Invalid(f"{origin} isn't an operator and a test with a line of number signs between them")
    operator, test = pieces
    ours, theirs = tree_of(operator, root, file), tree_of(test, root, file)
    names = called_names(ours, theirs)
    if not names:
        raise Invalid(f"{origin}: its test calls no function of the operator, only classes or kernels")
    if twice := sorted(names & _defined(theirs)):
        raise Invalid(f"{origin}: its test defines {twice[0]} itself, so it doesn't call the operator's")
    calls = min(CALLS_CAP, max(1, _count(theirs, names)))
    cases = [{"call": n, "seed": n + 1} for n in range(calls)]
    told: dict[str, Any] = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            {"name": "reference.py", "source": "reference.py"},
            {"name": "operator_file.py", "source": "operator_file.py"},
            {"name": "calls.py", "source": "calls.py"},
            {"name": "wrapper.py", "source": "wrapper.py"},
            {"name": "names.py", "source": "names.py"},
            {"name": "tritonbench_answers.py", "source": "tritonbench_answers.py"},
        ],
        "lang": "py",
        "description": (
            f"TritonBench, {origin}. Define {', '.join(sorted(names))} with the operator's parameters. The inputs are "
            "those of TritonBench's own test, many of them fixed, so that answers could be kept: it is judged and "
            "timed, but not ranked.\n"
        ),
        "templates": {"Python": "template.py"},
        "tests": cases,
        "benchmarks": cases[-1:],
        "ranking_by": "geom",
        "kbslurm": {
            "wrapper": "wrapper.py",
            "judge_files": ["operator_file.py", "calls.py"],
            "modes": ["test", "benchmark"],
        },
    }
    return {
        "task.yml": task_yml("TritonBench", origin, told),
        "reference.py": part("tritonbench_reference.py"),
        "wrapper.py": part("tritonbench_wrapper.py"),
        "tritonbench_answers.py": part("tritonbench_answers.py"),
        "names.py": f"NAMES = {sorted(names)!r}\n",
        "operator_file.py": operator,
        "calls.py": _without_its_own(file.stem, test, theirs),
        "template.py": _template(ours, names),
        "submissions/accepted/operator.py": operator,
    }


def _without_its_own(module: str, test: str, tree: ast.Module) -> str:
    """The test without imports from its own file, which is gone: it finds the operator's functions anyway."""
    lines = test.split("\n")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == module and node.end_lineno is not None:
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines)


def called_names(operator: ast.Module, test: ast.Module) -> set[str]:
    """The operator's functions that the test calls by name; kernels aren't called but launched."""
    mine = {
        node.name
        for node in operator.body
        if isinstance(node, ast.FunctionDef) and not any("jit" in ast.unparse(one) for one in node.decorator_list)
    }
    # some operators are classes' `apply` under another name
    mine |= {
        target.id
        for node in operator.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "apply"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return mine & {
        node.func.id for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def _defined(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _count(tree: ast.Module, names: set[str]) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(tree)
    )


def _template(operator: ast.Module, names: set[str]) -> str:
    """The heads of the functions to write."""
    heads = []
    for node in operator.body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            heads.append(f"def {node.name}({_bare(node.args)}):\n    raise NotImplementedError\n")
    return "import torch  # noqa: F401\n\n\n" + "\n\n".join(heads)


def _bare(args: ast.arguments) -> str:
    """The parameters without annotations and without defaults that need more than Python."""
    for arg in ast.walk(args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    args.defaults = [one if isinstance(one, ast.Constant) else ast.Constant(None) for one in args.defaults]
    args.kw_defaults = [
        one if one is None or isinstance(one, ast.Constant) else ast.Constant(None) for one in args.kw_defaults
    ]
    return ast.unparse(args)
