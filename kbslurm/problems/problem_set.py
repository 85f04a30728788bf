"""A problem set: problems in order, each with its board's name, deadline and GPU types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kbslurm.domain.contest import board_name, parsed_deadline, zone
from kbslurm.domain.problem import Problem
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.problems.fields import at_place, capped_text, gpu_types, required_value
from kbslurm.problems.folder import repository_root
from kbslurm.problems.loading import load
from kbslurm.problems.marked_yaml import Marked, read_yaml, unknown_keys

SET_KEYS = frozenset({"name", "deadline", "description", "zone", "problems"})
ENTRY_KEYS = frozenset({"directory", "name", "deadline", "gpus"})


@dataclass(frozen=True, kw_only=True)
class SetEntry:
    """One problem of a set: where it is, and the board that it becomes."""

    directory: Path
    name: str
    deadline: datetime | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProblemSet:
    """A competition as described by its YAML file. `root` is the folder that must contain its problems' files."""

    name: str
    description: str
    deadline: datetime | None
    zone: str
    root: Path
    problems: tuple[SetEntry, ...]
    warnings: tuple[str, ...] = ()


def load_set(path: Path, *, root: Path | None = None) -> ProblemSet:
    """The problem set in this YAML file. Directories are relative to it; the problems themselves aren't loaded."""
    if not path.is_file():
        raise NotFound("problem set", str(path), hint="Give a problem set's YAML file.")
    file = path.resolve()
    table = read_yaml(file).table()
    zone_name = table["zone"].text() if "zone" in table else "UTC"
    at_place(table.get("zone"), lambda: zone(zone_name))
    root = (root or repository_root(file.parent) or file.parent).resolve()
    deadline = _deadline(table.get("deadline"), zone_name)
    rows = required_value(table, "problems", file).items()
    problems = tuple(_set_entry(row, file.parent, root, zone_name, deadline) for row in rows)
    _refuse_twins(rows, [entry.name for entry in problems])
    warnings = unknown_keys(table, SET_KEYS) + [w for row in rows for w in unknown_keys(row.table(), ENTRY_KEYS)]
    return ProblemSet(
        name=capped_text(table["name"]) if "name" in table else file.stem,
        description=capped_text(table["description"]) if "description" in table else "",
        deadline=deadline,
        zone=zone_name,
        root=root,
        problems=problems,
        warnings=tuple(warnings),
    )


def load_each(found: ProblemSet) -> Iterator[tuple[SetEntry, Problem | KbslurmError]]:
    """Each problem of the set under its board's name, or why it can't be loaded: one faulty problem hides no other."""
    for entry in found.problems:
        try:
            yield entry, load(entry.directory, root=found.root, name=entry.name)
        except KbslurmError as error:
            yield entry, error


def _set_entry(row: Marked, base: Path, root: Path, zone_name: str, usual: datetime | None) -> SetEntry:
    table = row.table()
    at = required_value(table, "directory", row.file, row)
    directory = (base / at.text()).resolve()
    if not directory.is_relative_to(root):
        raise at.wrong(f"{at.text()} is outside {root.name}/")
    if not directory.is_dir():
        raise at.wrong(f"there is no directory {at.text()}", hint="Directories are relative to the set's YAML file.")
    named = table.get("name")
    return SetEntry(
        directory=directory,
        name=at_place(named or at, lambda: board_name(named.text() if named else directory.name)),
        deadline=_deadline(table["deadline"], zone_name) if "deadline" in table else usual,
        gpus=gpu_types(table),
    )


def _refuse_twins(rows: Sequence[Marked], names: Sequence[str]) -> None:
    for n, name in enumerate(names):
        if name in names[:n]:
            raise rows[n].wrong(f"the board {name} appears twice in the set")


def _deadline(at: Marked | None, zone_name: str) -> datetime | None:
    if at is None or at.value is None or at.value == "":
        return None
    return at_place(at, lambda: parsed_deadline(at.text(), zone_name))
