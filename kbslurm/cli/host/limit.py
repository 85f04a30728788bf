"""`kbslurm limit …`: how much a person may submit to a board."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.cli.output.printing import answer
from kbslurm.domain import policy
from kbslurm.errors import EXIT_OK, Invalid


def show_(name: BoardName, as_json: Json = False) -> int:
    """Show a board's limits."""
    with host() as hosts:
        told = hosts.limits(name)
    board, rates, quota = told["leaderboard"], told["per_hour"], told["gpu_s_per_day"]
    if as_json:
        printing.as_json({"board": board, "per_hour": rates, "gpu_s_per_day": quota})
        return EXIT_OK
    for category, most in rates.items():
        printing.say(f"{category}: {most} submissions per person per hour")
    if quota is not None:
        printing.say(f"{quota:g} GPU-seconds per person per day")
    if not rates and quota is None:
        printing.say(f"{board} has no limits")
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
    with host() as hosts:
        told = hosts.set_rate_limit(name, kind, None if most == "none" else int(most))
    board = told.get("rate_limit", told)["leaderboard"]
    shown = "unlimited" if most == "none" else most
    return answer(
        as_json, f"{board}: {shown} {kind} submissions per person per hour", board=board, category=kind,
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
    if wanted is not None and not math.isfinite(wanted):
        raise Invalid(f"{gpu_s} GPU-seconds isn't a valid quota", hint="Pass a number or none.")
    with host() as hosts:
        board = hosts.set_quota(name, wanted)["leaderboard"]
    shown = "unlimited" if wanted is None else f"{wanted:g}"
    return answer(as_json, f"{board}: {shown} GPU-seconds per person per day", board=board, gpu_s_per_day=wanted)
