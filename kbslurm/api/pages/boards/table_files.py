"""The tables of pages as files: at the page's own address with `.json` or `.csv` behind it.

Each has what its page shows to the same reader and no more, and all of its rows. JSON is a list of objects, CSV has the
same names as its first line; a spreadsheet takes nothing in it for a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kbslurm.api.board_json import is_open
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.board_list import BoardList, Listed, seen_boards
from kbslurm.api.pages.boards.kept_files import KeptFiles
from kbslurm.api.pages.page_files import FORMS, Form, Rows, written
from kbslurm.api.pages.people.person_pages import status_in_list
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.shared_page import FOR_EVERYBODY
from kbslurm.api.pages.visitors import Offset, Visitors, to_login
from kbslurm.api.parameters import Gpu, Name
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import contest
from kbslurm.domain.board import Entry, Ranking
from kbslurm.store.finals import Final
from kbslurm.store.views import Board

MINE = 1000
RANGES = 100  # places that are told with the ranks that ties allow, as many as a page of the board has
BOARDS = ("board", "gpus", "visibility", "is_open", "deadline", "gpu", "people", "leader", "record_s")
PLACES = (
    "rank", "best_rank", "worst_rank", "person", "team", "score_s", "low_s", "high_s", "submission", "file_name",
    "submitted_at",
)  # fmt: skip
RECORDS = ("submitted_at", "person", "team", "score_s", "low_s", "high_s", "submission", "file_name")
FINAL = ("place", "person", "before_s", "score_s", "low_s", "high_s", "verdict")
SUBMISSIONS = ("submission", "board", "file_name", "mode", "status", "submitted_at")


def table_files(
    router: APIRouter, context: Context, visitors: Visitors, standings: StandingsCache, listed: BoardList
) -> None:
    for form in FORMS:
        _of_boards(router, context, visitors, listed, form)
        _of_a_board(router, context, visitors, standings, form)
        _of_its_end(router, context, visitors, form)
        _of_ones_own(router, context, visitors, form)


def _of_boards(router: APIRouter, context: Context, visitors: Visitors, listed: BoardList, form: Form) -> None:
    @router.get(f"/boards.{form}")
    def boards(request: Request) -> Response:
        """The front page's boards: those that the reader may see."""
        person = visitors.who(request)
        now = context.clock.now()
        rows = [_board(one, form, now) for one in seen_boards(context, listed, person)]
        return Response(written(form, BOARDS, rows), media_type=FORMS[form], headers=HEADERS)


