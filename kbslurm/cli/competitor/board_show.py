"""`kbslurm board show`, also `kbslurm board NAME`: one board's standings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.acting import known_person
from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import opened_store
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import board_json, board_json_over_http, print_mine, print_own, print_standings
from kbslurm.cli.service_in_use import InUse, in_use
from kbslurm.domain import access, contest, measure
from kbslurm.domain import board as boards
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.client.answers import StandingInfo
    from kbslurm.client.http import Client
    from kbslurm.domain.access import NamesShown, StandingsShown
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board

PAGE = 100  # the most places that the service returns at once


def board_show(
    name: BoardName,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="Only this GPU type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many places to show.")] = 20,
    practice: Annotated[
        bool, typer.Option("--practice", help="What was submitted after the end, apart from the standings.")
    ] = False,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only your own place: its neighbours, and how far the leader is.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show a board's standings, one table per GPU type: rank, person, score with its interval, time."""
    if mine and practice:
        raise Invalid("--mine and --practice don't go together", hint="kbslurm history lists what you submitted.")
    if mine:
        return _mine(name, gpu, as_json)
    if (named := in_use()) is not None:
        return _shown_over_http(named, name, gpu, limit, practice, as_json)
    from kbslurm.api.board_json import remarks

    with opened_store() as store:
        board = board_named(store, name)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        if practice:
            standings = {one: boards.Ranking(store.standings.practice(board.name, one)) for one in gpus}
        else:
            standings = {one: boards.Ranking(store.standings.best(board.name, one)) for one in gpus}
        calibrations = store.calibrations.of_board(board)
        announced = len(store.questions.announcements(board.id))
        own = _own(store, board, gpus) if is_special(board.names, board.standings) else []
    paired = board.problem.baseline is not None
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        told_of = {**board_json(board), **measure.as_json(calibrations, paired=paired)}
        printing.as_json({**told_of, "standings": told, "own": own})
        return EXIT_OK
    notes = {one: measure.sentence(one, calibrations, paired=paired) for one in gpus}
    for remark in remarks(board, datetime.now(UTC)):
        printing.say(f"{board.name}: {remark}")
    _say_announced(board.name, announced)
    print_own(board.name, own)
    if access.shows_standings(board.standings):
        print_standings(board.name, standings, limit=limit, notes=notes)
    return EXIT_OK


def _shown_over_http(named: InUse, name: str, gpu: str | None, limit: int, practice: bool, as_json: bool) -> int:
    with reached(named.url, named.token, anybody=True) as client:
        board = client.board(name)
        row = next(one for one in client.board_rows() if one["id"] == board.id)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        announced = 0 if as_json else len(client.announcements(board.name)["announcements"])
        asks = named.token is not None and is_special(row.get("names", "real"), row.get("standings", "shown"))
        own = [one for one in client.standing(board.name) if one["gpu_type"] in gpus] if asks else []
        standings = {
            one: [_standing(place) for place in _places(client, board.name, one, limit, practice)] for one in gpus
        }
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        printing.as_json({**board_json_over_http(row), "standings": told, "own": own})
    else:
        for remark in row.get("remarks", ()):
            printing.say(f"{board.name}: {remark}")
        _say_announced(board.name, announced)
        print_own(board.name, own)
        if access.shows_standings(row.get("standings", "shown")):
            print_standings(board.name, standings, limit=limit, notes=row.get("notes", {}))
    return EXIT_OK


def _mine(name: str, gpu: str | None, as_json: bool) -> int:
    """One's own places, as the service tells them, or as the database does."""
    if (named := in_use()) is not None:
        with reached(named.url, named.token) as client:
            board = client.board(name)
            gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
            row = next(one for one in client.board_rows() if one["id"] == board.id)
            own = [dict(one) for one in client.standing(board.name) if one["gpu_type"] in gpus]
            told, standings = board_json_over_http(row), row.get("standings", "shown")
    else:
        with opened_store() as store:
            held = board_named(store, name)
            gpus = (contest.known_gpu(gpu, held.gpus),) if gpu else held.gpus
            own, told, standings = _own(store, held, gpus), board_json(held), held.standings
    if as_json:
        printing.as_json({**told, "own": own})
        return EXIT_OK
    if not access.shows_own_place(standings):
        printing.say(f"{told['board']}: the standings are hidden until the hosts show them; kbslurm history has yours")
        return EXIT_OK
    for one in gpus:
        print_mine(told["board"], one, [place for place in own if place["gpu_type"] == one])
    return EXIT_OK


def _say_announced(board: str, count: int) -> None:
    if count:
        printing.say(f"{board}: {counted(count, 'announcement')}; kbslurm board announcements {board} shows them")


def _own(store: PostgresStore, board: Board, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """The places of whoever runs this, if they are anybody there."""
    try:
        me = known_person(store, None, made=False)
    except NotFound:
        return []
    return [] if me is None else store.standings.own_rows(board, me.id, gpus)


def is_special(names: NamesShown, standings: StandingsShown) -> bool:
    """Whether people may not find themselves in what everybody sees."""
    return not (access.names_people(names) and access.shows_standings(standings))


def _places(client: Client, board: str, gpu: str, limit: int, practice: bool) -> list[StandingInfo]:
    """One more than asked for, to know whether there are more."""
    found: list[StandingInfo] = []
    while len(found) <= limit:
        page = client.ranking(board, gpu, limit=PAGE, offset=len(found), practice=practice)
        found += page
        if len(page) < PAGE:
            break
    return found


def _standing(place: StandingInfo) -> boards.Standing:
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
        team=place.team,
    )
    return boards.Standing(
        rank=place.rank,
        tied_with=place.tied_with,
        best_rank=place.best_rank,
        worst_rank=place.worst_rank,
        ranks=place.ranks,
        entry=entry,
    )
