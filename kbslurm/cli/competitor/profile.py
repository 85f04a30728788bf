"""`kbslurm profile`: the results of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import As, Json, submission_number
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.output import printing
from kbslurm.cli.output.submission import print_digests, profile_of
from kbslurm.domain import profiles
from kbslurm.errors import Invalid


def profile(
    submission: Annotated[
        int,
        typer.Argument(
            help="The number of a submission made with --mode profile.",
            parser=submission_number,
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Download the files into this folder.")] = None,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Show what limits a profiled kernel, or download its files.

    The submission wrote the files, so be careful how you open them. With --json the digests are for programs: sentences
    on what limits the kernel and what to try, and the kernels with their times, shares and metrics.
    """
    with service(as_) as found:
        view = found.look(submission).view
        files = found.artifacts(view)
        if view.mode != "profile":
            raise Invalid(
                f"submission {submission} is a {view.mode}, not a profile", hint="Submit it with --mode profile."
            )
        written = []
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            for one in files:
                path = out / f"{view.id}-{one.gpu}-{one.name}"
                path.write_bytes(found.artifact(view, one.gpu, one.name))
                written.append(str(path))
    if as_json:
        rows = [{"gpu": one.gpu, "name": one.name, "size": one.size, "at": one.at} for one in files]
        told = [
            {
                "gpu": run.gpu,
                "summary": profile_of(run),
                "digests": profiles.digests(run.verdict.detail if run.verdict else None),
            }
            for run in view.runs
        ]
        printing.as_json({"submission": view.id, "profiles": told, "artifacts": rows, "written": written})
        return 0
    for run in view.runs:
        printing.say(f"{run.gpu}:")
        print_digests(run)
        printing.say(profile_of(run) or "no profile")
    for one in files:
        printing.say(f"{one.gpu}  {one.name}  {one.size} bytes")
    if not files:
        printing.say("no files: the run hasn't passed, or they were deleted (files are kept for two weeks)")
    for path_text in written:
        printing.say(f"wrote {path_text}")
    return 0
