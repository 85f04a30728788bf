"""A whole repository of problems, tried: does each load, can its inputs be made and sent, does its reference run here,
does its starter pass? Its commit is named, where it is a git repository.

    KBSLURM_PROBLEM_REPO=DIR make test-problems ARGS="--json --only NAME --cases 2 --limit 60"
    KBSLURM_PROBLEM_REPO=DIR make test-problems ARGS="--load-only" TORCH_PYTHON=/path/to/a/python that has torch

Every task.yml below DIR is tried by itself, on the CPU, with its smallest test cases, through the real harness; a
faulty one is a row of the table and nothing more. The problem sets of `problems/*.yaml` are read, too. Where DIR is one
of the collections that can be imported, which is recognised by its files or its remote, or said with `--collection`, it
is imported into a temporary folder first; `--collection none` takes each task.yml as it is. With `--quick` judge and
submission are in one process each, without a cage, and the libraries are loaded once for all: for large collections
that you trust. What a problem needs that isn't here is named: torch, a GPU, memory. With `TORCH_PYTHON`, a Python of
the same version as .venv's, everything runs by that one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from kbslurm.config import shared_folders
from kbslurm.domain.problem import Problem
from kbslurm.errors import KbslurmError
from kbslurm.problems import loading, problem_set
from kbslurm.problems.importing import collections
from kbslurm.trial import run
from kbslurm.trial.inputs import CHECKED, with_checked_inputs
from tests import problem_quick as quick
from tests.problem_collection import AS_IT_IS, recognised
from tests.problem_python import HINT, begun_again
from tests.problem_row import Row, needed, short

MEMORY_BYTES = 8 << 30


def main() -> int:
    """0 when the repository could be read, whatever is in it; 2 when there is none."""
    parser = argparse.ArgumentParser(prog="make test-problems", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    parser.add_argument("--only", default="", help="problems whose path contains this")
    parser.add_argument("--cases", type=int, default=2, help="so many of the smallest test cases (2)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the calls of one submission (60)")
    parser.add_argument(
        "--collection", default="", help=f"what to import it as, {AS_IT_IS} for not at all (what it is recognised as)"
    )
    parser.add_argument("--sample", type=int, default=0, help="try so many of them, evenly spread; load all")
    parser.add_argument("--quick", action="store_true", help="without the cage: a collection that you trust")
    parser.add_argument("--load-only", action="store_true", help="run nothing: does each load?")
    told = parser.parse_args()
    root = Path(os.environ.get("KBSLURM_PROBLEM_REPO", "."))
    if not os.environ.get("KBSLURM_PROBLEM_REPO") or not root.is_dir():
        print("Set KBSLURM_PROBLEM_REPO to the folder of a repository of problems.", file=sys.stderr)
        return 2
    if why := begun_again("tests.problem_repository"):
        print(why, file=sys.stderr)
        return 2
    collection = told.collection or recognised(root)
    told.collection = "" if collection == AS_IT_IS else collection
    commit, sets = _commit(root), list(_sets(root)) if told.collection in ("", "reference-kernels") else []
    with tempfile.TemporaryDirectory(prefix="kbslurm-collection-") as folder:
        rows: list[Row] = []
        lost: list[Row] = []
        name = root.name
        if told.collection:
            try:
                rows, lost = _imported(told.collection, root, Path(folder), told.only)
            except KbslurmError as error:
                print(error.message, file=sys.stderr)
                return 2
            root = Path(folder)
        return _report(told, root, name, commit, rows, lost, sets)


def _imported(collection: str, root: Path, out: Path, only: str) -> tuple[list[Row], list[Row]]:
    """Nothing yet, and a row for each problem that can't be imported."""
    lost = []
    for found in collections.chosen(collection, root.resolve(), only or None):
        one = collections.imported(found, root.resolve(), out)
        if not one.taken:
            lost.append(Row(problem=one.name, loads=False, why_not=short(one.why)))
    return [], lost


def _report(
    told: argparse.Namespace,
    root: Path,
    name: str,
    commit: str,
    rows: list[Row],
    lost: list[Row],
    sets: list[dict[str, str]],
) -> int:
    if not told.json:
        print(f"{name} at {commit or 'no commit'}: {_taken_as(told.collection)}")
        print(f"{'problem':<52} loads inputs    reference starter  why not")
    for row in lost:
        rows.append(row)
        if not told.json:
            _show(row)
    places = [p.parent for p in sorted(root.rglob("task.y*ml")) if told.only in str(p.parent) or told.collection]
    step = max(1.0, len(places) / told.sample) if told.sample else 1.0
    picked = {places[int(n * step)] for n in range(int(len(places) / step))}
    for place in places:
        rows.append(_tried(place, root, told, load_only=told.load_only or place not in picked))
        if place in picked and not told.json:
            _show(rows[-1])
    if told.json:
        print(
            json.dumps(
                {
                    "commit": commit,
                    "collection": told.collection,
                    "sets": sets,
                    "problems": [asdict(row) for row in rows],
                    "sums": _sums(rows),
                },
                indent=1,
            )
        )
    else:
        for found in sets:
            print(f"set {found['set']}: {found['said']}")
        print("  ".join(f"{name}{':' * name.startswith('needs')} {count}" for name, count in _sums(rows).items()))
        if any(row.needs.startswith("the library") for row in rows):
            print(HINT)
    return 0


