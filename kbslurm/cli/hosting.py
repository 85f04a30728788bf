"""What hosts do to boards: `kbslurm board edit|close|delete|extend`, `kbslurm limit …`, `kbslurm problem sync`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from kbslurm.cli import show
from kbslurm.cli.board import Name, board_of, group
from kbslurm.cli.frame import Json, app, asking, configuration, opened_store
from kbslurm.cli.people import _known
from kbslurm.cli.problem import group as problem_group
from kbslurm.domain import contest, policy
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, Invalid

limit_group = typer.Typer(help="How much a person may submit to a board: show, rate, quota.", no_args_is_help=True)
app.add_typer(limit_group, name="limit")


@group.command()
def edit(
    name: Name,
    description: Annotated[str | None, typer.Option(help="A sentence about it.")] = None,
    gpus: Annotated[list[str] | None, typer.Option("--gpus", "--gpu", "-g", help="All its GPU types, anew.")] = None,
    deadline: Annotated[str | None, typer.Option(help="2026-12-24, 2026-12-24 18:00, an offset, or never.")] = None,
    zone: Annotated[str | None, typer.Option(help="The deadline's time zone.")] = None,
    visibility: Annotated[str | None, typer.Option(help="public or closed.")] = None,
    min_isolation: Annotated[int | None, typer.Option(min=0, max=3, help="From which level a run ranks.")] = None,
    version: Annotated[int | None, typer.Option(help="The problem version to rank by.")] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Take submissions again after `board close`.")] = False,
    as_json: Json = False,
) -> int:
    """Change a board. What isn't named stays."""
    if visibility not in (None, "public", "closed"):
        raise Invalid(f"there is no visibility {visibility!r}", hint="public or closed.")
    types = None if gpus is None else [one for many in gpus for one in many.replace(",", " ").split()]
    now = datetime.now(UTC)
    with opened_store() as store:
        board, by = board_of(store, name), asking()
        changed = store.edit_board(
            board.name,
            by=by,
            description=description,
            gpus=types,
            min_isolation=min_isolation,
            reopen=reopen,
            now=now,
        )
        if deadline is not None or zone is not None:
            home = zone or board.zone
            until = board.deadline_at if deadline is None else None
            if deadline is not None and deadline != "never":
                until = contest.parsed_deadline(deadline, home)
            store.set_deadline(board.name, until, home, by=by, now=now)
            changed.append("deadline")
        if visibility is not None and visibility != board.visibility:
            store.set_visibility(board.name, "closed" if visibility == "closed" else "public", by=by, now=now)
            changed.append("visibility")
        if version is not None and version != board.problem_version_id:
            store.set_live(board.name, version, by=by, now=now)
            changed.append("version")
    if as_json:
        show.as_json({"board": board.name, "changed": changed})
    else:
        show.say(f"{board.name}: {', '.join(changed)} changed" if changed else f"{board.name}: nothing changed")
    return EXIT_OK


@group.command()
def close(name: Name, as_json: Json = False) -> int:
    """Take no more submissions to a board; what is there stays. `board edit NAME --reopen` opens it again."""
    with opened_store() as store:
        board = board_of(store, name)
        store.close_board(board.name, by=asking())
    return _said(as_json, f"{board.name} is closed", board=board.name, closed=True)


@group.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also when it has submissions.")] = False,
    as_json: Json = False,
) -> int:
    """Take a board away. Its rows stay, its name is free again."""
    with opened_store() as store:
        board = board_of(store, name)
        store.delete_board(board.name, force=force, by=asking())
    return _said(as_json, f"{board.name} is deleted", board=board.name, deleted=True)


@group.command()
def extend(
    name: Name,
    person: Annotated[str, typer.Argument(help="Who may submit for longer.")],
    until: Annotated[str, typer.Argument(help="Until when, like a deadline; `none` takes it away.")],
    as_json: Json = False,
) -> int:
    """Let one person submit after the deadline."""
    with opened_store() as store:
        board, who = board_of(store, name), _known(store, person)
        at = None if until == "none" else contest.parsed_deadline(until, board.zone)
        store.extend(board.name, who, at, by=asking())
    shown = f"until {at.astimezone(contest.zone(board.zone)):%Y-%m-%d %H:%M} {board.zone}" if at else "as everybody may"
    return _said(as_json, f"{who.name} may submit to {board.name} {shown}", board=board.name, person=who.name, until=at)


