"""`kbslurm profile`: what a profile left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import As, Json, app
from kbslurm.cli.service import service
from kbslurm.errors import Invalid


@app.command()
def profile(
    submission: Annotated[int, typer.Argument(help="The submission's number; it was made with --mode profile.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Put the files into this folder.")] = None,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Show a profile's summary and its files, or fetch them. They are whatever the submission wrote: mind what opens
    them."""
    with service(as_) as desk:
        view = desk.look(submission).view
        found = desk.artifacts(view)
        if view.mode != "profile":
            raise Invalid(
                f"submission {submission} is no profile, but a {view.mode}", hint="Submit it with --mode profile."
            )
        written = []
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            for one in found:
                path = out / f"{view.id}-{one.gpu}-{one.name}"
                path.write_bytes(desk.artifact(view, one.gpu, one.name))
                written.append(str(path))
    if as_json:
        rows = [{"gpu": one.gpu, "name": one.name, "size": one.size, "at": one.at} for one in found]
        told = [{"gpu": run.gpu, "summary": show.profile_of(run)} for run in view.runs]
        show.as_json({"submission": view.id, "profiles": told, "artifacts": rows, "written": written})
        return 0
    for run in view.runs:
        show.say(f"{run.gpu}:")
        show.say(show.profile_of(run) or "no profile")
    for one in found:
        show.say(f"{one.gpu}  {one.name}  {one.size} bytes")
    if not found:
        show.say("no files: the run hasn't passed, or they have been forgotten (they are kept for two weeks)")
    for path_text in written:
        show.say(f"wrote {path_text}")
    return 0
