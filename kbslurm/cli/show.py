"""All that `kbslurm` prints: the same words for the same things everywhere, as text or as one JSON object."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape as escape
from rich.table import Table

from kbslurm.domain import public
from kbslurm.domain.amounts import score as score
from kbslurm.domain.amounts import seconds as seconds
from kbslurm.domain.amounts import span as span
from kbslurm.errors import KbslurmError

if TYPE_CHECKING:
    from kbslurm.domain.board import Standing
    from kbslurm.domain.problem import Problem
    from kbslurm.store.views import RunView, SubmissionView
    from kbslurm.trial.run import Trial
    from kbslurm_eval.wire import BenchmarkResult

Tell = Callable[[Mapping[str, Any]], None]

COLOURS = {
    "passed": "green",
    "wrong": "red",
    "error": "red",
    "timeout": "yellow",
    "memory": "yellow",
    "violation": "bold red",
    "infrastructure": "magenta",
    "queued": "dim",
    "launching": "cyan",
    "confirming": "cyan",
    "calibrating": "dim",
    "running": "cyan",
    "cancelled": "dim",
    "failed": "magenta",
}
UNRESOLVED = "UNRESOLVED"  # the harness's flag on a benchmark


def out() -> Console:
    """Where answers go. Not a terminal: no colour, and lines are never cut to a width that nobody sees."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 120)


def err() -> Console:
    """Where progress and troubles go."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """One line of plain text."""
    out().print(escape(text), soft_wrap=True)


def as_json(value: Any) -> None:
    """One JSON value on standard output, and nothing else."""
    _print_json(value)


def _print_json(value: Any) -> None:
    print(json.dumps(value, default=plain, indent=2 if sys.stdout.isatty() else None), flush=True)


def plain(value: Any) -> Any:
    """A value as JSON can carry it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


def error(found: KbslurmError, *, as_json: bool) -> None:
    """An error of the tree: one sentence and what to do next."""
    if as_json:
        kind = type(found).__name__
        print(json.dumps({"error": {"kind": kind, "message": found.message, "hint": found.hint}}), flush=True)
        return
    console = err()
    console.print(f"[bold red]error[/]: {escape(found.message)}")
    if found.hint:
        console.print(f" [bold]hint[/]: {escape(found.hint)}")


# ------------------------------------------------------------------------------------------------------------ amounts


def when(at: datetime | None) -> str:
    """A moment in the reader's own zone."""
    return "–" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """How long since: `12 s`, `3 min`, `2 h`, `4 d`."""
    return "–" if at is None else span(((now or datetime.now(UTC)) - at).total_seconds())


def coloured(word: str) -> str:
    """A state or verdict in its colour."""
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/]" if colour else escape(word)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None, wrap: int = -1) -> None:
    """A plain table. Cells may carry markup; the column `wrap` is the one that folds."""
    found = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for n, heading in enumerate(headings):
        found.add_column(heading, overflow="fold", no_wrap=n != wrap % len(headings))
    for row in rows:
        found.add_row(*row)
    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(found)


@contextmanager
def progress(quiet: bool) -> Iterator[Tell]:
    """A live line on standard error while something long runs; silent without a terminal and when asked."""
    console = err()
    if quiet or not console.is_terminal:
        yield lambda beat: None
        return
    with console.status("starting") as status:

        def tell(beat: Mapping[str, Any]) -> None:
            done, of = beat.get("done"), beat.get("of")
            count = f" {done}/{of}" if done is not None and of else ""
            status.update(escape(f"{beat.get('label', '')}{beat.get('phase', 'working')}{count}"))

        yield tell


# ------------------------------------------------------------------------------------------------------------- a trial