@limit_group.command("show")
def show_(name: Name, as_json: Json = False) -> int:
    """A board's limits."""
    with opened_store() as store:
        board = board_of(store, name)
        rates, quota = store.rate_limits(board.name), store.quota(board.id)
    if as_json:
        show.as_json(
            {"board": board.name, "per_hour": {r.category: r.most_per_hour for r in rates}, "gpu_s_per_day": quota}
        )
        return EXIT_OK
    for rate_ in rates:
        show.say(f"{rate_.category}: {rate_.most_per_hour} submissions per person and hour")
    if quota is not None:
        show.say(f"{quota:g} GPU-seconds per person and day")
    if not rates and quota is None:
        show.say(f"{board.name} has no limit")
    return EXIT_OK


@limit_group.command()
def rate(
    name: Name,
    category: Annotated[str, typer.Argument(help="test (also benchmark and profile) or leaderboard.")],
    most: Annotated[str, typer.Argument(help="How many per person and hour; `none`: any number.")],
    as_json: Json = False,
) -> int:
    """How often a person may submit to a board within an hour. Staff may as often as they like."""
    kind = policy.category_named(category)
    if most != "none" and not most.isdecimal():
        raise Invalid(f"{most!r} is no number", hint="Write a number, or none.")
    with opened_store() as store:
        board = board_of(store, name)
        if most == "none":
            store.drop_rate_limit(board.name, kind, by=asking())
        else:
            store.set_rate_limit(board.name, kind, int(most), by=asking())
    shown = "any number of" if most == "none" else most
    return _said(
        as_json, f"{board.name}: {shown} {kind} submissions per person and hour", board=board.name, category=kind,
        most_per_hour=None if most == "none" else int(most),
    )  # fmt: skip


@limit_group.command()
def quota(
    name: Name,
    gpu_s: Annotated[str, typer.Argument(help="GPU-seconds per person and day; `none`: any number.")],
    as_json: Json = False,
) -> int:
    """How much GPU time a person may use on a board within a day."""
    try:
        wanted = None if gpu_s == "none" else float(gpu_s)
    except ValueError:
        raise Invalid(f"{gpu_s!r} is no number", hint="Write a number, or none.") from None
    with opened_store() as store:
        board = board_of(store, name)
        store.set_quota(board.name, wanted, by=asking())
    shown = "any number of" if wanted is None else f"{wanted:g}"
    return _said(
        as_json, f"{board.name}: {shown} GPU-seconds per person and day", board=board.name, gpu_s_per_day=wanted
    )


@problem_group.command()
def sync(
    repository: Annotated[str, typer.Argument(help="https:// or file:/// URL, a directory, or OWNER/NAME.")],
    problem_set: Annotated[str | None, typer.Option("--set", help="One of its sets; by default all.")] = None,
    branch: Annotated[str | None, typer.Option(help="A branch, a tag or a commit.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Make changed problems live on boards in use, too.")] = False,
    visibility: Annotated[str, typer.Option(help="Of new boards: public or closed.")] = "public",
    as_json: Json = False,
) -> int:
    """Make and update boards from a repository of problems. Exit code 3: one of them is faulty."""
    from kbslurm.problems import sync as problem_sync

    if visibility not in ("public", "closed"):
        raise Invalid(f"there is no visibility {visibility!r}", hint="public or closed.")
    config = configuration()
    with opened_store() as store:
        order = problem_sync.Order(
            repository=repository,
            problem_set=problem_set,
            branch=branch,
            force=force,
            visibility="closed" if visibility == "closed" else "public",
            min_isolation=config.policy.ranked_min_isolation,
            gpus=tuple(config.daemon.local.slots),
            by=asking(),
        )
        came = problem_sync.sync(store, order, datetime.now(UTC))
    if as_json:
        show.as_json(came)
    else:
        show.say(f"commit {came.commit[:12]}")
        rows = [(name, "created", "") for name in came.created] + [(name, "updated", "") for name in came.updated]
        rows += [(name, "skipped", why) for name, why in came.skipped]
        rows += [(name, "[red]error[/]", show.escape(why)) for name, why in came.errors]
        show.table(("board", "", "why"), rows, wrap=2)
    return EXIT_REJECTED if came.errors else EXIT_OK


def _said(as_json: bool, text: str, **facts: object) -> int:
    if as_json:
        show.as_json(facts)
    else:
        show.say(text)
    return EXIT_OK
