"""What a problem's page says of its problem, beside the statement: cases as tables, limits, and what the judge does.

Pure. Of hidden cases it says whether there are any, and nothing else; nor how many calls are timed, which only boards
that publish their reference hand out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.api.pages.page_files import Table
from kbslurm.domain.problem import Problem
from kbslurm.problems.handout import has_hidden
from kbslurm.store.views import Board
from kbslurm_eval.shared.wire import Params

FOLDED = 12  # a longer table of cases is folded
LANGUAGES: Mapping[str, str] = {"py": "Python", "cu": "C++ or CUDA"}
ENDINGS: Mapping[str, str] = {"py": ".py", "cu": ".cu, .cuh or .cpp"}


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Cases as a table: a column per parameter. `gpus`: for which GPU types; none: for all."""

    kind: str
    gpus: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def is_long(self) -> bool:
        return len(self.rows) > FOLDED


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of what the judge does, in which modes, in sentences."""

    name: str
    modes: tuple[str, ...]
    said: tuple[str, ...]


def cases(board: Board) -> list[Cases]:
    """The public cases; once if they are the same on all GPU types."""
    found: list[Cases] = []
    for kind in ("tests", "benchmarks"):
        by_gpu = {gpu: tuple(getattr(board.problem.for_gpu(gpu), kind)) for gpu in board.gpus}
        by_gpu = by_gpu or {"": tuple(getattr(board.problem, kind))}
        different = list(dict.fromkeys(map(_key, by_gpu.values())))
        for key in different:
            gpus = tuple(gpu for gpu, rows in by_gpu.items() if _key(rows) == key)
            rows = by_gpu[gpus[0]]
            if rows:
                found.append(_table(kind, gpus if len(different) > 1 else (), rows))
    return found


def as_table(found: Sequence[Cases]) -> Table:
    """All of them as a file: a line for each case, with the parameters of all kinds as its columns."""
    names = dict.fromkeys(name for one in found for name in one.columns)
    rows = [
        {"kind": one.kind, "gpus": list(one.gpus), "number": n, **dict(zip(one.columns, row, strict=True))}
        for one in found
        for n, row in enumerate(one.rows)
    ]
    return Table(columns=("kind", "gpus", "number", *names), rows=rows, at="/cases")


def _key(rows: Sequence[Params]) -> str:
    return repr([list(row.items()) for row in rows])


def _table(kind: str, gpus: tuple[str, ...], rows: Sequence[Params]) -> Cases:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = tuple(tuple(_cell(row.get(name)) for name in columns) for row in rows)
    return Cases(kind=kind, gpus=gpus, columns=columns, rows=cells)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(_cell(one)) for one in value)
    return "" if value is None else value


def limits(board: Board) -> list[tuple[str, str]]:
    """What a submission may use, as names and values."""
    problem = board.problem
    allowed = problem.limits
    timed = {"tests": allowed.test_s, "benchmarks": allowed.benchmark_s, "ranked part": allowed.ranked_s}
    if len(set(timed.values())) == 1:
        found = [("Time per phase", _seconds(allowed.test_s))]
    else:
        found = [(f"Time for the {name}", _seconds(value)) for name, value in timed.items()]
    found += [
        ("Memory", _bytes(allowed.memory_bytes)),
        ("Processes", str(allowed.processes)),
        ("GPUs per run", str(problem.world_size)),
        ("Language", f"{LANGUAGES[problem.lang]} ({ENDINGS[problem.lang]})"),
    ]
    return found


def _seconds(value: float) -> str:
    return f"{value:g} s" if value < 600 else f"{value / 60:g} min"


def _bytes(value: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:,} bytes"


def judging(board: Board) -> list[Phase]:
    """What the judge does with a submission, phase by phase."""
    problem = board.problem
    everywhere = tuple(mode for mode in ("test", "benchmark", "leaderboard", "profile") if mode in problem.modes)
    timed = tuple(mode for mode in everywhere if mode != "test")
    found = [Phase(name="Tests", modes=everywhere, said=tuple(_tests(problem)))]
    if timed and problem.benchmarks:
        found.append(Phase(name="Benchmarks", modes=timed, said=tuple(_benchmarks(problem))))
    if "leaderboard" in problem.modes:
        found.append(Phase(name="Ranked runs", modes=("leaderboard",), said=tuple(_ranked(board))))
        if any(has_hidden(problem, gpu) for gpu in board.gpus):
            hidden = (
                "Cases that nobody has seen, under a seed of the run's own, must be right, too.",
                "You only learn whether they passed.",
            )
            found.append(Phase(name="Hidden cases", modes=("leaderboard",), said=hidden))
    if "profile" in problem.modes:
        once_more = "Some calls of the last two benchmarks are made once more under a profiler; nothing of it ranks."
        found.append(Phase(name="Profile", modes=("profile",), said=(once_more,)))
    return found


def _tests(problem: Problem) -> Iterator[str]:
    made = "compiled and loaded" if problem.lang == "cu" else "loaded"
    yield f"Your file is {made} in a process of its own and called with each test case; the judge checks every answer."
    if problem.multi_gpu:
        yield f"Each case is solved by {problem.world_size} processes at once, each with a GPU of its own."
    yield "If one is wrong, you are told which and where it differs."


def _benchmarks(problem: Problem) -> Iterator[str]:
    yield "Each benchmark is called many times in several fresh processes; what an empty call takes is taken off."
    if problem.is_cold:
        yield "On a GPU the caches are flushed before each timed call."
    yield "A time comes with a 95 % interval over these processes."


def _ranked(board: Board) -> Iterator[str]:
    problem = board.problem
    yield "The benchmarks are timed on inputs that nobody has seen: each call gets new ones; any answer may be checked."
    yield {
        "last": "The score is the time of the last benchmark; lower is better.",
        "mean": "The score is the mean of the benchmarks' times; lower is better.",
        "geom": "The score is the geometric mean of the benchmarks' times; lower is better.",
    }[problem.ranking_by]
    if problem.baseline is not None:
        yield "It is measured beside a baseline of the hosts', call by call, so that a slow node doesn't move it."
    if board.ranking == "last":
        yield "Your latest submission counts, on each GPU type."
    else:
        yield "Your best submission counts, on each GPU type."
    if board.confirm:
        yield "What would improve your score is measured a second time, and the second score counts."
    yield "Two scores that differ by less than can be measured are tied."
    if board.min_isolation:
        yield "A run ranks only where submissions are isolated well enough; its page says so if it wasn't."


FORBIDDEN = (
    (
        "Your file runs without network, apart from the process that holds the coming inputs, the right answers, the"
        " clock and the report."
    ),
    (
        "Answering before the work is done, keeping a thread at work after returning, and reaching for other processes"
        " or the judge's files is a violation, and the submission is rejected."
    ),
    "Caching results gains nothing, since inputs don't repeat.",
)