def trial(found: Trial, *, as_json: bool) -> None:
    """What `kbslurm try` came to."""
    from kbslurm.trial import run as trials

    if as_json:
        _print_json(trials.as_try_json(found))
        return
    report, console = found.report, out()
    console.print(f"{coloured(report.verdict)}  {escape(report.reason)}".rstrip())
    if report.score_s is not None and report.interval_s:
        note = "" if report.paired else "  (unpaired: the problem has no baseline)"
        console.print(f"score     {score(report.score_s, *report.interval_s)}{note}")
    for phase in report.phases:
        took = span((phase.ended_at_ns - phase.started_at_ns) / 1e9)
        # A phase that the machine or the problem broke off is nobody's failure, and nobody's success.
        broken_off = report.verdict == "infrastructure" and phase is report.phases[-1]
        came = "[yellow]broken off[/]" if broken_off else "[green]ok[/]" if phase.passed else "[red]no[/]"
        console.print(f"{phase.name:<9} {came}  {took}")
    for result in report.benchmarks:
        if result.phase == "benchmark" and result.median_ns is not None:
            console.print(f"  {escape(result.spec)}: {measured(result)}")
    for test in report.tests:
        if test.status != "pass" and test.message:
            console.print(f"  {test.phase} {test.index + 1} ({escape(test.spec)}): {escape(test.message)}")
    if report.profile:
        console.print(escape(report.profile), soft_wrap=True)
    console.print(f"isolation {report.isolation.level} ({escape(report.isolation.means)}), took {span(found.took_s)}")
    if report.log.strip():
        console.print("[bold]its output[/]")
        console.print(escape(report.log.rstrip()), soft_wrap=True)


def measured(result: BenchmarkResult) -> str:
    """A benchmark's time. What this machine can't resolve has an interval that says nothing; then the words do."""
    median_s = (result.median_ns or 0.0) / 1e9
    low, high = result.low_ns, result.high_ns
    if UNRESOLVED in result.flags:
        return f"at most {seconds(median_s)} (too short to be timed on this machine, so it wouldn't rank)"
    return score(median_s, low and low / 1e9, high and high / 1e9)


def command() -> str:
    """How to call kbslurm again from here: by its name where the shell finds it, else by the path of this one."""
    called = Path(sys.argv[0])
    if called.name != "kbslurm" or shutil.which("kbslurm") is not None:
        return "kbslurm"
    return path(Path.cwd() / called)


def path(found: Path) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(found.relative_to(Path.cwd()))
    except ValueError:
        return str(found)


# ------------------------------------------------------------------------------------------------------- submissions


def submission_json(view: SubmissionView) -> dict[str, Any]:
    """A submission as its owner may see it: nothing of hidden cases but whether they passed."""
    return {
        "submission": view.id,
        "board": view.board,
        "person": view.person,
        "mode": view.mode,
        "file_name": view.file_name,
        "sha256": view.sha256,
        "accepted_at": view.accepted_at,
        "done": view.is_done,
        "runs": [_run_json(run) for run in view.runs],
    }


def _run_json(run: RunView) -> dict[str, Any]:
    found = run.verdict
    return {
        "run": run.id,
        "gpu": run.gpu,
        "state": run.state,
        "standing": run.standing,
        "first_score_s": run.first_score_s,
        "reason": found.reason if found else run.waits_for or run.reason,
        "verdict": found.name if found else None,
        "score_s": found.score_s if found else None,
        "interval_s": [found.low_s, found.high_s] if found and found.score_s is not None else None,
        "ranked": found.ranked if found else False,
        "isolation": found.isolation if found else None,
        "attempts": [
            {
                "number": a.number,
                "backend": a.backend,
                "job": a.handle,
                "node": a.node,
                "state": a.state,
                "ending": a.ending,
                "reason": a.reason,
                "why": a.why_here,
            }
            for a in run.attempts
        ],
        "waterfall": {name: round(took, 6) for name, took in waterfall(run)},
        "report": public.report(found.detail) if found else None,
    }


def profile_of(run: RunView) -> str:
    """What a profile said of itself; the submission's own process drew it."""
    detail = run.verdict.detail if run.verdict else None
    return str((detail or {}).get("profile", ""))


def waterfall(run: RunView) -> list[tuple[str, float]]:
    """How long each room took, in seconds, as far as it has come; of the last attempt, where there were more."""
    from kbslurm.domain import waterfall as falls

    last = run.attempts[-1] if run.attempts else None
    told = last.telemetry if last else {}
    stamps = falls.Stamps(
        accepted_at=run.queued_at,
        claimed_at=last.opened_at if last else None,
        submitted_at=last.submitted_at if last else None,
        harness_started_at=falls.moment(told.get("harness_started_at_ns")) or (last.started_at if last else None),
        harness_ended_at=falls.moment(told.get("harness_ended_at_ns")),
        collected_at=last.ended_at if last else None,
        scored_at=run.verdict_at,
    )
    return [(stage.name, stage.took_s) for stage in falls.waterfall(stamps)]


