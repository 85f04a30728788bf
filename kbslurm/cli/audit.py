"""`kbslurm audit` and `kbslurm stats`: what hosts did, and what was done at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, opened_store
from kbslurm.errors import EXIT_OK


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many lines.")] = 50, as_json: Json = False
) -> int:
    """What hosts did, newest first."""
    with opened_store() as store:
        found = store.audit_log(limit=limit)
    if as_json:
        show.as_json(found)
        return EXIT_OK
    rows = []
    for event in found:
        facts = {name: value for name, value in event.data.items() if name != "by" and value not in (None, "")}
        told = ", ".join(f"{name}={value}" for name, value in facts.items())
        by = str(event.data.get("by", ""))
        rows.append(
            (show.when(event.at), show.escape(by), event.kind.removeprefix("staff."), event.subject, show.escape(told))
        )
    show.table(("when", "who", "act", "subject", ""), rows, wrap=4)
    return EXIT_OK


@app.command()
def stats(
    board: Annotated[str | None, typer.Argument(help="One board; by default all.")] = None,
    last_day: Annotated[bool, typer.Option("--last-day", help="Only what was submitted within a day.")] = False,
    as_json: Json = False,
) -> int:
    """Submissions, people, verdicts, GPU time: counts."""
    since = datetime.now(UTC) - timedelta(days=1) if last_day else None
    with opened_store() as store:
        found = store.stats(board=board, since=since)
    if as_json:
        show.as_json(found)
        return EXIT_OK
    show.say(f"{found['submissions']} submissions by {found['people']} people, {found['runs']} runs")
    show.say(f"{found['queued']} queued, {found['running']} running, {found['failed']} failed")
    if found["verdicts"]:
        show.say(", ".join(f"{count} {name}" for name, count in found["verdicts"].items()))
    rows = [(gpu, str(row["runs"]), f"{row['gpu_s']:.1f}") for gpu, row in found["gpus"].items()]
    if rows:
        show.table(("GPU", "runs", "GPU-seconds"), rows)
    return EXIT_OK
