"""`kbslurm board …`: leaderboards. `kbslurm board NAME` shows one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import As, Json, acting, app, opened_store
from kbslurm.cli.problem import newest
from kbslurm.cli.service import reached, url
from kbslurm.domain import board as boards
from kbslurm.domain import contest, measure
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.client.answers import Place
    from kbslurm.client.http import Client
    from kbslurm.domain.problem import Problem
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board


class _Boards(typer.core.TyperGroup):
    """A first word that is no command is a board's name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


group = typer.Typer(
    help="Leaderboards: list, show, create, edit, close, delete, extend.", no_args_is_help=True, cls=_Boards
)
app.add_typer(group, name="board")

PAGE = 100  # as many places as the service tells at once

Name = Annotated[str, typer.Argument(help="The board's name.")]


@group.command("list")
def list_(as_json: Json = False) -> int:
    """The boards that there are. Over HTTP those that you may see."""
    if (named := url()) is not None:
        return _list_over_http(named, as_json)
    with opened_store() as store:
        found = store.boards()
    now = datetime.now(UTC)
    if as_json:
        show.as_json([_summary(board) for board in found])
    elif found:
        rows = [
            (b.name, b.problem_name, " ".join(b.gpus), _closes(b, now), str(b.submissions), b.visibility) for b in found
        ]
        show.table(("board", "problem", "GPUs", "closes", "submissions", "visibility"), rows)
    else:
        show.say("no board yet; kbslurm board create NAME --gpus H100 --reference FILE.py makes one")
    return EXIT_OK


@group.command("show")
def show_(
    name: Name,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="One GPU type only.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many places.")] = 20,
    as_json: Json = False,
) -> int:
    """The standings, one table per GPU type: rank, person, score with its interval, when."""
    if (named := url()) is not None:
        return _shown_over_http(named, name, gpu, limit, as_json)
    with opened_store() as store:
        board = board_of(store, name)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        standings = {one: boards.Ranking(store.best(board.name, one)) for one in gpus}
        calibrations = store.calibrations(board)
    paired = board.problem.baseline is not None
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        show.as_json({**_summary(board), **measure.as_json(calibrations, paired=paired), "standings": told})
        return EXIT_OK
    notes = {one: measure.sentence(one, calibrations, paired=paired) for one in gpus}
    show.standings(board.name, standings, limit=limit, notes=notes)
    return EXIT_OK


