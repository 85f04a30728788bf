"""`kbslurm try`: run one submission through the whole harness on this machine; no database, no daemon."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from kbslurm.cli.arguments import Entry, Json, Root, checked_mode, read_source
from kbslurm.cli.output import printing
from kbslurm.cli.output.trial import print_trial


class Profiler(StrEnum):
    """What may run around the submission for a profile."""

    NCU = "ncu"
    ROCPROF = "rocprof"


def try_(
    problem: Annotated[Path, typer.Argument(help="A problem's directory (with task.yml), or its one reference file.")],
    file: Annotated[Path, typer.Argument(help="The submission: a file, a folder, or a zip.")],
    mode: Annotated[str, typer.Option(help="test, benchmark, profile or leaderboard.")] = "leaderboard",
    gpu: Annotated[str, typer.Option(help="The GPU type reported to the submission.")] = "cpu",
    entry: Entry = None,
    root: Root = None,
    profiles: Annotated[Path | None, typer.Option(help="Folder for the profile's files (with --mode profile).")] = None,
    benchmark: Annotated[
        int | None, typer.Option("--benchmark", help="Profile only this benchmark, from 0; with --mode profile.", min=0)
    ] = None,
    profiler: Annotated[
        Profiler | None,
        typer.Option("--profiler", help="Also profile with ncu or rocprof, if they are installed here."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge one submission on this machine, as the competition would. Needs no database and no daemon.

    Exit code 0: passed. 3: rejected. 6: the machine or the problem failed, not the submission.
    """
    from kbslurm.config import shared_folders
    from kbslurm.domain.source import checked_source
    from kbslurm.problems import loading
    from kbslurm.trial import run

    asked = checked_mode(mode)
    loaded = loading.load(problem, root=root)
    source = checked_source(*read_source(file, entry))
    with TemporaryDirectory(prefix="kbslurm-try-") as work, printing.progress(as_json) as tell:
        found = run.run_trial(
            loaded,
            source.file_name,
            source.text,
            asked,
            gpu,
            work=Path(work),
            eval_dir=shared_folders.eval_dir(),
            on_heartbeat=tell,
            benchmark=benchmark,
            profiler=None if profiler is None else profiler.value,
        )
    if profiles is not None and found.artifacts:
        profiles.mkdir(parents=True, exist_ok=True)
        for name, data in found.artifacts.items():
            (profiles / name).write_bytes(data)
    print_trial(found, as_json=as_json)
    return run.exit_code(found.report.verdict)
