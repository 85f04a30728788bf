"""Hosts' calls about courses; some also for whoever has a role there."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping, helping_on_course, hosting, hosting_in_person
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name, Whom
from kbslurm.contract.courses import (
    BoardRoles,
    BoardRoleSet,
    Courses,
    InvitationsMade,
    InvitationsWanted,
    NewBoardRole,
    RosterDropped,
    RosterImported,
    RosterPerson,
    RosterPlace,
    RosterTold,
)
from kbslurm.domain import contest

Course = Annotated[str, Path(max_length=contest.NAME_CAP, description="A course's name, in any case.")]
OnRoster = Annotated[
    str, Path(max_length=254, description="A person's number or name; on the roster also an e-mail or student ID.")
]


def add_courses(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/courses", responses=answers(Courses, 401))
    def courses(sender: Sender) -> Ascii:
        """Every course: how many are on its roster, and its boards."""
        return Ascii({"courses": hosting(context, sender).courses()})

    @router.get("/courses/{course}", responses=answers(RosterTold, *HOSTS_FAILURES, 403))
    def roster(course: Course, sender: Sender) -> Ascii:
        """A course's roster with its personal data. Also for graders of the course."""
        return Ascii(helping_on_course(context, sender, course, "grade").roster(course))

    @router.post(
        "/courses/{course}/import",
        responses=answers(RosterImported, *HOSTS_FAILURES, 408, 413),
        openapi_extra=upload.OPENAPI,
    )
    async def import_(
        course: Course,
        request: Request,
        sender: Sender,
        preview: Annotated[bool, Query(description="Only say what would change.")] = False,
        remove: Annotated[bool, Query(description="Students who aren't in the file leave the roster.")] = False,
    ) -> Ascii:
        """Bring a course's roster to what a CSV says; a file with a wrong line changes nothing."""
        sent = await upload.read(request)

        def taken() -> Ascii:
            host = hosting_in_person(context, sender, "a roster can't be imported")
            return Ascii(host.import_roster(course, sent.data, preview=preview, remove=remove))

        return await run_in_threadpool(taken)

    @router.put("/courses/{course}/people/{user_id}", responses=answers(RosterPerson, *HOSTS_FAILURES, 403))
    def place(course: Course, user_id: OnRoster, wanted: RosterPlace, sender: Sender) -> Ascii:
        """Put a person on a roster, or change their section, team or role there. Also for owners of the course, of
        whoever is on it."""
        host = helping_on_course(context, sender, course, "own")
        return Ascii(host.place_on_roster(course, user_id, section=wanted.section, team=wanted.team, role=wanted.role))

    @router.delete("/courses/{course}/people/{user_id}", responses=answers(RosterDropped, *HOSTS_FAILURES, 403))
    def drop(course: Course, user_id: OnRoster, sender: Sender) -> Ascii:
        """Take a person off a roster; they and what they submitted stay. Also for owners of the course."""
        return Ascii(helping_on_course(context, sender, course, "own").drop_from_roster(course, user_id))

    @router.post("/courses/{course}/invitations", responses=answers(InvitationsMade, *HOSTS_FAILURES, 403))
    def invite(course: Course, wanted: InvitationsWanted, sender: Sender) -> Ascii:
        """Make a link for each person on a roster, by which they sign in once."""
        host = hosting_in_person(context, sender, "invitations can't be made")
        return Ascii(host.invite_roster(course, wanted.people or (), days=wanted.days, again=wanted.again))


def add_board_roles(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/roles", responses=answers(BoardRoles, *HOSTS_FAILURES, 403))
    def roles(leaderboard: Name, sender: Sender) -> Ascii:
        """Who helps on a board, by a role there or on its course."""
        return Ascii(helping(context, sender, leaderboard, "see").board_roles(leaderboard))

    @router.put("/leaderboards/{leaderboard}/roles/{user_id}", responses=answers(BoardRoleSet, *HOSTS_FAILURES, 403))
    def give(leaderboard: Name, user_id: Whom, wanted: NewBoardRole, sender: Sender) -> Ascii:
        """Give a person a role on a board, or take it away. Also for the board's owners."""
        return Ascii(helping(context, sender, leaderboard, "own").set_board_role(leaderboard, user_id, wanted.role))
