"""`kbslurm board edit`: change a board."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK


def board_edit(
    name: BoardName,
    description: Annotated[str | None, typer.Option(help="A one-sentence description.")] = None,
    gpus: Annotated[
        list[str] | None, typer.Option("--gpus", "--gpu", "-g", help="The complete new list of GPU types.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="2026-12-24, 2026-12-24 18:00, with a UTC offset, or never.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="The deadline's time zone.")] = None,
    visibility: Annotated[str | None, typer.Option(help="public, or private: only by invitation.")] = None,
    min_isolation: Annotated[
        int | None, typer.Option(min=0, max=3, help="The minimum isolation level for a run to rank.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="The problem version to rank by.")] = None,
    cold: Annotated[
        bool | None,
        typer.Option(
            "--cold/--no-cold", help="Run each as a job of its own, never in a warm worker.", show_default=False
        ),
    ] = None,
    course: Annotated[str | None, typer.Option(help="The course that it is of; none: of no course.")] = None,
    teams: Annotated[
        bool | None,
        typer.Option(
            "--teams/--no-teams", help="Members of a team count together, in standings and limits.", show_default=False
        ),
    ] = None,
    teams_only: Annotated[
        bool | None,
        typer.Option("--teams-only/--no-teams-only", help="Whoever is in no team can't submit.", show_default=False),
    ] = None,
    practice: Annotated[
        bool | None,
        typer.Option(
            "--practice/--no-practice",
            help="After the end go on taking submissions, which count nowhere.",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        str | None, typer.Option(help="What others see people as: real, nicknames that they may choose, or anonymous.")
    ] = None,
    standings: Annotated[
        str | None, typer.Option(help="shown, own: people see only their own place, or hidden: nobody sees any.")
    ] = None,
    publish_reference: Annotated[
        bool | None,
        typer.Option(
            "--publish-reference/--no-publish-reference",
            help="Let people pull the reference and the baseline, to judge at home.",
            show_default=False,
        ),
    ] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Accept submissions again after `board close`.")] = False,
    as_json: Json = False,
) -> int:
    """Change a board. Everything else stays as it is."""
    shown_to = None if visibility is None else contest.visibility(visibility)
    named = None if names is None else contest.names_shown(names)
    seen = None if standings is None else contest.standings_shown(standings)
    types = None if gpus is None else [one for many in gpus for one in many.replace(",", " ").split()]
    with host() as hosts:
        told = hosts.edit_board(
            name,
            description=description,
            gpus=types,
            deadline=deadline,
            zone=zone,
            visibility=shown_to,
            min_isolation=min_isolation,
            version=version,
            cold=cold,
            course="" if course == "none" else course,
            teams=teams,
            teams_only=teams_only,
            practice=practice,
            names=named,
            standings=seen,
            publishes_reference=publish_reference,
            reopen=reopen,
        )
    board, changed = told["leaderboard"], told["changed"]
    for warning in told["warnings"]:
        printing.caution(warning)
    if as_json:
        printing.as_json({"board": board, "changed": changed})
    else:
        printing.say(f"{board}: {', '.join(changed)} changed" if changed else f"{board}: nothing changed")
    return EXIT_OK
