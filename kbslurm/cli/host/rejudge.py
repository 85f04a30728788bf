"""`kbslurm rejudge`: judge a board's runs again, review what would change, then apply or cancel it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named, person_named
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid
from kbslurm.flow import rejudge as rules

if TYPE_CHECKING:
    from kbslurm.store.rejudgings import Rejudging


def rejudge(
    name: BoardName,
    filter_: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Which runs, by submission, gpu, verdict, mode or person."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="The problem version to judge by (default: the live one).")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Order a rejudge, or show how it stands.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make all new verdicts count and the version live.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Discard the new verdicts.")] = False,
    as_json: Json = False,
) -> int:
    """Judge a board's runs again. Nothing counts until --apply, which applies everything together; until then only
    hosts see it."""
    from kbslurm.store.rejudgings import Wanted

    if preview + apply + cancel != 1:
        raise Invalid("--preview, --apply and --cancel exclude each other", hint="Pass one of them.")
    chosen = rules.parsed(filter_ or [])
    if (filter_ or version is not None) and not preview:
        raise Invalid("a rejudge is applied or cancelled as a whole", hint="Leave out the filter and --version.")
    with opened_store() as store:
        board, by = board_named(store, name), own_name()
        if apply:
            return _told(store.rejudgings.apply(board.name, by=by), "applied", as_json)
        if cancel:
            return _told(store.rejudgings.cancel(board.name, by=by), "cancelled", as_json)
        wanted = Wanted(
            submission=chosen.submission,
            gpu=chosen.gpu,
            verdict=chosen.verdict,
            mode=chosen.mode,
            person=person_named(store, chosen.person).id if chosen.person else None,
        )
        found = store.rejudgings.preview(board.name, wanted, version, by=by)
        return _told(found, "preview", as_json)


def _told(found: Rejudging, state: str, as_json: bool) -> int:
    if as_json:
        printing.as_json(found.told(state))
        return EXIT_OK
    headings, lines = rules.rows(found.matrix)
    printing.table(headings, lines, title=f"{found.board}: rejudge with version {found.version}, {state}")
    printing.say(
        f"{found.changed} would change, {found.open_runs} open; {found.spent_gpu_s:.1f} GPU-seconds spent"
        f" of about {found.expected_gpu_s:.1f}"
    )
    if state == "preview":
        printing.say("once all runs have ended, kbslurm rejudge BOARD --apply makes it count, --cancel discards it")
    return EXIT_OK
