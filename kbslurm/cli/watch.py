"""`kbslurm watch`: a submission from where it is to its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, opened_store
from kbslurm.domain.run import RunId, RunState, SubmissionId
from kbslurm.errors import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_REJECTED

if TYPE_CHECKING:
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import RunView, SubmissionView

LOOK_S = 2.0


@app.command()
def watch(
    submission: Annotated[int, typer.Argument(help="The submission's number.")],
    once: Annotated[bool, typer.Option("--once", help="Say how it stands and end.")] = False,
    as_json: Json = False,
) -> int:
    """Follow a submission to its verdict; ^C only stops the watching. --json prints one object at the end."""
    with opened_store() as store:
        if once:
            return shown(store.submission(SubmissionId(submission)), as_json=as_json)
        return followed(store, SubmissionId(submission), as_json=as_json)


def followed(store: PostgresStore, submission: SubmissionId, *, as_json: bool) -> int:
    """Wait for every run's end, telling each change once; then show the whole and return its exit code."""
    told: dict[RunId, str] = {}
    with show.progress(as_json) as tell:
        while True:
            view = store.submission(submission)
            for run in view.runs:
                if told.get(run.id) != run.standing and not as_json:
                    told[run.id] = run.standing
                    _say_move(run)
            if view.is_done:
                break
            tell({"phase": _waiting_for(view)})
            store.wait_for_news(LOOK_S)
    return shown(view, as_json=as_json)


def _say_move(run: RunView) -> None:
    node = run.attempts[-1].node if run.attempts else None
    where = f" on {node}" if run.state == "running" and node else ""
    show.out().print(f"{run.gpu}  {show.coloured(run.standing)}{where}")


def _waiting_for(view: SubmissionView) -> str:
    return ", ".join(f"{run.gpu} {run.standing}" for run in view.runs if run.ended_at is None)


def shown(view: SubmissionView, *, as_json: bool) -> int:
    """Print how it stands; the exit code that goes with it."""
    if as_json:
        show.as_json(show.submission_json(view))
    else:
        show.submission(view)
    return exit_code(view)


def exit_code(view: SubmissionView) -> int:
    """0: all passed, or not ended. 3: one was rejected. 6: the infrastructure failed one. 130: one was taken back.

    Of several the first in the order 3, 6, 130, 0.
    """
    names = {run.verdict.name for run in view.runs if run.verdict is not None}
    if names - {"passed", "infrastructure"}:
        return EXIT_REJECTED
    if "infrastructure" in names:
        return EXIT_INFRASTRUCTURE
    return EXIT_INTERRUPTED if any(run.state is RunState.CANCELLED for run in view.runs) else EXIT_OK
