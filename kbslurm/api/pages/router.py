"""All pages in one router. Pages show what the API shows too; every form carries a token of its session."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.pages.boards.board_list import BoardList
from kbslurm.api.pages.boards.board_views import BoardViews
from kbslurm.api.pages.boards.front import front_page
from kbslurm.api.pages.boards.front_live import front_stream
from kbslurm.api.pages.boards.hall import hall_page
from kbslurm.api.pages.boards.opening import board_pages
from kbslurm.api.pages.boards.sharing import sharing_routes
from kbslurm.api.pages.boards.table_files import table_files
from kbslurm.api.pages.design import design_page
from kbslurm.api.pages.live import live_streams
from kbslurm.api.pages.people.comparing import comparing_page
from kbslurm.api.pages.people.joining import joining_page
from kbslurm.api.pages.people.person_pages import people_pages
from kbslurm.api.pages.people.questions import question_pages
from kbslurm.api.pages.people.sign_on import sign_on_pages
from kbslurm.api.pages.people.submissions import submission_pages
from kbslurm.api.pages.problems.code import code_pages
from kbslurm.api.pages.problems.problem_page import problem_pages
from kbslurm.api.pages.problems.submitting import submitting_pages
from kbslurm.api.pages.staff.audit import staff_audit_page
from kbslurm.api.pages.staff.board import staff_board_page
from kbslurm.api.pages.staff.board_work import staff_board_work_pages
from kbslurm.api.pages.staff.boards import staff_boards_pages
from kbslurm.api.pages.staff.courses import course_pages
from kbslurm.api.pages.staff.overview_page import staff_pages
from kbslurm.api.pages.staff.people import staff_people_pages
from kbslurm.api.pages.staff.problems import staff_problem_pages
from kbslurm.api.pages.staff.questions import staff_question_pages
from kbslurm.api.pages.staff.reveal import reveal_page
from kbslurm.api.pages.staff.scripts import staff_script_pages
from kbslurm.api.pages.staff.standings_file import standings_file
from kbslurm.api.pages.staff.submissions import staff_submission_pages
from kbslurm.api.pages.staff.triage import staff_triage_pages
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.standings_cache import StandingsCache


def routes(context: Context, histories: waiting.Histories, standings: StandingsCache) -> APIRouter:
    """The router of the pages. Pages aren't in the OpenAPI document, which is for machines."""
    router = APIRouter(include_in_schema=False, route_class=Door)
    visitors = Visitors(context)
    views = BoardViews(context, histories, standings)
    listed = BoardList(context, standings)
    front_stream(router, context, visitors, front_page(router, context, visitors, listed))
    table_files(router, context, visitors, standings, listed)
    sharing_routes(router, context, standings)
    board_pages(router, context, visitors, views)
    hall_page(router, context, visitors, standings)
    problem_pages(router, context, visitors)
    submitting_pages(router, context, visitors, histories)
    code_pages(router, context, visitors)
    submission_pages(router, context, visitors, histories, standings)
    people_pages(router, context, visitors, standings, listed)
    comparing_page(router, context, visitors, standings, listed)
    sign_on_pages(router, context, visitors)
    joining_page(router, context, visitors)
    # Before /staff/{act}.
    staff_problem_pages(router, context, visitors)
    staff_script_pages(router, context, visitors)
    staff_triage_pages(router, context, visitors)
    staff_pages(router, context, visitors)
    staff_board_page(router, context, visitors)
    staff_boards_pages(router, context, visitors)
    staff_board_work_pages(router, context, visitors)
    staff_people_pages(router, context, visitors)
    staff_audit_page(router, context, visitors)
    staff_submission_pages(router, context, visitors)
    reveal_page(router, context, visitors)
    standings_file(router, context, visitors)
    course_pages(router, context, visitors)
    question_pages(router, context, visitors)
    staff_question_pages(router, context, visitors)
    design_page(router, context, visitors)
    live_streams(router, context, visitors, histories, views)
    return router
