"""A problem's cases: each matches generate_input's parameters, and no two are the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kbslurm.domain.contest import gpu_name
from kbslurm.problems.fields import LIST_CAP, TEXT_CAP, at_place
from kbslurm.problems.folder import Task
from kbslurm.problems.marked_yaml import Marked
from kbslurm.problems.python_code import (
    Function,
)
from kbslurm_eval.shared.wire import Params, Scalar

CASES_CAP = 256
LISTS = ("tests", "benchmarks", "hidden")
RANKS_CAP = 64
FILLED_IN = ("device", "recorded")  # passed to generate_input by the judge, if it has these parameters
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class CaseCheck:
    """What a case may contain: JSON values under the names of generate_input's parameters."""

    generate: Function
    ranks: bool = False

    def cases(self, rows: Marked, *, least: int = 0) -> tuple[Params, ...]:
        items = rows.items()
        if not least <= len(items) <= CASES_CAP:
            raise rows.wrong(f"has {len(items)} cases; {least} to {CASES_CAP} are allowed")
        return tuple(self.case(row) for row in items)

    def case(self, row: Marked) -> Params:
        table = row.table()
        for key, item in table.items():
            if not PARAMETER_NAME.match(key):
                raise item.wrong(f"{key!r} isn't a valid parameter name")
        case = {key: self.value(item) for key, item in table.items()}
        if not self.ranks and "world_size" in case:
            raise table["world_size"].wrong("is how many GPUs a case has", hint="Set `multi_gpu: true`, or rename it.")
        if self.ranks:
            self.world(row, table)
        if told := mismatch(self.generate, {**case, "rank": 0} if self.ranks else case):
            raise row.wrong(told)
        return case

    def world(self, row: Marked, table: Mapping[str, Marked]) -> None:
        """A case of a multi-GPU problem says how many GPUs, and leaves the rank to the judge."""
        if "rank" in table:
            raise table["rank"].wrong("is set by the judge, since each rank has its own")
        if "world_size" not in table:
            raise row.wrong("lacks world_size, which multi_gpu requires in each case")
        table["world_size"].integer(2, RANKS_CAP)

    def value(self, item: Marked) -> Scalar | list[Scalar]:
        match item.value:
            case bool() | int() | float() | str():
                return self.scalar(item)
            case list() if len(item.value) <= LIST_CAP:
                return [self.scalar(inner) for inner in item.value]
            case list():
                raise item.wrong(f"has more than {LIST_CAP} values")
            case _:
                raise item.wrong(f"must be a number, string, true or false, or a list of these, not {item.kind}")

    def scalar(self, item: Marked) -> Scalar:
        match item.value:
            case bool() | float():
                return item.value
            case int():
                if abs(item.value) >= 2**63:
                    raise item.wrong(f"{item.raw} has more than 64 bits")
                return item.value
            case str():
                if len(item.value) > TEXT_CAP:
                    raise item.wrong(f"is longer than {TEXT_CAP:,} characters")
                return item.value
            case _:
                raise item.wrong(f"must be a number, string, true or false, not {item.kind}")


def sizes_of(task: Task, check: CaseCheck, *, benchmarks: bool) -> dict[str, dict[str, tuple[Params, ...]]]:
    """The cases that a problem has on some GPU types instead of its own, by list."""
    found: dict[str, dict[str, tuple[Params, ...]]] = {}
    if "sizes" not in task.own:
        return found
    if check.ranks:
        raise task.own["sizes"].wrong("isn't possible with several GPUs")
    for gpu, at in task.own["sizes"].table().items():
        name, lists = at_place(at, partial(gpu_name, gpu)), at.table()
        if unknown := sorted(set(lists) - set(LISTS)):
            raise lists[unknown[0]].wrong(f"isn't one of {', '.join(LISTS)}")
        if "benchmarks" in lists and not benchmarks:
            raise lists["benchmarks"].wrong("the problem itself has no benchmarks")
        if name.lower() in (known.lower() for known in found):
            raise at.wrong(f"{name} is listed twice")
        found[name] = {key: check.cases(cases, least=1) for key, cases in lists.items()}
    return found


def mismatch(generate: Function, case: Mapping[str, object]) -> str | None:
    """Why generate_input can't be called with this case, or None."""
    if not generate.known:
        return None
    if not generate.any_key and (strange := sorted(set(case) - set(generate.parameters))):
        return f"generate_input has no parameter {strange[0]} (it has {', '.join(generate.parameters) or 'nothing'})"
    if missing := [name for name in generate.required if name not in case and name not in FILLED_IN]:
        return f"generate_input needs {missing[0]}, which is missing in this case"
    return None
