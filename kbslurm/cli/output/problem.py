"""A problem, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.cli.output.printing import escape, out


def print_problem(found: Mapping[str, Any]) -> None:
    """Print a problem's task, as hosts are told of it."""
    console = out()
    head = f"[bold]{escape(found['name'])}[/]  {found['lang']}, {', '.join(found['modes'])}"
    console.print(f"{head}; digest {found['digest'][:12]}")
    if found["description"]:
        console.print(escape(found["description"].rstrip()), soft_wrap=True)
    counts = f"{len(found['tests'])} tests, {len(found['benchmarks'])} benchmarks, {found['hidden']} hidden cases"
    console.print(f"{counts}; ranked by {found['ranking_by']}")
    budget, cold = found["budget"], "cold" if found["cold"] in ("default", "yes") else "with warm caches"
    many = f"{budget['launches']} launches" + (
        f" or as many as ±{100 * budget['precision']:g} % takes, {budget['most_launches']} at most"
        if budget.get("precision")
        else ""
    )
    console.print(f"timed {cold} on a GPU, in {many}")
    limits = found["limits"]
    console.print(
        f"limits: test {limits['test_s']:g} s, benchmark {limits['benchmark_s']:g} s, "
        f"ranked {limits['ranked_s']:g} s, {limits['memory_bytes'] >> 20} MiB"
    )
    for gpu, lists in found.get("sizes", {}).items():
        said = ", ".join(f"{cases if isinstance(cases, int) else len(cases)} {name}" for name, cases in lists.items())
        console.print(f"on {escape(gpu)}: {said}")
    if found["templates"]:
        console.print(f"templates: {', '.join(sorted(found['templates']))}")
    if found.get("inputs"):
        console.print(f"inputs: {escape(found['inputs'])}", soft_wrap=True)
    for warning in found["warnings"]:
        console.print(f"[yellow]caution[/]: {escape(warning)}", soft_wrap=True)
