"""`kbslurm watch`: follow a submission to its verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json, SubmissionNumber
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.competitor.service import Look, Service
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import print_places
from kbslurm.cli.output.submission import print_submission, submission_json
from kbslurm.domain.run import RunId, RunState
from kbslurm.errors import (
    EXIT_INFRASTRUCTURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_REJECTED,
    BackendTrouble,
    NotAccepting,
    NotFound,
)

if TYPE_CHECKING:
    from kbslurm.store.views import RunView, SubmissionView

LOOK_S = 2.0
# Laptops sleep and services restart: keep trying this long before giving up.
AWAY_S = 900.0
LONGEST_WAIT_S = 15.0


def watch(
    submission: SubmissionNumber,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    as_json: Json = False,
) -> int:
    """Follow a submission to its verdict; ^C stops only the watching. --json prints one object at the end.

    What ranks ends with your rank, how it compares with your best before it and with the leader, and whether that is
    within measurement error.
    """
    with service() as found:
        if once:
            look = found.look(submission)
            if not as_json and not look.view.is_done:
                printing.say(look.words)
            return shown(found, look.view, as_json=as_json)
        return followed(found, submission, as_json=as_json)


def followed(found: Service, submission: int, *, as_json: bool) -> int:
    """Wait until every run has ended, printing each change once; then show the result and return its exit code.

    ^C stops only the watching: it prints how to resume, and the exit code is 130.
    """
    told: dict[RunId, str] = {}
    try:
        with printing.progress(as_json) as tell:
            look: Look = found.look(submission)
            while True:
                for run in look.view.runs:
                    if told.get(run.id) != run.shown_state and not as_json:
                        told[run.id] = run.shown_state
                        _say_move(run)
                if look.view.is_done:
                    break
                tell({"phase": look.words})
                found.rest(LOOK_S)
                look = _looked(found, submission, tell)
    except KeyboardInterrupt:
        again = f"{printing.command()} watch {submission}"
        what = f"stopped watching; submission #{submission} goes on"
        return printing.interrupted(what, f"To resume: {again}", as_json=as_json)
    return shown(found, look.view, as_json=as_json)


def _looked(found: Service, submission: int, tell: printing.Tell) -> Look:
    """Poll, and keep polling while the service is unreachable: the submission itself goes on."""
    until, wait_s = time.monotonic() + AWAY_S, LOOK_S
    while True:
        try:
            return found.look(submission)
        except (BackendTrouble, NotAccepting) as error:
            if time.monotonic() > until:
                raise
            tell({"phase": f"{error.message}; trying again"})
            time.sleep(wait_s)
            wait_s = min(LONGEST_WAIT_S, wait_s * 1.5)


def _say_move(run: RunView) -> None:
    node = run.attempts[-1].node if run.attempts else None
    where = f" on {node}" if run.state == "running" and node else ""
    where += f", {run.warm}" if run.state == "running" and run.warm else ""
    printing.out().print(f"{run.gpu}  {printing.coloured(run.shown_state)}{where}")


def shown(found: Service, view: SubmissionView, *, as_json: bool) -> int:
    """Print the current state, once it has ended also the rank, and return its exit code."""
    told = _places(found, view)
    if as_json:
        printing.as_json({**submission_json(view), "places": told})
    else:
        print_submission(view)
        print_places(told)
    return exit_code(view)


def _places(found: Service, view: SubmissionView) -> list[Mapping[str, Any]]:
    """What it came to. The verdict is known by then: that the rank can't be had, from an older service for example,
    is no failure of the watching."""
    if not view.is_done:
        return []
    try:
        return list(found.places(view))
    except (BackendTrouble, NotAccepting, NotFound) as error:
        printing.note(f"the rank can't be shown: {error.message}")
        return []


def exit_code(view: SubmissionView) -> int:
    """0: all passed, or some still open. 3: one was rejected. 6: an infrastructure failure. 130: one was cancelled.

    If several apply, the first in the order 3, 6, 130, 0.
    """
    names = {run.verdict.name for run in view.runs if run.verdict is not None}
    if names - {"passed", "infrastructure"}:
        return EXIT_REJECTED
    if "infrastructure" in names:
        return EXIT_INFRASTRUCTURE
    return EXIT_INTERRUPTED if any(run.state is RunState.CANCELLED for run in view.runs) else EXIT_OK
