"""`kbslurm board show`, also `kbslurm board NAME`: one board's standings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import opened_store
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import board_json, board_json_over_http, print_standings
from kbslurm.cli.service_in_use import InUse, in_use
from kbslurm.domain import board as boards
from kbslurm.domain import contest, measure
from kbslurm.errors import EXIT_OK

if TYPE_CHECKING:
    from kbslurm.client.answers import StandingInfo
    from kbslurm.client.http import Client

PAGE = 100  # the most places that the service returns at once


def board_show(
    name: BoardName,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="Only this GPU type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many places to show.")] = 20,
    as_json: Json = False,
) -> int:
    """Show a board's standings, one table per GPU type: rank, person, score with its interval, time."""
    if (named := in_use()) is not None:
        return _shown_over_http(named, name, gpu, limit, as_json)
    with opened_store() as store:
        board = board_named(store, name)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        standings = {one: boards.Ranking(store.standings.best(board.name, one)) for one in gpus}
        calibrations = store.calibrations.of_board(board)
    paired = board.problem.baseline is not None
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        printing.as_json({**board_json(board), **measure.as_json(calibrations, paired=paired), "standings": told})
        return EXIT_OK
    notes = {one: measure.sentence(one, calibrations, paired=paired) for one in gpus}
    print_standings(board.name, standings, limit=limit, notes=notes)
    return EXIT_OK


def _shown_over_http(named: InUse, name: str, gpu: str | None, limit: int, as_json: bool) -> int:
    with reached(named.url, named.token, anybody=True) as client:
        board = client.board(name)
        row = next(one for one in client.board_rows() if one["id"] == board.id)
        gpus = (contest.known_gpu(gpu, board.gpus),) if gpu else board.gpus
        standings = {one: [_standing(place) for place in _places(client, board.name, one, limit)] for one in gpus}
    if as_json:
        told = {one: rows[:limit] for one, rows in standings.items()}
        printing.as_json({**board_json_over_http(row), "standings": told})
    else:
        print_standings(board.name, standings, limit=limit, notes=row.get("notes", {}))
    return EXIT_OK


def _places(client: Client, board: str, gpu: str, limit: int) -> list[StandingInfo]:
    """One more than asked for, to know whether there are more."""
    found: list[StandingInfo] = []
    while len(found) <= limit:
        page = client.ranking(board, gpu, limit=PAGE, offset=len(found))
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
    )
    return boards.Standing(
        rank=place.rank,
        tied_with=place.tied_with,
        best_rank=place.best_rank,
        worst_rank=place.worst_rank,
        ranks=place.ranks,
        entry=entry,
    )
