"""The Python that judge and runner run in: kbslurm's own, or one that is named, with the packages that a problem needs.

What a problem needs is read from its files, not found out by running them: the modules that importing it imports, not
those under `if` or `try`, which it can do without.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbslurm.domain.problem import Problem
from kbslurm.domain.source import Source
from kbslurm.errors import Invalid
from kbslurm.problems.python_code import module_name, parsed_code

LEAST = (3, 11)
ASKING_S = 60.0
# Printed by the Python that is asked; -I as the harness is started, so that it finds what the harness will find.
_ASK = (
    "import json, sys, importlib.util as u;"
    " print(json.dumps([list(sys.version_info[:3]), [m for m in sys.argv[1:] if u.find_spec(m) is None]]))"
)
_PACKAGES = {"cv2": "opencv-python", "cutlass": "nvidia-cutlass-dsl", "PIL": "pillow", "yaml": "pyyaml"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a Python says about itself: its version, and which of the modules it hasn't."""

    version: tuple[int, ...]
    missing: tuple[str, ...]


def found_python(named: Path | None) -> str:
    """The path of the Python that is named, or kbslurm's own; Invalid if there is none."""
    if named is None:
        return sys.executable
    place = Path.cwd() / named.expanduser()  # not resolved: a virtual environment's is a link
    if place.is_dir():
        place = place / "bin" / "python3"
    if not place.is_file() or not os.access(place, os.X_OK):
        raise Invalid(f"{named} isn't a Python that can be run", hint="Name the program: --python ~/venv/bin/python3")
    return str(place)


def check_has(python: str, problem: Problem, source: Source, *, images: Sequence[str] = ()) -> None:
    """Invalid if this Python is too old, or lacks what the problem or the submission imports. `images`: what the
    board's runs have, for the hint."""
    theirs = needed_by_problem(problem)
    mine = {} if problem.lang != "py" else needed_by_source(problem, source)
    answer = _asked(python, sorted({*theirs, *mine}))
    if answer.version < LEAST:
        raise Invalid(
            f"{python} is Python {'.'.join(map(str, answer.version))}, and the harness needs 3.11 or newer",
            hint="Name a newer one: --python PATH",
        )
    missing = sorted(answer.missing, key=lambda one: (one not in theirs, one))
    if not missing:
        return
    first = missing[0]
    who = f"problem {problem.name}" if first in theirs else source.file_name
    file = f" ({theirs[first]})" if first in theirs else ""
    install = f"{shlex.quote(python)} -m pip install {' '.join(_PACKAGES.get(one, one) for one in missing)}"
    files = [] if first in theirs else sorted(source.files)
    beside = f" A file of yours must be in the submission, which has {', '.join(files[:10])}." if len(files) > 1 else ""
    have = f" The board's runs have {'; '.join(images)}." if images else ""
    raise Invalid(
        f"{who} needs {' and '.join(missing)}{file}, which {python} doesn't have",
        hint=f"Run: {install}; or name a Python that has it: --python PATH.{beside}{have}",
    )


def needed_by_problem(problem: Problem) -> Mapping[str, str]:
    """The modules from elsewhere that importing its reference imports, each with the file that needs it."""
    texts = {module_name(name): (name, text) for name, text in problem.files.items() if name.endswith(".py")}
    found: dict[str, str] = {}
    todo, seen = [module_name(problem.reference)], set()
    while todo:
        module = todo.pop()
        if module in seen or module not in texts:
            continue
        seen.add(module)
        name, text = texts[module]
        for imported in sorted(_imports(text, name)):
            if imported in texts:
                todo.append(imported)
            elif imported not in sys.stdlib_module_names:
                found.setdefault(imported, name)
    return found


def needed_by_source(problem: Problem, source: Source) -> Mapping[str, str]:
    """The modules from elsewhere that importing the submission imports."""
    texts = {name: text for name, text in source.files.items() if name.endswith(".py")}
    entry = texts.get(source.file_name) or source.text
    own = {part for name in (*texts, *problem.files) for part in (module_name(name), name.partition("/")[0])}
    try:
        imported = _imports(entry, source.file_name)
    except Invalid:
        return {}  # not Python: the judge says so, with the line
    return {one: source.file_name for one in imported if one not in own and one not in sys.stdlib_module_names}


def _imports(text: str, name: str) -> set[str]:
    return set(_top_imports(parsed_code(text, Path(name), name).tree))


def _top_imports(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        match statement:
            case ast.Import(names=names):
                yield from (one.name.partition(".")[0] for one in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case _:
                pass


def _asked(python: str, modules: Sequence[str]) -> Answer:
    if not modules and python == sys.executable:
        return Answer(version=tuple(sys.version_info[:3]), missing=())
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK, *modules],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASKING_S,
            check=False,
        )
        version, missing = json.loads(done.stdout)
        return Answer(version=tuple(int(one) for one in version), missing=tuple(str(one) for one in missing))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        raise Invalid(f"{python} doesn't run as Python", hint="Name the program: --python ~/venv/bin/python3") from None