@group.command()
def create(
    name: Name,
    gpus: Annotated[
        list[str] | None, typer.Option("--gpus", "--gpu", "-g", help="GPU types: A100,H100 or again.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="2026-12-24, 2026-12-24 18:00, or with an offset.")] = None,
    zone: Annotated[str, typer.Option(help="The deadline's time zone, like Europe/Berlin.")] = "UTC",
    reference: Annotated[
        Path | None, typer.Option(help="One reference file, or a problem's directory: added first.")
    ] = None,
    problem: Annotated[str | None, typer.Option(help="A problem that was added before.")] = None,
    description: Annotated[str | None, typer.Option(help="A sentence about it.")] = None,
    visibility: Annotated[str, typer.Option(help="public or closed.")] = "public",
    min_isolation: Annotated[int, typer.Option(min=0, max=3, help="The isolation level from which a run ranks.")] = 2,
    confirm: Annotated[
        bool,
        typer.Option("--confirm/--no-confirm", help="Measure once more what would improve its author's rank."),
    ] = True,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Make a board, and from --reference FILE.py a problem version with it."""
    from kbslurm.problems import loading

    if (reference is None) == (problem is None):
        raise Invalid(
            "a board needs one problem", hint="Pass --reference FILE.py, or --problem NAME of one added before."
        )
    board = contest.board_name(name)
    closes = contest.parsed_deadline(deadline, zone) if deadline else None
    if closes is not None and contest.closed(closes, datetime.now(UTC)):
        raise Invalid(f"the deadline {deadline} ({zone}) has passed already", hint="Pick one in the future.")
    if visibility not in ("public", "closed"):
        raise Invalid(f"there is no visibility {visibility!r}", hint="public or closed.")
    loaded: Problem | None = loading.load(reference, name=board if reference.is_file() else None) if reference else None
    wanted = [contest.gpu_name(one) for many in gpus or [] for one in many.replace(",", " ").split()]
    wanted = wanted or list(loaded.gpus if loaded else ())
    if not wanted:
        raise Invalid("a board needs at least one GPU type", hint="Pass --gpus H100 (or --gpus A100,H100).")
    with opened_store() as store:
        made = store.add_board(
            board,
            loaded or newest(store, problem or ""),
            gpus=wanted,
            deadline_at=closes,
            zone=zone,
            description=description,
            visibility="closed" if visibility == "closed" else "public",
            min_isolation=min_isolation,
            confirm=confirm,
            created_by=acting(store, as_).id,
        )
    if as_json:
        show.as_json(_summary(made))
        return EXIT_OK
    for warning in loaded.warnings if loaded else ():
        show.err().print(f"[yellow]caution[/]: {show.escape(warning)}")
    show.say(f"board {made.name}: problem {made.problem_name}, {' '.join(made.gpus)}, closes {_closes(made, None)}")
    show.say(f"kbslurm submit FILE --leaderboard {made.name} submits to it")
    return EXIT_OK


def _list_over_http(named: str, as_json: bool) -> int:
    with reached(named, anybody=True) as client:
        found = client.board_rows()
    if as_json:
        show.as_json([_summary_told(row) for row in found])
    elif found:
        rows = [
            (
                show.escape(row["name"]),
                show.escape(str(row["task"].get("name", ""))),
                " ".join(row["gpu_types"]),
                _closes_told(row),
                row["visibility"],
            )
            for row in found
        ]
        show.table(("board", "problem", "GPUs", "closes", "visibility"), rows)
    else:
        show.say(f"there is no board at {named} that you may see")
    return EXIT_OK


def _shown_over_http(named: str, name: str, gpu: str | None, limit: int, as_json: bool) -> int:
    with reached(named, anybody=True) as client:
        board = client.board(name)
        row = next(one for one in client.board_rows() if one["id"] == board.id)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        standings = {one: [_standing(place) for place in _places(client, board.name, one, limit)] for one in gpus}
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        show.as_json({**_summary_told(row), "standings": told})
    else:
        show.standings(board.name, standings, limit=limit, notes=row.get("notes", {}))
    return EXIT_OK


def _places(client: Client, board: str, gpu: str, limit: int) -> list[Place]:
    """As many as asked for and one more, so that it can be said that there are more."""
    found: list[Place] = []
    while len(found) <= limit:
        page = client.ranking(board, gpu, limit=PAGE, offset=len(found))
        found += page
        if len(page) < PAGE:
            break
    return found


def _standing(place: Place) -> boards.Standing:
    entry = boards.Entry(
        person_id=place.person_id,
        person=place.person,
        submission_id=place.submission_id,
        run_id=0,
        score_s=place.score_s,
        low_s=place.low_s,
        high_s=place.high_s,
        at=place.at,
        file_name=place.file_name,
    )
    return boards.Standing(
        rank=place.rank,
        tied_with=place.tied_with,
        best_rank=place.best_rank,
        worst_rank=place.worst_rank,
        entry=entry,
    )


def _closes_told(row: Mapping[str, Any]) -> str:
    if not row["deadline"]:
        return "never" if row["is_open"] else "closed by a host"
    local = datetime.fromisoformat(row["deadline"]).astimezone(contest.zone(row["zone"]))
    return f"{local:%Y-%m-%d %H:%M} {row['zone']}" + ("" if row["is_open"] else " (over)")


def _summary_told(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the service tells of a board, in the words that the database's answer has."""
    return {
        "board": row["name"],
        "description": row["description"],
        "problem": row["task"].get("name"),
        "gpus": row["gpu_types"],
        "deadline_at": row["deadline"],
        "zone": row["zone"],
        "visibility": row["visibility"],
        "is_open": row["is_open"],
        "paired": row["paired"],
        "calibration": {gpu: {"state": state} for gpu, state in row["calibration"].items()},
        "modes": row["task"].get("modes", []),
    }


def board_of(store: PostgresStore, name: str) -> Board:
    """The board of that name in any case, or NotFound with those that there are."""
    found = store.board(contest.board_name(name))
    if found is None:
        raise NotFound("board", name, known=store.board_names())
    return found


def _closes(board: Board, now: datetime | None) -> str:
    if board.closed_at is not None:
        return "closed by a host"
    if board.deadline_at is None:
        return "never"
    local = board.deadline_at.astimezone(contest.zone(board.zone)).strftime("%Y-%m-%d %H:%M")
    over = now is not None and contest.closed(board.deadline_at, now)
    return f"{local} {board.zone}" + (" (over)" if over else "")


def _summary(board: Board) -> dict[str, Any]:
    """What anybody may know of a board: no seed, no hidden case."""
    return {
        "board": board.name,
        "description": board.description,
        "problem": board.problem_name,
        "problem_digest": board.problem_digest,
        "gpus": board.gpus,
        "deadline_at": board.deadline_at,
        "zone": board.zone,
        "visibility": board.visibility,
        "closed_at": board.closed_at,
        "submissions": board.submissions,
        "confirm": board.confirm,
        "modes": board.problem.modes,
    }
