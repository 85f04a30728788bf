"""Single values in a problem's files: names, GPU types, limits, budgets; each error says where it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kbslurm.domain.contest import gpu_name
from kbslurm.domain.problem import Cold
from kbslurm.errors import Invalid
from kbslurm.problems.marked_yaml import Marked
from kbslurm_eval.shared import time_limits
from kbslurm_eval.shared.wire import Budget, Limits

FEWEST_PLANNED, MOST_LAUNCHES = 3, 20
LEAST_PRECISION, MOST_PRECISION = 0.001, 0.2
FILE_CAP = 1_000_000
LIST_CAP = 4096
TEXT_CAP = 100_000
K = TypeVar("K", bound=str)
T = TypeVar("T")


def call_budgets(own: Mapping[str, Marked]) -> dict[str, Any]:
    if "call" not in own:
        return {}
    called = own["call"]
    return {"call": list(called.texts()) if isinstance(called.value, list) else called.text()}


def limits_of(table: Mapping[str, Marked], own: Mapping[str, Marked]) -> Limits:
    usual = Limits()
    timeout = {
        key: table[key].number(0.1, 7200) if key in table else default
        for key, default in (
            ("test_timeout", usual.test_s),
            ("benchmark_timeout", usual.benchmark_s),
            ("ranked_timeout", usual.ranked_s),
        )
    }
    test_s, benchmark_s, ranked_s = timeout.values()
    phases = Limits(test_s=test_s, benchmark_s=benchmark_s, ranked_s=ranked_s)
    return replace(
        phases,
        total_s=time_limits.phases_s(phases, "leaderboard"),
        memory_bytes=own["memory_mb"].integer(16, 1 << 22) << 20 if "memory_mb" in own else usual.memory_bytes,
        processes=own["processes"].integer(1, 65536) if "processes" in own else usual.processes,
    )


def budget_of(own: Mapping[str, Marked]) -> Budget:
    usual = Budget()
    launches = own["launches"].integer(1, 50) if "launches" in own else usual.launches
    precision = precision_of(own["precision"]) if "precision" in own else 0.0
    if precision and launches < FEWEST_PLANNED:
        raise own["precision"].wrong(
            f"needs at least {FEWEST_PLANNED} launches, and launches is {launches}",
            hint="How many are added is decided by the spread of the first ones.",
        )
    if "most_launches" in own and not precision:
        raise own["most_launches"].wrong("says how many launches a precision may take, and there is none")
    most = own["most_launches"].integer(launches, 50) if "most_launches" in own else max(MOST_LAUNCHES, launches)
    calls = own["calls"].integer(1, 10_000) if "calls" in own else usual.calls
    return Budget(
        launches=launches,
        calls=calls,
        max_calls=own["max_calls"].integer(calls, 100_000) if "max_calls" in own else max(usual.max_calls, calls),
        target_s=own["target_s"].number(0.0, 60.0) if "target_s" in own else usual.target_s,
        precision=precision,
        most_launches=most if precision else 0,
    )


def precision_of(at: Marked) -> float:
    """A fraction, written as a percentage or a number."""
    found = re.fullmatch(r"(\d{1,2}(?:\.\d{1,3})?)\s*%", at.value) if isinstance(at.value, str) else None
    value = float(found[1]) / 100 if found else at.number(0.0, 1.0)
    if not LEAST_PRECISION <= value <= MOST_PRECISION:
        raise at.wrong("must be between 0.1% and 20%", hint='Write it like "1%".')
    return value


def cold_of(own: Mapping[str, Marked]) -> Cold:
    if "cold" not in own:
        return "default"
    return "yes" if own["cold"].flag() else "no"


def as_marked(value: Any, file: Path, line: int, key: str) -> Marked:
    """A Python literal, treated as if it were in a YAML file."""
    inner: Any = value
    match value:
        case list() | tuple():
            inner = [as_marked(item, file, line, f"{key}[{n}]") for n, item in enumerate(value)]
        case dict():
            inner = {str(name): as_marked(item, file, line, f"{key}.{name}") for name, item in value.items()}
        case None | bool() | int() | str():
            pass
        case float() if value == value and abs(value) != float("inf"):
            pass
        case _:
            raise Invalid(f"{type(value).__name__} isn't allowed as a case's value", file=file, line=line, key=key)
    return Marked(file=file, line=line, key=key, value=inner, raw=str(value)[:200])


def problem_name(text: str) -> str:
    """A valid board name, made from a folder's or file's name."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or "problem"


def at_place(at: Marked | None, make: Callable[[], T]) -> T:
    """The result of `make`; its Invalid is raised again with the place in the file."""
    try:
        return make()
    except Invalid as error:
        if at is None:
            raise
        raise at.wrong(error.message, hint=error.hint) from None


def required_value(table: Mapping[str, Marked], key: str, file: Path, row: Marked | None = None) -> Marked:
    if key in table:
        return table[key]
    if row is not None:
        raise row.wrong(f"the key {key} is missing")
    raise Invalid(f"the key {key} is missing", file=file)


def gpu_types(table: Mapping[str, Marked]) -> tuple[str, ...]:
    if "gpus" not in table:
        return ()
    return tuple(at_place(gpu, partial(gpu_name, gpu.text())) for gpu in table["gpus"].items())


def capped_text(at: Marked) -> str:
    text = at.text()
    if len(text) > TEXT_CAP:
        raise at.wrong(f"is longer than {TEXT_CAP:,} characters")
    return text


def choice_of(table: Mapping[str, Marked], key: str, default: K, *others: K) -> K:
    return table[key].one_of(default, *others) if key in table else default
