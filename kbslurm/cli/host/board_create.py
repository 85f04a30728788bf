"""`kbslurm board create`: a new board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import As, BoardName, Json, Root
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import closing_time_of
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK, Invalid


def board_create(
    name: BoardName,
    gpus: Annotated[
        list[str] | None,
        typer.Option("--gpus", "--gpu", "-g", help="GPU types: A100,H100, or give the option several times."),
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="2026-12-24, 2026-12-24 18:00, or with a UTC offset.")] = None,
    zone: Annotated[str, typer.Option(help="The deadline's time zone, like Europe/Berlin.")] = "UTC",
    reference: Annotated[
        Path | None, typer.Option(help="A reference file or a problem's directory to add first.")
    ] = None,
    root: Root = None,
    problem: Annotated[str | None, typer.Option(help="An existing problem.")] = None,
    description: Annotated[str | None, typer.Option(help="A one-sentence description.")] = None,
    visibility: Annotated[str, typer.Option(help="public, or private: only by invitation.")] = "public",
    min_isolation: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=3,
            help="The minimum isolation level for a run to rank.",
            show_default="[policy] ranked_min_isolation",
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option("--confirm/--no-confirm", help="Confirm a rank improvement by a second measurement."),
    ] = True,
    course: Annotated[
        str | None, typer.Option(help="The course that it is of: everyone on its roster may see and enter it.")
    ] = None,
    teams: Annotated[
        bool, typer.Option("--teams", help="Members of a team count together, in standings and limits.")
    ] = False,
    teams_only: Annotated[
        bool, typer.Option("--teams-only", help="With --teams: whoever is in no team can't submit.")
    ] = False,
    practice: Annotated[
        bool, typer.Option("--practice", help="After the end go on taking submissions, which count nowhere.")
    ] = False,
    names: Annotated[
        str, typer.Option(help="What others see people as: real, nicknames that they may choose, or anonymous.")
    ] = "real",
    standings: Annotated[
        str, typer.Option(help="shown, own: people see only their own place, or hidden: nobody sees any.")
    ] = "shown",
    publish_reference: Annotated[
        bool,
        typer.Option("--publish-reference", help="Let people pull the reference and the baseline, to judge at home."),
    ] = False,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Create a board; with --reference FILE.py, also add its problem."""
    from kbslurm.problems.packing import Packed

    if (reference is None) == (problem is None):
        raise Invalid(
            "a board needs exactly one problem", hint="Pass --reference FILE.py, or --problem NAME for an existing one."
        )
    if root is not None and reference is None:
        raise Invalid("--root says where a reference's files may be", hint="Pass it with --reference.")
    board = contest.board_name(name)
    shown_to = contest.visibility(visibility)
    named, seen = contest.names_shown(names), contest.standings_shown(standings)
    sent = Packed(reference, name=board if reference.is_file() else None, root=root) if reference else None
    wanted = [contest.gpu_name(one) for many in gpus or [] for one in many.replace(",", " ").split()]
    if sent is not None and not wanted and not sent.problem.gpus:
        raise Invalid("a board needs at least one GPU type", hint="Pass --gpus H100 (or --gpus A100,H100).")
    with host(as_, creates=True) as hosts:
        answer = hosts.new_board(
            board,
            sent=sent,
            problem=problem,
            gpus=wanted,
            deadline=deadline,
            zone=zone,
            description=description,
            visibility=shown_to,
            min_isolation=min_isolation,
            confirm=confirm,
            course=course,
            teams=teams,
            teams_only=teams_only,
            practice=practice,
            names=named,
            standings=seen,
            publishes_reference=publish_reference,
        )
    made, ours = answer["board"], sent.problem.warnings if sent else ()
    for warning in (*ours, *answer["warnings"][len(ours) :]):  # the service knows other names for our files
        printing.caution(warning)
    if as_json:
        printing.as_json(made)
        return EXIT_OK
    closes = closing_time_of(made["deadline_at"], made["zone"])
    printing.say(f"board {made['board']}: problem {made['problem']}, {' '.join(made['gpus'])}, closes {closes}")
    if made["course"] is not None:
        together = ", whose teams count together" if made["teams"] else ""
        printing.say(f"it is of course {made['course']}{together}")
    printing.say(f"kbslurm submit FILE --leaderboard {made['board']} submits to it")
    return EXIT_OK
