"""`kbslurm board edit`: change a board."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import offered_gpus, opened_store, own_name
from kbslurm.cli.lookup import board_named
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
    reopen: Annotated[bool, typer.Option("--reopen", help="Accept submissions again after `board close`.")] = False,
    as_json: Json = False,
) -> int:
    """Change a board. Everything else stays as it is."""
    shown_to = None if visibility is None else contest.visibility(visibility)
    offered = () if gpus is None else tuple(offered_gpus())
    named = None if gpus is None else [one for many in gpus for one in many.replace(",", " ").split()]
    types = None if named is None else contest.as_known(named, offered)
    now = datetime.now(UTC)
    with opened_store() as store:
        board, by = board_named(store, name), own_name()
        home = zone or board.zone
        until = board.deadline_at if deadline is None else None
        if deadline is not None and deadline != "never":
            until = contest.coming_deadline(deadline, home, now)
        changed = store.boards.edit(
            board.name,
            by=by,
            description=description,
            gpus=types,
            min_isolation=min_isolation,
            reopen=reopen,
            now=now,
        )
        if deadline is not None or zone is not None:
            store.boards.set_deadline(board.name, until, home, by=by, now=now)
            changed.append("deadline")
        if shown_to is not None and shown_to != board.visibility:
            store.boards.set_visibility(board.name, shown_to, by=by, now=now)
            changed.append("visibility")
        if version is not None and version != board.problem_version_id:
            store.boards.set_live(board.name, version, by=by, now=now)
            changed.append("version")
    for warning in contest.unknown_gpus(types or (), offered):
        printing.caution(warning)
    if as_json:
        printing.as_json({"board": board.name, "changed": changed})
    else:
        printing.say(f"{board.name}: {', '.join(changed)} changed" if changed else f"{board.name}: nothing changed")
    return EXIT_OK