def submission(view: SubmissionView) -> None:
    """A submission with its runs, why each ended so, and where the time went."""
    console = out()
    console.print(
        f"[bold]#{view.id}[/] {escape(view.file_name)} by {escape(view.person)} on {view.board}, {view.mode}, "
        f"{when(view.accepted_at)}"
    )
    for run in view.runs:
        console.print(_run_line(run), soft_wrap=True)
        if run.went:
            console.print(f"      [dim]it went elsewhere: {escape(run.went)}[/]", soft_wrap=True)
        for line in _given_up(run):
            console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)
        for line in _failures(run):
            console.print(f"      {escape(line)}", soft_wrap=True)
        if drawn := profile_of(run):
            for line in drawn.splitlines():
                console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)
            console.print(f"      all of it: kbslurm profile {view.id} --out DIR", soft_wrap=True)
        if fall := waterfall(run):
            console.print("      [dim]" + " → ".join(f"{name} {span(took)}" for name, took in fall) + "[/]")


def _run_line(run: RunView) -> str:
    found = run.verdict
    if found is None:
        why = run.waits_for or run.reason
        tail = f"  {escape(why)}" if why else ""
        if run.second and run.ended_at is None and run.first_score_s is not None:
            tail = f"  {score(run.first_score_s)} would improve the rank, so it is measured once more{tail}"
        return f"{run.gpu:>6}  {coloured(run.standing)}{tail}"
    shown = f"  {score(found.score_s, found.low_s, found.high_s)}" if found.score_s is not None else ""
    why = f"  {escape(found.reason)}" if found.reason else ""
    unranked = "  [dim](not ranked)[/]" if found.score_s is not None and not found.ranked else ""
    return f"{run.gpu:>6}  {coloured(found.name)}{shown}{unranked}{why}"


def _given_up(run: RunView) -> list[str]:
    """The tries that came to nothing through no fault of the submission's, while there is or was another."""
    return [
        f"attempt {a.number} at {a.backend} was given up: {a.reason or a.ending}"
        for a in run.attempts
        if a.state in ("dead", "refused") and a.number < run.attempt_count
    ]


def _failures(run: RunView) -> list[str]:
    detail = (run.verdict.detail if run.verdict else None) or {}
    rows = [
        r for r in detail.get("tests", ()) if r.get("phase") != "hidden" and r.get("status") not in ("pass", "skipped")
    ]
    return [f"{r['phase']} {r['index'] + 1} ({r['spec']}): {r['message']}" for r in rows[:3] if r.get("message")]


def standings(
    board: str, by_gpu: Mapping[str, Sequence[Standing]], *, limit: int, notes: Mapping[str, str] | None = None
) -> None:
    """A board, one table per GPU type. `notes`: what is to be known of the scores there."""
    for gpu, rows in by_gpu.items():
        if note := (notes or {}).get(gpu):
            say(f"{board} · {gpu}: {note}")
        if not rows:
            say(f"{board} · {gpu}: nobody ranks yet")
            continue
        cells = [
            (
                _rank(row),
                escape(row.entry.person),
                score(row.entry.score_s, row.entry.low_s, row.entry.high_s),
                when(row.entry.at),
                f"#{row.entry.submission_id}",
                escape(row.entry.file_name),
            )
            for row in rows[:limit]
        ]
        table(("rank", "person", "score", "when", "submission", "file"), cells, title=f"{board} · {gpu}")
        if len(rows) > limit:
            say(f"and {len(rows) - limit} more; --limit shows them")


def _rank(row: Standing) -> str:
    """The rank; where the measurements can't tell it from others, the range of places that it may have."""
    return f"{row.rank}" if not row.tied_with else f"{row.rank} ({row.best_rank}–{row.worst_rank})"


def problem(found: Problem) -> None:
    """What a problem asks."""
    console = out()
    console.print(f"[bold]{escape(found.name)}[/]  {found.lang}, {', '.join(found.modes)}; digest {found.digest[:12]}")
    if found.description:
        console.print(escape(found.description.rstrip()), soft_wrap=True)
    counts = f"{len(found.tests)} tests, {len(found.benchmarks)} benchmarks, {len(found.hidden)} hidden cases"
    console.print(f"{counts}; ranked by {found.ranking_by}")
    limits = found.limits
    console.print(
        f"limits: test {limits.test_s:g} s, benchmark {limits.benchmark_s:g} s, ranked {limits.ranked_s:g} s, "
        f"{limits.memory_bytes >> 20} MiB"
    )
    if found.templates:
        console.print(f"templates: {', '.join(sorted(found.templates))}")
    for warning in found.warnings:
        console.print(f"[yellow]caution[/]: {escape(warning)}", soft_wrap=True)
