"""`kbslurm board times`, `late`, `freeze` and `unfreeze`: when people may submit, and until when others see it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import closing_time_of
from kbslurm.domain import contest
from kbslurm.errors import EXIT_OK, Invalid


def board_times(name: BoardName, as_json: Json = False) -> int:
    """Show a board's deadline, late policy, extensions and freeze."""
    with host() as hosts:
        told = hosts.times(name)
    return _printed(told, as_json)


def board_late(
    name: BoardName,
    until: Annotated[
        str | None, typer.Option(help="The last moment for late submissions, as for a deadline; `none`: accept none.")
    ] = None,
    grace: Annotated[str | None, typer.Option(help="How late costs nothing, like 15m, 2h or 1d.")] = None,
    percent: Annotated[
        float | None, typer.Option(min=0, max=100, help="How many per cent of the points each --per begun costs.")
    ] = None,
    per: Annotated[str | None, typer.Option(help="hour or day.")] = None,
    slip_days: Annotated[
        int | None, typer.Option("--slip-days", min=0, max=365, help="How many days late each person has free.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Accept late submissions: they count for grades, less a penalty, and never in the standings."""
    if per not in (None, "hour", "day"):
        raise Invalid(f"{per!r} isn't a unit of the late penalty", hint="Choose hour or day.")
    if until is not None and until != "none" and not until.strip():
        raise Invalid("--until is empty", hint="Write a time, or `none`.")
    unit = cast('Literal["hour", "day"] | None', per)
    with host() as hosts:
        told = hosts.set_late(name, until=until, grace=grace, percent=percent, per=unit, slip_days=slip_days)
    if as_json:
        return _printed(told, as_json)
    return printing.answer(False, f"{told['leaderboard']}: {told['late']['in_words']}")


def board_freeze(
    name: BoardName,
    at: Annotated[str | None, typer.Option(help="When, as for a deadline (default: now).")] = None,
    as_json: Json = False,
) -> int:
    """Freeze a board's standings: others see what was submitted until then; everyone still sees their own."""
    with host() as hosts:
        told = hosts.freeze(name, at)
    if as_json:
        return _printed(told, as_json)
    return printing.answer(False, f"{told['leaderboard']}: {frozen_in_words(told)}")


def board_unfreeze(name: BoardName, as_json: Json = False) -> int:
    """Show a frozen board's standings in full again."""
    with host() as hosts:
        told = hosts.unfreeze(name)
    if as_json:
        return _printed(told, as_json)
    return printing.answer(False, f"{told['leaderboard']} shows all of its standings")


def frozen_in_words(told: Mapping[str, Any]) -> str:
    """Since when or from when on the standings are frozen."""
    if told["frozen_at"] is None:
        return "the standings aren't frozen"
    shown = contest.at_home(datetime.fromisoformat(told["frozen_at"]), told["zone"])
    return f"the standings {'are frozen since' if told['is_frozen'] else 'will be frozen at'} {shown}"


def _printed(told: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    zone = told["zone"]
    printing.say(f"{told['leaderboard']}: closes {closing_time_of(told['deadline'], zone)}")
    printing.say(told["late"]["in_words"])
    printing.say(frozen_in_words(told))
    if told["finalised_at"]:
        printing.say(f"final since {contest.at_home(datetime.fromisoformat(told['finalised_at']), zone)}")
    rows = [
        (
            printing.escape(one["person"] or f"section {one['section']}"),
            contest.at_home(datetime.fromisoformat(one["until"]), zone),
        )
        for one in told["extensions"]
    ]
    if rows:
        printing.table(("who", "until"), rows, title="extensions")
    return EXIT_OK
