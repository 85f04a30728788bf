"""`kbslurm grades BOARD` and `kbslurm grades why BOARD NAME`: points by a scheme, and how they came about."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.grade_files import Format, as_file
from kbslurm.domain.grading_scheme import SCHEME_CAP
from kbslurm.errors import EXIT_OK, Invalid, NotFound

ArchiveOption = Annotated[
    Path | None,
    typer.Option("--archive", help="Grade from this archive of the board instead of the service.", show_default=False),
]
SchemeFile = Annotated[Path, typer.Option("--scheme", "-s", help="The grading scheme, a TOML file.")]


def grades(
    name: BoardName,
    scheme: SchemeFile,
    form: Annotated[
        str, typer.Option("--format", "-f", help="table, csv, canvas, moodle or gradescope-roster.")
    ] = "table",
    column: Annotated[
        str | None, typer.Option(help="The graded column's heading, as the platform knows it (default: the board).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: standard output).")
    ] = None,
    archive: ArchiveOption = None,
    as_json: Json = False,
) -> int:
    """Grade a board: points for everybody on the roster, by a scheme, less what being late costs."""
    if form not in ("table", *get_args(Format)):
        raise Invalid(
            f"{form!r} isn't a format of grades", hint=f"Choose one of: table, {', '.join(get_args(Format))}."
        )
    found = _graded(name, scheme, archive)
    if found["open_runs"]:
        many = found["open_runs"]
        printing.caution(f"{many} run{'s' if many > 1 else ''} haven't ended: these grades can still change")
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    if form == "table":
        _table(found)
        return EXIT_OK
    text = as_file(found["grades"], cast("Format", form), column or found["leaderboard"])
    if out is None:
        sys.stdout.write(text)
        return EXIT_OK
    try:
        out.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise Invalid(f"can't write the grades ({error.strerror})", file=out) from None
    printing.say(f"{len(found['grades'])} grades written to {printing.path(out)}")
    return EXIT_OK


def why(
    name: BoardName,
    person: Annotated[str, typer.Argument(help="Their name here, full name, e-mail address or student ID.")],
    scheme: SchemeFile,
    archive: ArchiveOption = None,
    as_json: Json = False,
) -> int:
    """Explain a person's grade: the submission that counts, its points, and what being late cost."""
    found = _graded(name, scheme, archive)
    wanted = person.strip().lower()
    keys = ("name", "full_name", "email", "student_id")
    rows = [row for row in found["grades"] if wanted in {str(row[key]).lower() for key in keys if row[key]}]
    if not rows:
        raise NotFound(f"student of board {found['leaderboard']}", person)
    if len(rows) > 1:
        names = ", ".join(str(row["name"]) for row in rows)
        raise Invalid(f"{person!r} is the name of {len(rows)} people: {names}", hint="Use their name here.")
    (row,) = rows
    if as_json:
        printing.as_json({"leaderboard": found["leaderboard"], "gpu": found["gpu"], **row})
        return EXIT_OK
    printing.say(
        f"{row['full_name'] or row['name']}: {row['points']:.10g} of {row['of']:.10g} on {found['leaderboard']}"
    )
    for line in row["why"]:
        printing.say(f"  {line}")
    return EXIT_OK


def _graded(board: str, scheme: Path, archive: Path | None) -> Mapping[str, Any]:
    try:
        with scheme.open("rb") as file:
            data = file.read(SCHEME_CAP + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise Invalid(f"the scheme can't be read: {error.strerror}", file=scheme) from None
    except UnicodeDecodeError:
        raise Invalid("the scheme isn't UTF-8 text", file=scheme) from None
    if archive is not None:
        return _graded_from(archive, board, text)
    with host() as hosts:
        return hosts.grades(board, text)


def _graded_from(folder: Path, board: str, scheme: str) -> Mapping[str, Any]:
    """The same from an archive, without a database."""
    from kbslurm.api import archive_folder
    from kbslurm.api.hosting.grading import check_baseline, graded_gpu, grades_told
    from kbslurm.domain.grading_scheme import parsed_scheme
    from kbslurm.flow import archived

    told = archive_folder.check_archive(folder)
    name = str(told["leaderboard"])
    if name.lower() != board.strip().lower():
        raise Invalid(f"{folder} is an archive of board {name}, not of {board}", hint="Name the board that it is of.")
    _, changed = archive_folder.changed(folder)
    if changed:
        raise Invalid(
            f"{folder} isn't as it was written: {changed[0]}", hint="kbslurm archive verify says what changed."
        )
    index = archived.indexed(lambda table: archive_folder.read(folder, table))
    wanted = parsed_scheme(scheme, counts="last" if told["ranking"] == "last" else "best")
    gpu = graded_gpu(name, told["gpus"], wanted)
    check_baseline(name, wanted, gpu, index.baseline_s(gpu))
    zone = str(told["zone"])
    return grades_told(index.basis(gpu), wanted, board=name, gpu=gpu, zone=zone, open_runs=index.open_runs(gpu))


def _table(found: Mapping[str, Any]) -> None:
    rows = [
        (
            printing.escape(row["full_name"] or row["name"]),
            printing.escape(row["section"] or ""),
            f"{row['points']:.10g}",
            "" if row["submission"] is None else f"#{row['submission']}",
            "" if row["score_s"] is None else printing.score(row["score_s"]),
            f"−{row['lost_percent']:g} %" if row["lost_percent"] else "",
        )
        for row in found["grades"]
    ]
    title = f"{found['leaderboard']} · {found['gpu']}: grades of {found['of']:.10g}"
    printing.table(("who", "section", "points", "submission", "score", "late"), rows, title=title)
