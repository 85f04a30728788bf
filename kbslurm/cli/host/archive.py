"""`kbslurm archive BOARD` and `kbslurm archive verify DIR`: everything of a board in a folder, and whether it holds."""

from __future__ import annotations

import dataclasses
import platform
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kbslurm.api import parquet as parquet_files
from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_BUG, EXIT_OK, KbslurmError

ArchiveFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The archive's folder.")]


def archive(
    name: BoardName,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must not exist yet.")],
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Everything, with names, code, logs and hidden cases: for your own keeping, not to hand on.",
        ),
    ] = False,
    parquet: Annotated[
        bool | None,
        typer.Option(
            "--parquet/--no-parquet",
            help="Also as Parquet (default: if pyarrow is installed, by pip install 'kbslurm[parquet]').",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Archive a board: problem versions, submissions, verdicts, raw samples and standings, with pages that open from
    disk.

    Without --private people are pseudonyms, and there is neither code nor anything of hidden cases, nor of what a
    freeze hides.
    """
    from kbslurm.api import archive_folder

    if parquet:
        parquet_files.check()
    as_parquet = parquet_files.is_there() if parquet is None else parquet
    folder = out.expanduser().absolute()
    archive_folder.check_free(folder)
    with host() as hosts, printing.progress(as_json) as tell:
        place = f"{platform.node()}:{folder}"
        with closing(hosts.archive(name, private=private, place=place)) as rows:
            found = archive_folder.write(
                printing.counting(rows, tell, lambda row: f"reading {row[0]}"),
                folder,
                private=private,
                parquet=parquet_files.ParquetFile if as_parquet else None,
                tell=lambda phase: tell({"phase": phase}),
            )
    board = str(archive_folder.check_archive(folder)["leaderboard"])
    if as_json:
        printing.as_json(archive_folder.as_answer(found, folder, board, private=private))
        return EXIT_OK
    if parquet is None and not as_parquet:
        printing.note("no Parquet: pyarrow isn't installed (pip install 'kbslurm[parquet]')")
    many, launches = counted(found.rows["submissions"], "submission"), counted(found.rows["samples"], "launch")
    launches = launches.replace("launchs", "launches")
    printing.say(f"{board} archived in {printing.path(folder)}: {many}, raw samples of {launches}, {found.files} files")
    printing.say(f"SHA-256 of its {archive_folder.SUMS}: {found.digest}")
    if private:
        printing.caution("it has names, code and hidden cases: keep it to yourself")
    return EXIT_OK


def verify(folder: ArchiveFolder, as_json: Json = False) -> int:
    """Check an archive without a database: every file's digest, every score from its raw samples, the standings from
    the scores.

    Scores and standings are computed by the code that the service uses. The exit code is 1 if anything differs.
    """
    from kbslurm.api import archive_folder
    from kbslurm.flow import archived

    board = archive_folder.check_archive(folder)
    with printing.progress(as_json) as tell:
        tell({"phase": "checking the files' digests"})
        files, changed = archive_folder.changed(folder)
        try:
            found = archived.verify(
                lambda table: printing.counting(
                    archive_folder.read(folder, table), tell, lambda row: f"recomputing from {table}"
                )
            )
        except (KbslurmError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            if not changed:
                raise
            found = archived.Findings()
            found.differs(f"the tables can't be read any more: {error}")
    holds = not changed and not found.different
    if as_json:
        printing.as_json(
            {
                "leaderboard": board["leaderboard"],
                "private": board["private"],
                "written_at": board["written_at"],
                "holds": holds,
                "files": files,
                "changed": changed,
                **dataclasses.asdict(found),
            }
        )
        return EXIT_OK if holds else EXIT_BUG
    printing.say(
        f"checked: {files} files, {found.scores} scores from the raw samples of {found.samples} launches,"
        f" {found.standings} places, {found.final_scores} scores of finals, {found.calibrations} sets of reference"
        f" times, {found.sources} sources"
    )
    if found.carried:
        printing.note(f"{found.carried} scores stand from submissions that their authors deleted")
    if found.unchecked:
        printing.note(f"{found.unchecked} scores couldn't be recomputed: they are older than what this version reads")
    for what in (*changed, *found.differences):
        printing.say(f"differs: {what}")
    if found.different > len(found.differences):
        printing.say(f"differs: {found.different - len(found.differences)} more")
    printing.say("everything is as it was written" if holds else "the archive is NOT as it was written")
    return EXIT_OK if holds else EXIT_BUG
