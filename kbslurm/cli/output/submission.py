"""A submission with its runs, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbslurm.cli.output.printing import coloured, escape, out, when
from kbslurm.domain import access, conditions, failed_tests, physics, profiles
from kbslurm.domain.amounts import score, span
from kbslurm.domain.verdict import why_unranked

if TYPE_CHECKING:
    from kbslurm.store.views import RunView, SubmissionView


FAILURES = 3  # lines of failed tests


def submission_json(view: SubmissionView) -> dict[str, Any]:
    """A submission as its owner may see it: of hidden cases, only whether they passed."""
    return {
        "submission": view.id,
        "board": view.board,
        "person": view.person,
        "mode": view.mode,
        "file_name": view.file_name,
        "sha256": view.sha256,
        "accepted_at": view.accepted_at,
        "done": view.is_done,
        "runs": [_run_json(run, view.mode) for run in view.runs],
    }


def _run_json(run: RunView, mode: str) -> dict[str, Any]:
    found = run.verdict
    return {
        "run": run.id,
        "gpu": run.gpu,
        "state": run.state,
        "standing": run.shown_state,
        "first_score_s": run.first_score_s,
        "reason": found.reason if found else run.waits_for or run.reason,
        "verdict": found.name if found else None,
        "score_s": found.score_s if found else None,
        "interval_s": [found.low_s, found.high_s] if found and found.score_s is not None else None,
        "ranked": found.ranked if found else False,
        "not_ranked": why_unranked(found, mode),
        "isolation": found.isolation if found else None,
        "speed_of_light": (found.detail or {}).get(physics.SPEED_OF_LIGHT) if found else None,
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
                "warm": a.warm,
            }
            for a in run.attempts
        ],
        "waterfall": {name: round(took, 6) for name, took in waterfall(run)},
        "report": access.shown_report(found.detail) if found else None,
    }


def print_digests(run: RunView) -> None:
    """Each profile in short, with the kernels that take most of the time."""
    console = out()
    for row in profiles.digests(run.verdict.detail if run.verdict else None):
        console.print(f"[bold]{escape(profiles.title(row))}[/]", soft_wrap=True)
        for sentence in profiles.sentences(row):
            console.print(f"  {escape(sentence)}", soft_wrap=True)
        for hint in row["hints"]:
            console.print(f"  [dim]hint: {escape(hint)}[/]", soft_wrap=True)
        for one in profiles.kernels(row):
            active = one["occupancy_pct"]
            more = f", {active:.0f} % of warps active" if active is not None else ""
            told = f"{100 * one['share']:5.1f} %  {span(one['mean_s']):>9} × {one['calls']}{more}  {one['name']}"
            console.print(f"    {escape(told)}", soft_wrap=True)
        if row["kernels_left_out"] or len(row["kernels"]) > profiles.KERNELS_SHOWN:
            left = len(row["kernels"]) - profiles.KERNELS_SHOWN + row["kernels_left_out"]
            console.print(f"    [dim]and {left} more[/]")


def profile_of(run: RunView) -> str:
    """The profile's summary, produced by the submission's own process."""
    return profiles.summary(run.verdict.detail if run.verdict else None)


def waterfall(run: RunView) -> list[tuple[str, float]]:
    """How long each step took so far, in seconds; of the last attempt, if there were several."""
    from kbslurm.domain import waterfall as falls

    return [(stage.name, stage.took_s) for stage in falls.waterfall(run.stamps)]


def print_submission(view: SubmissionView) -> None:
    """A submission with its runs, the reason for each verdict, and where the time went."""
    console = out()
    console.print(
        f"[bold]#{view.id}[/] {escape(view.file_name)} by {escape(view.person)} on {view.board}, {view.mode}, "
        f"{when(view.accepted_at)}"
    )
    for run in view.runs:
        console.print(_run_line(run, view.mode), soft_wrap=True)
        if run.went:
            console.print(f"      [dim]ran elsewhere: {escape(run.went)}[/]", soft_wrap=True)
        if run.warm:
            console.print(f"      [dim]{escape(run.warm)}[/]", soft_wrap=True)
        for line in (*run.given_up, *run.remarks):
            console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)
        for line in conditions.in_words(run.verdict.detail if run.verdict else None):
            console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)
        for line in _failures(run):
            console.print(f"      {escape(line)}", soft_wrap=True)
        if drawn := profile_of(run):
            told = profiles.digests(run.verdict.detail if run.verdict else None)
            for line in _lines_of(told) if told else drawn.splitlines():
                console.print(f"      [dim]{escape(line)}[/]", soft_wrap=True)
            console.print(f"      full profile: kbslurm profile {view.id} --out DIR", soft_wrap=True)
        if fall := waterfall(run):
            console.print("      [dim]" + " → ".join(f"{name} {span(took)}" for name, took in fall) + "[/]")


def _lines_of(digests: list[dict[str, Any]]) -> list[str]:
    return [line for row in digests for line in (profiles.title(row), *(f"  {one}" for one in profiles.sentences(row)))]


def _run_line(run: RunView, mode: str) -> str:
    found = run.verdict
    if found is None:
        why = run.waits_for or run.reason
        tail = f"  {escape(why)}" if why else ""
        if run.second and run.ended_at is None and run.first_score_s is not None:
            tail = f"  {score(run.first_score_s)} would improve the rank, so it is measured again{tail}"
        return f"{run.gpu:>6}  {coloured(run.shown_state)}{tail}"
    shown = (
        f"  {score(found.score_s, found.low_s, found.high_s, ranked=found.ranked)}" if found.score_s is not None else ""
    )
    unranked = why_unranked(found, mode)
    if unranked is not None:
        return f"{run.gpu:>6}  {coloured(found.name)}{shown}  [yellow]not ranked[/]: {escape(unranked)}"
    why = f"  {escape(found.reason)}" if found.reason else ""
    light = physics.light_in_words(found.detail)
    near = f"  [dim]{light}[/]" if light and found.score_s is not None else ""
    return f"{run.gpu:>6}  {coloured(found.name)}{shown}{near}{why}"


def _failures(run: RunView) -> list[str]:
    detail = (run.verdict.detail if run.verdict else None) or {}
    return failed_tests.in_words(access.shown_cases(detail, "tests"), FAILURES)
