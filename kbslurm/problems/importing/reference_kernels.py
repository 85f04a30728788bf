"""gpu-mode's reference-kernels: directories with a task.yml, in the format that ours is, with files beside them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kbslurm.errors import Invalid
from kbslurm.problems.fields import problem_name
from kbslurm.problems.folder import SUBMISSION, TASK_FILES
from kbslurm.problems.importing.source import Files, Found, part, text_of
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
            text = text.replace(f'"{source}"', f'"{name}"').replace(f"'{source}'", f"'{name}'")
            text = text.replace(f"source: {source}\n", f"source: {name}\n")
    for beside in sorted(file.parent.glob("submission*")) + sorted(file.parent.glob("submissions/*/*")):
        if beside.is_file():
            files[beside.relative_to(file.parent).as_posix()] = text_of(root, beside)
    return _adapted(file.parent.name, {"task.yml": text, **files})


def _normal(place: Path, root: Path) -> str:
    found = place.resolve()
    if not found.is_relative_to(root):
        raise Invalid(f"{place.name} is outside of the collection")
    return str(found)


def _adapted(name: str, files: dict[str, Any]) -> Files:
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
