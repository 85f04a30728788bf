"""What starts with each launch, and so some ten times in a run, is ready soon: it imports nothing that takes long."""

from __future__ import annotations

import ast
import functools
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.runner.importing import takes_out
from tests.flow import harness_ground as ground

SLOW = {"typing", "inspect", "dataclasses", "ast", "dis", "socket", "subprocess", "pathlib", "tempfile", "argparse"}


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("cage.launcher", {"re", "enum", "signal"}),
        ("cage.warming_process", {"json", "re", "enum", "signal"}),
        ("runner.serve", set()),
    ],
)
def test_what_takes_long_to_import_is_not_imported(module: str, more: set[str]) -> None:
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import kbslurm_eval.run, kbslurm_eval.{module}; "
    code += "print(*(one.__file__ for name, one in sys.modules.items() if name.startswith('kbslurm_eval')), sep='\\n')"
    argv = [sys.executable, "-I", "-S", "-c", code, str(ground.EVAL)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    for file in map(Path, done.stdout.splitlines()):
        # what a newer Python's own modules import is not in our hands
        for line in ast.parse(file.read_bytes()).body:
            named = [one.name for one in line.names] if isinstance(line, ast.Import) else []
            named += [line.module or ""] if isinstance(line, ast.ImportFrom) else []
            assert not {*named} & (SLOW | more), f"{file.name}, line {line.lineno}"


def with_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return wrapped


class Called:
    def __call__(self, data: Any, out: Any = None) -> Any:
        return data


FUNCTIONS: dict[str, Any] = {
    "plain": lambda data: data,
    "out": lambda data, out: data,
    "optional": lambda data, out=None: data,
    "the first": lambda out, data=None: data,
    "by name": lambda data, *, out: data,
    "by name, optional": lambda data, *, other, out=None: data,
    "by position": lambda data, out, /: data,
    "by position, optional": lambda data, out=None, /, more=1: data,
    "all": lambda *out: out,
    "all by name": lambda data, **out: data,
    "after all": lambda *data, out: data,
    "wrapped": with_wrapper(lambda data, out=None: data),
    "partial": functools.partial(lambda data, out: data, out=None),
    "an object": Called(),
    "a method": Called().__call__,
    "built in": sorted,
    "unknown": dict.fromkeys,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_who_asks_for_the_place_of_an_answer_is_known_as_by_the_signature(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    found = parameters.get("out")
    takes = found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)
    if found is not None and found.kind == found.POSITIONAL_OR_KEYWORD:
        takes = next(iter(parameters)) != "out"  # then it is the data
    told = takes_out(FUNCTIONS[name])
    assert told[0] is takes
    if takes:
        assert found is not None
        assert told[1] is (found.default is not found.empty)


def test_a_local_variable_called_out_asks_for_nothing() -> None:
    def local(data: Any) -> Any:
        out = [data]
        return out[0]

    assert takes_out(local) == (False, False)