def _taken_as(collection: str) -> str:
    if not collection:
        return "each task.yml as it is (--collection imports them first)"
    return f"imported as {collection} (--collection {AS_IT_IS} takes each task.yml as it is)"


def _commit(root: Path) -> str:
    argv = ["git", "-c", f"safe.directory={root.resolve()}", "-C", str(root), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _sets(root: Path) -> Iterator[dict[str, str]]:
    for file in sorted((root / "problems").glob("*.y*ml") if (root / "problems").is_dir() else root.glob("*.y*ml")):
        if not re.search(r"^['\"]?problems['\"]?\s*:", file.read_text(errors="replace"), re.MULTILINE):
            continue  # another tool's file
        try:
            found = problem_set.load_set(file, root=root)
            bad = [entry.name for entry, problem in problem_set.load_each(found) if isinstance(problem, KbslurmError)]
            said = f"{len(found.problems)} problems, {len(bad)} don't load as they are"
        except Exception as error:
            said = _line(error)
        yield {"set": file.name, "said": said}


def _tried(place: Path, root: Path, told: argparse.Namespace, *, load_only: bool) -> Row:
    name = str(place.resolve().relative_to(root.resolve()))
    try:
        problem = loading.load(place, root=root).for_gpu("cpu")
    except Exception as error:
        return Row(problem=name, loads=False, why_not=_line(error))
    if load_only:
        return Row(problem=name, loads=True)
    inputs = CHECKED
    try:
        if told.quick and problem.lang == "py" and not problem.multi_gpu:
            return quick.tried(problem, *_default(problem, place), name=name, cases=told.cases, limit_s=told.limit)
        row = _judged(problem, place, name, cases=told.cases, limit_s=told.limit)
        if not row.reference:  # otherwise the judge has just made and sent them
            inputs = short(with_checked_inputs(problem, eval_dir=shared_folders.eval_dir()).inputs)
        return replace(row, inputs=inputs, needs=needed(f"{inputs} {row.why_not}"))
    except Exception as error:
        return Row(problem=name, loads=True, inputs="faulty", why_not=_line(error))


def _judged(problem: Problem, place: Path, name: str, *, cases: int, limit_s: float) -> Row:
    small = replace(
        problem,
        tests=tuple(sorted(problem.tests, key=_size)[:cases]),
        limits=replace(problem.limits, test_s=limit_s, memory_bytes=MEMORY_BYTES, total_s=4 * limit_s),
    )
    source = _default(problem, place)
    with tempfile.TemporaryDirectory(prefix="kbslurm-problems-") as work:
        found = run.run_trial(
            small, source[0], source[1], "test", "cpu", work=Path(work), eval_dir=shared_folders.eval_dir()
        )
    report = found.report
    passed = report.verdict == "passed"
    at_fault = report.verdict == "infrastructure"
    return Row(
        problem=name,
        loads=True,
        reference=not at_fault,
        default=passed,
        why_not="" if passed else f"{report.verdict}: {short(report.reason)}",
        took_s=round(found.took_s, 1),
    )


def _default(problem: Problem, place: Path) -> tuple[str, str]:
    """The submission that lies beside the problem, or its template."""
    suffix = Path(problem.entry).suffix
    known = [
        *sorted(place.glob(f"submissions/accepted/*{suffix}")),
        *(place / problem.entry, *sorted(place.glob(f"submission*{suffix}")), *sorted(place.glob("template*"))),
    ]
    for file in known:
        if file.is_file() and file.suffix == suffix:
            return file.name, file.read_text(encoding="utf-8")
    for text in problem.templates.values():
        return problem.entry, text
    return problem.entry, "def custom_kernel(data):\n    return None\n"


def _size(case: object) -> float:
    size = 1.0
    for key, value in case.items() if isinstance(case, dict) else ():
        if isinstance(value, int) and not isinstance(value, bool) and key != "seed":
            size *= max(1, abs(value))
    return size


def _sums(rows: list[Row]) -> dict[str, int]:
    return {
        "problems": len(rows),
        "load": sum(row.loads for row in rows),
        "tried": sum(bool(row.inputs) for row in rows),
        "inputs checked": sum(row.inputs == "checked" for row in rows),
        "inputs unchecked": sum(row.inputs.startswith("unchecked") for row in rows),
        "reference runs": sum(row.reference for row in rows),
        "starter passes": sum(row.default for row in rows),
        **{f"needs {what}": count for what, count in sorted(Counter(row.needs for row in rows if row.needs).items())},
    }


def _show(row: Row) -> None:
    def mark(good: bool) -> str:
        return "yes" if good else "no"

    inputs = row.inputs.partition(":")[0] or "-"
    why = row.why_not if inputs != "unchecked" else f"inputs {row.inputs}; {row.why_not}"
    print(
        f"{row.problem:<52} {mark(row.loads):<5} {inputs:<9} {mark(row.reference):<9} {mark(row.default):<8} {why}",
        flush=True,
    )


def _line(error: Exception) -> str:
    return short(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
