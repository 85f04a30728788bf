"""`kbslurm board create`: a new board."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.acting import known_person
from kbslurm.cli.arguments import As, BoardName, Json
from kbslurm.cli.context import configuration, offered_gpus, opened_store, own_name
from kbslurm.cli.lookup import newest_problem
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import board_json, closing_time
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK, Invalid

if TYPE_CHECKING:
    from kbslurm.domain.problem import Problem


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
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Create a board; with --reference FILE.py, also add its problem."""
    from kbslurm.problems import loading

    if (reference is None) == (problem is None):
        raise Invalid(
            "a board needs exactly one problem", hint="Pass --reference FILE.py, or --problem NAME for an existing one."
        )
    board = contest.board_name(name)
    closes = contest.coming_deadline(deadline, zone, datetime.now(UTC)) if deadline else None
    shown_to = contest.visibility(visibility)
    loaded: Problem | None = loading.load(reference, name=board if reference.is_file() else None) if reference else None
    offered = tuple(offered_gpus())
    named = [one for many in gpus or [] for one in many.replace(",", " ").split()]
    wanted = contest.as_known(named or (loaded.gpus if loaded else ()), offered)
    if not wanted:
        raise Invalid("a board needs at least one GPU type", hint="Pass --gpus H100 (or --gpus A100,H100).")
    with opened_store() as store:
        maker = known_person(store, as_)
        made = store.boards.add(
            board,
            loaded or newest_problem(store, problem or ""),
            gpus=wanted,
            deadline_at=closes,
            zone=zone,
            description=description,
            visibility=shown_to,
            min_isolation=configuration().policy.ranked_min_isolation if min_isolation is None else min_isolation,
            confirm=confirm,
            created_by=None if maker is None else maker.id,
            by=own_name(),
        )
    for warning in [*(loaded.warnings if loaded else ()), *contest.unknown_gpus(made.gpus, offered)]:
        printing.caution(warning)
    if as_json:
        printing.as_json(board_json(made))
        return EXIT_OK
    printing.say(
        f"board {made.name}: problem {made.problem_name}, {' '.join(made.gpus)}, closes {closing_time(made, None)}"
    )
    printing.say(f"kbslurm submit FILE --leaderboard {made.name} submits to it")
    return EXIT_OK