def _of_a_board(router: APIRouter, context: Context, visitors: Visitors, standings: StandingsCache, form: Form) -> None:
    kept = KeptFiles()

    def answer(
        request: Request, leaderboard: str, gpu: str, what: str, columns: Sequence[str], rows: Callable[[Any], Rows]
    ) -> Response:
        person = visitors.who(request)
        board = seen_board(context, leaderboard, person)
        gpu = contest.known_gpu(gpu, board.gpus)
        shown = standings.now(board, gpu)
        file = kept.of((board.id, gpu, what), shown, lambda: written(form, columns, rows(shown)))
        headers = {**HEADERS, **FOR_EVERYBODY} if person is None else {**HEADERS}
        if form == "csv":
            headers["Content-Disposition"] = f'attachment; filename="{board.name}-{gpu}-{what}.csv"'
        return file.answer(request, FORMS[form], headers)

    @router.get(f"/board/{{leaderboard}}/{{gpu}}.{form}")
    def places(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """The standings as everybody sees them."""
        return answer(request, leaderboard, gpu, "places", PLACES, lambda shown: _places(shown[0]))

    @router.get(f"/board/{{leaderboard}}/{{gpu}}/records.{form}")
    def records(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """Each submission that was the fastest so far, as everybody sees them."""
        return answer(request, leaderboard, gpu, "records", RECORDS, lambda shown: map(_entry, shown[1]))


def _of_its_end(router: APIRouter, context: Context, visitors: Visitors, form: Form) -> None:
    """What a board's page shows below its standings: the final, and practice after the end."""

    def named(board: Board, gpu: str, what: str) -> dict[str, str]:
        attached = {"Content-Disposition": f'attachment; filename="{board.name}-{gpu}-{what}.csv"'}
        return {**HEADERS, **(attached if form == "csv" else {})}

    @router.get(f"/board/{{leaderboard}}/{{gpu}}/final.{form}")
    def final(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """The leaders of the final that counts, as everybody sees them."""
        board = seen_board(context, leaderboard, visitors.who(request))
        gpu = contest.known_gpu(gpu, board.gpus)
        rows = _final(context.store.finals.applied(board.name, gpu))
        return Response(written(form, FINAL, rows), media_type=FORMS[form], headers=named(board, gpu, "final"))

    @router.get(f"/board/{{leaderboard}}/{{gpu}}/practice.{form}")
    def practice(leaderboard: Name, gpu: Gpu, request: Request) -> Response:
        """Each person's best of what was submitted after the end."""
        board = seen_board(context, leaderboard, visitors.who(request))
        gpu = contest.known_gpu(gpu, board.gpus)
        rows = _places(Ranking(context.store.standings.practice(board.name, gpu))) if board.practice else ()
        return Response(written(form, PLACES, rows), media_type=FORMS[form], headers=named(board, gpu, "practice"))


def _final(found: Final | None) -> Iterator[dict[str, Any]]:
    for rival in found.rivals if found else ():
        came = rival.outcome
        yield {
            "place": rival.place,
            "person": rival.person,
            "before_s": rival.before_s,
            "score_s": came.score_s if came else None,
            "low_s": came.low_s if came else None,
            "high_s": came.high_s if came else None,
            "verdict": came.verdict if came else None,
        }


def _of_ones_own(router: APIRouter, context: Context, visitors: Visitors, form: Form) -> None:
    @router.get(f"/me.{form}")
    def submissions(request: Request, start: Offset = 0) -> Response:
        """One's own submissions, newest first: a thousand, or as many from there."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        rows = [
            {
                "submission": view.id,
                "board": view.board,
                "file_name": view.file_name,
                "mode": view.mode,
                "status": status_in_list(view),
                "submitted_at": view.accepted_at.isoformat(),
            }
            for view in context.store.submissions.newest(person=person.id, limit=MINE, offset=start)
        ]
        return Response(written(form, SUBMISSIONS, rows), media_type=FORMS[form], headers=HEADERS)


def _board(listed: Listed, form: Form, now: datetime) -> dict[str, Any]:
    """A board with its race of the most people, as everybody may see it."""
    board, main = listed.board, listed.main
    first = None if main is None else main.first
    return {
        "board": board.name,
        "gpus": list(board.gpus) if form == "json" else " ".join(board.gpus),
        "visibility": board.visibility,
        "is_open": is_open(board, now),
        "deadline": board.deadline_at.isoformat() if board.deadline_at else None,
        "gpu": None if main is None else main.gpu,
        "people": 0 if main is None else main.people,
        "leader": None if first is None else first.person,
        "record_s": None if first is None else first.score_s,
    }


def _places(ranking: Ranking) -> Iterator[dict[str, Any]]:
    """Every place; with the ranks that ties allow for the first ones, since those of ten thousand take 20 s."""
    told = ranking[:RANGES]
    for row in told:
        yield {"rank": row.rank, "best_rank": row.best_rank, "worst_rank": row.worst_rank, **_entry(row.entry)}
    for rank, entry in enumerate(ranking.entries[len(told) :], start=len(told) + 1):
        yield {"rank": rank, "best_rank": None, "worst_rank": None, **_entry(entry)}


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "person": entry.person,
        "team": entry.team,
        "score_s": entry.score_s,
        "low_s": entry.low_s,
        "high_s": entry.high_s,
        "submission": entry.submission_id,
        "file_name": entry.file_name,
        "submitted_at": entry.at.isoformat(),
    }
