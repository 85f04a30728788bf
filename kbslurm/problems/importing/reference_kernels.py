"""gpu-mode's reference-kernels: directories with a task.yml, in the format that ours is, with files beside them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.fields import problem_name
from kbslurm.problems.folder import SUBMISSION, TASK_FILES
from kbslurm.problems.importing.source import Files, Found, part, text_of, tree_of
from kbslurm.problems.marked_yaml import Marked, read_yaml

# A reference that none of the usual functions is in: the lines that its task.yml gets, and the file that has them.
CROSS_ENTROPY = """kbslurm:
  reference: kbslurm_reference.py
  call: [cross_entropy_forward, cross_entropy_backward]
  eval: standard
  sizes:
    cpu:
      tests: [{vocab_size: 512, batch: 16, seed: 1}]
      benchmarks: [{vocab_size: 512, batch: 16, seed: 2}]
"""
ADAPTED = {"cross_entropy_py": ("princeton_cross_entropy.py", CROSS_ENTROPY)}
SHARED = "reference_classes.py"
WITH_CODE = ("Module", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")  # what is sent as its class's name and data
NEEDS = ("generate_inputs", "reference_forward", "reference_backward")


def found(root: Path) -> Iterator[Found]:
    for file in sorted({place for known in TASK_FILES for place in root.rglob(known)}):
        origin = file.parent.relative_to(root).as_posix()
        name = problem_name("-".join(file.parent.relative_to(root).parts[-2:]))
        yield Found(name=name, origin=origin, make=partial(_made, root, file))


def _made(root: Path, file: Path) -> Files:
    """The task.yml and the files that it names, beside it also those of a folder above."""
    table, text = read_yaml(file).table(), text_of(root, file)
    files: dict[str, str | Path] = {}
    named: list[Marked] = []
    for row in table["files"].items() if "files" in table else ():
        named.append(row.table()["source"])
    named += table["templates"].table().values() if "templates" in table else ()
    for at in named:
        source = at.text()
        if source == SUBMISSION:
            continue
        name, content = Path(source).name, text_of(root, Path(_normal(file.parent / source, root)))
        if files.setdefault(name, content) != content:
            raise Invalid(f"two different files are called {name}")
        if name != source:
            lines = text.split("\n")
            lines[at.line - 1] = re.sub(rf"(?<![\w./-]){re.escape(source)}(?![\w./-])", name, lines[at.line - 1])
            text = "\n".join(lines)
    for beside in sorted(file.parent.glob("submission*")) + sorted(file.parent.glob("submissions/*/*")):
        if beside.is_file():
            files[beside.relative_to(file.parent).as_posix()] = text_of(root, beside)
    return _with_shared_classes(root, file, _adapted(file.parent.name, {"task.yml": text, **files}))


def _normal(place: Path, root: Path) -> str:
    found = place.resolve()
    if not found.is_relative_to(root):
        raise Invalid(f"{place.name} is outside of the collection")
    return str(found)


def _with_shared_classes(root: Path, file: Path, files: dict[str, Any]) -> Files:
    """Modules and enums that generate_input makes arrive with their class, so it moves to a file that submissions
    see."""
    text = files.get("reference.py")
    if not isinstance(text, str):
        return files
    tree = tree_of(text, root, file.parent / "reference.py")
    moved = _sent_classes(tree)
    if not moved or SHARED in files:
        return files
    used = {node.id for one in moved for node in ast.walk(one) if isinstance(node, ast.Name)}
    imports = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and {(alias.asname or alias.name).partition(".")[0] for alias in node.names} & used
    ]
    lines = text.splitlines(keepends=True)
    bodies = []
    for one in sorted(moved, key=lambda node: -node.lineno):
        begin = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]) - 1
        bodies.append("".join(lines[begin : one.end_lineno]).rstrip() + "\n")
        lines[begin : one.end_lineno] = [f"from {Path(SHARED).stem} import {one.name}\n"]
    listed = f'  - {{"name": "{SHARED}", "source": "{SHARED}"}}\n'
    task = files["task.yml"].replace("files:\n", f"files:\n{listed}", 1)
    return {
        **files,
        "task.yml": f"{task.rstrip()}\n\nkbslurm: {{runner_files: [{SHARED}]}}\n",
        "reference.py": "".join(lines),
        SHARED: "\n\n\n".join(["\n".join(imports), *reversed(bodies)]),
    }


def _sent_classes(tree: ast.Module) -> list[ast.ClassDef]:
    makes = next(
        (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "generate_input"), None
    )
    called = {node.func.id for node in ast.walk(makes) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
              } if makes else set()  # fmt: skip
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and node.name in called
        and any(ast.unparse(base).rpartition(".")[2] in WITH_CODE for base in node.bases)
    ]


def _adapted(name: str, files: dict[str, Any]) -> dict[str, Any]:
    reference = files.get("reference.py")
    if name not in ADAPTED or not isinstance(reference, str) or "def generate_input(" in reference:
        return files
    if any(f"def {one}(" not in reference for one in NEEDS):
        raise Invalid(f"its reference has none of the functions that the judge calls, nor {' and '.join(NEEDS)}")
    ours, lines = ADAPTED[name]
    text = files["task.yml"]
    listed = '  - {"name": "kbslurm_reference.py", "source": "kbslurm_reference.py"}\n'
    text = text.replace("files:\n", f"files:\n{listed}", 1) + f"\n{lines}"
    return {**files, "task.yml": text, "kbslurm_reference.py": part(ours)}
