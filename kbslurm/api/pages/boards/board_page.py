"""`/board/NAME/GPU`: the same page for everybody, and one of their own for whoever looks for some of its places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from kbslurm.api import sessions
from kbslurm.api.context import Context
from kbslurm.api.door import look_in_turn
from kbslurm.api.pages.boards.board_views import BoardViews, Place
from kbslurm.api.pages.boards.drawn_boards import Drawn, page_with
from kbslurm.api.pages.boards.found_places import Wanted
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.shared_page import sent
from kbslurm.api.pages.visitors import Offset, Visitors
from kbslurm.api.parameters import Gpu, Name
from kbslurm.domain import access, contest
from kbslurm.errors import Refused
from kbslurm.store.views import Board, Person

Text = Annotated[str, Query(max_length=contest.NAME_CAP)]


def board_page(router: APIRouter, context: Context, visitors: Visitors, views: BoardViews) -> None:
    @router.get("/board/{leaderboard}/{gpu}")
    async def board(
        leaderboard: Name,
        gpu: Gpu,
        request: Request,
        start: Offset = 0,
        q: Text = "",
        language: Text = "",
        section: Text = "",
        sort: Text = "",
    ) -> Response:
        """One board for one GPU type: the standings and the history of the record; or the places that are asked for."""
        wanted = Wanted.of(q=q, language=language, section=section, sort=sort)
        start = page_with(start) if wanted.is_plain else start
        place = Place(board=leaderboard, gpu=gpu, start=start if wanted.is_plain else 0)
        found, reader = await views.of(place, sessions.secret_of(request))
        person = None if reader is None else reader.person
        drawn = found.drawn
        has_sections = person is not None and person.is_staff and found.board.course is not None
        if has_sections or not wanted.is_plain:

            def looked() -> Drawn:
                sections = _sections(context, found.board, person)
                if wanted.section and not sections:
                    raise Refused("sections are for the hosts and helpers of a board's course")
                people = {one for one, name in sections.items() if name == wanted.section} if wanted.section else None
                names = sorted(set(sections.values()))
                return views.searched(found.board, drawn, wanted, start, sections=names, people=people)

            drawn = await look_in_turn(context, request)(looked)
        if reader is not None:
            own = views.own_place(found.board, drawn, reader.person)
            token = await visitors.csrf_soon(request)
            return HTMLResponse(drawn.for_reader(reader.person, token, own, helps=reader.helps), headers=HEADERS)
        if not wanted.is_plain:
            return HTMLResponse(drawn.page, headers=HEADERS)
        return sent(request, drawn)


def _sections(context: Context, board: Board, person: Person | None) -> Mapping[int, str]:
    """In which section of the board's course people are, for whoever may read its roster; where people have other
    names nobody's, since a section would tell whose those are."""
    if person is None or board.course is None or not access.names_people(board.names):
        return {}
    role = None if person.is_staff else context.store.roster.role_on(board.id, person.id)
    if not access.may_on_board(person, role, "grade"):
        return {}
    return {one.person_id: one.section for one in context.store.roster.of_board(board.name) if one.section}
