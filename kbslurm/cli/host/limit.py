"""`kbslurm limit …`: how much a person may submit to a board."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.cli.output.printing import answer
from kbslurm.domain import policy
from kbslurm.errors import EXIT_OK, Invalid


def show_(name: BoardName, as_json: Json = False) -> int:
    """Show a board's limits."""
    with opened_store() as store:
        board = board_named(store, name)
        rates, quota = store.limits.rates(board.name), store.limits.quota(board.id)
    if as_json:
        printing.as_json(
            {"board": board.name, "per_hour": {r.category: r.most_per_hour for r in rates}, "gpu_s_per_day": quota}
        )
        return EXIT_OK
    for rate_ in rates:
        printing.say(f"{rate_.category}: {rate_.most_per_hour} submissions per person per hour")
    if quota is not None:
        printing.say(f"{quota:g} GPU-seconds per person per day")
    if not rates and quota is None:
        printing.say(f"{board.name} has no limits")
    return EXIT_OK


def rate(
    name: BoardName,
    category: Annotated[str, typer.Argument(help="test (also benchmark and profile) or leaderboard.")],
    most: Annotated[str, typer.Argument(help="Submissions per person per hour; `none` for no limit.")],
    as_json: Json = False,
) -> int:
    """Set how often a person may submit to a board per hour. Staff have no limit."""
    kind = policy.category_named(category)
    if most != "none" and not most.isdecimal():
        raise Invalid(f"{most!r} isn't a number", hint="Pass a number or none.")
    with opened_store() as store:
        board = board_named(store, name)
        if most == "none":
            store.limits.drop_rate(board.name, kind, by=own_name())
        else:
            store.limits.set_rate(board.name, kind, int(most), by=own_name())
    shown = "unlimited" if most == "none" else most
    return answer(
        as_json, f"{board.name}: {shown} {kind} submissions per person per hour", board=board.name, category=kind,
        most_per_hour=None if most == "none" else int(most),
    )  # fmt: skip


def quota(
    name: BoardName,
    gpu_s: Annotated[str, typer.Argument(help="GPU-seconds per person per day; `none` for no limit.")],
    as_json: Json = False,
) -> int:
    """Set how much GPU time a person may use on a board per day."""
    try:
        wanted = None if gpu_s == "none" else float(gpu_s)
    except ValueError:
        raise Invalid(f"{gpu_s!r} isn't a number", hint="Pass a number or none.") from None
    with opened_store() as store:
        board = board_named(store, name)
        store.limits.set_quota(board.name, wanted, by=own_name())
    shown = "unlimited" if wanted is None else f"{wanted:g}"
    return answer(
        as_json, f"{board.name}: {shown} GPU-seconds per person per day", board=board.name, gpu_s_per_day=wanted
    )
