"""Hosts' calls about boards."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity, upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, creating, helping, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Entry, Name, Number
from kbslurm.api.routes.hosts.problems import Uploaded, checked_name
from kbslurm.contract.boards import (
    BoardDeleted,
    BoardEdit,
    BoardEdited,
    BoardMade,
    BoardNamed,
    BoardOfProblem,
    NewBoard,
    NewVisibility,
    VisibilityTold,
)
from kbslurm.contract.rankings import NamesTold, Places
from kbslurm.domain import contest
from kbslurm.domain.access import BoardAct, NamesShown, StandingsShown, Visibility
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.problems import upload as problem_upload

# What only a board's owners may change.
OWNERS_ALONE = frozenset({"visibility", "teams", "teams_only", "names", "standings", "publishes_reference"})


def add_boards(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards", responses=answers(BoardNamed, *HOSTS_FAILURES, 403))
    def create(wanted: NewBoard, sender: Sender) -> Ascii:
        """Create a board from a problem's directory on the server, named after the directory."""
        host = hosting(context, sender)
        identity.check_reaches_files(context, sender)
        place = FilePath(wanted.directory)
        problem = loading.load(place, name=contest.board_name(place.resolve().name.removesuffix(".py")))
        made = host.new_board(
            problem.name,
            sent=Uploaded(problem),
            gpus=problem.gpus or tuple(context.slots),
            visibility=wanted.visibility or "public",
        )
        return Ascii({"status": "ok", "leaderboard": made["leaderboard"]})

    @router.post("/leaderboards/of-problem", responses=answers(BoardMade, *HOSTS_FAILURES))
    def of_problem(wanted: BoardOfProblem, sender: Sender) -> Ascii:
        """Create a board on the newest version of a problem that is here already."""
        given = wanted.model_dump(exclude_none=True)
        return Ascii(hosting(context, sender).new_board(given.pop("name"), **given))

    @router.patch("/leaderboards/{leaderboard}", responses=answers(BoardEdited, *HOSTS_FAILURES, 403))
    def edit(leaderboard: Name, wanted: BoardEdit, sender: Sender) -> Ascii:
        """Change what is given of a board; queued runs keep their GPU type."""
        given = wanted.model_dump(exclude_none=True)
        if "course" in given:  # whoever decides on that sees its roster
            return Ascii(hosting(context, sender).edit_board(leaderboard, **given))
        act: BoardAct = "own" if OWNERS_ALONE & given.keys() else "run"
        return Ascii(helping(context, sender, leaderboard, act).edit_board(leaderboard, **given))

    @router.delete("/leaderboards/{leaderboard}", responses=answers(BoardDeleted, *HOSTS_FAILURES, 403))
    def delete(leaderboard: Name, sender: Sender, force: bool = False, only: Number | None = None) -> Ascii:
        """Delete a board; with submissions only by force. Its data stays in the database. `only`: the expected board
        id, so that a newer board of the same name isn't deleted.
        """
        return Ascii(helping(context, sender, leaderboard, "own").delete_board(leaderboard, force=force, only=only))

    @router.post("/leaderboards/{leaderboard}/visibility", responses=answers(VisibilityTold, *HOSTS_FAILURES, 403))
    def visibility(leaderboard: Name, wanted: NewVisibility, sender: Sender) -> Ascii:
        """Show a board to everyone, or only to invited people."""
        return Ascii(helping(context, sender, leaderboard, "own").set_visibility(leaderboard, wanted.visibility))

    @router.post("/leaderboards/{leaderboard}/close", responses=answers(BoardNamed, *HOSTS_FAILURES, 403))
    def close(leaderboard: Name, sender: Sender) -> Ascii:
        """Stop accepting submissions to a board; its standings stay."""
        return Ascii(helping(context, sender, leaderboard, "run").close_board(leaderboard))


def add_uploads(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post(
        "/leaderboards/upload",
        responses=answers(BoardMade, 400, 401, 408, 413),
        openapi_extra=upload.OPENAPI,
    )
    async def create(
        request: Request,
        sender: Sender,
        name: Annotated[str, Query(max_length=contest.NAME_CAP)],
        gpu: Annotated[list[str] | None, Query(max_length=64, description="Can be repeated.")] = None,
        deadline: Annotated[str | None, Query(max_length=64, description="2026-12-24, 2026-12-24 18:00, …")] = None,
        zone: Annotated[str, Query(max_length=64, description="The deadline's time zone, like Europe/Berlin.")] = "UTC",
        description: Annotated[str | None, Query(max_length=4000)] = None,
        visibility: Visibility = "public",
        min_isolation: Annotated[int | None, Query(ge=0, le=3)] = None,
        confirm: Annotated[bool, Query(description="Confirm a rank improvement by a second measurement.")] = True,
        problem: Annotated[
            str | None, Query(max_length=contest.NAME_CAP, description="The problem's name (default: the board's).")
        ] = None,
        entry: Entry = None,
        course: Annotated[str | None, Query(max_length=contest.NAME_CAP, description="The course it is of.")] = None,
        teams: Annotated[bool, Query(description="Members of a team count together.")] = False,
        teams_only: Annotated[bool, Query(description="Whoever is in no team can't submit.")] = False,
        practice: Annotated[bool, Query(description="After the end it takes submissions that count nowhere.")] = False,
        names: Annotated[NamesShown, Query(description="By which names others see people.")] = "real",
        standings: Annotated[StandingsShown, Query(description="Whether others see them.")] = "shown",
        publishes_reference: Annotated[bool, Query(description="Let people pull the reference.")] = False,
    ) -> Ascii:
        """Create a board from an uploaded problem: a zip of its folder, or one reference file. Also for creators."""
        sent = await upload.read(request)

        def made() -> Ascii:
            host, board_name = creating(context, sender), contest.board_name(name)
            if context.store.boards.find(board_name, counted=False) is not None:
                raise Invalid(f"there is already a board {board_name!r}", hint="Pick another name.")
            loaded = Uploaded(
                problem_upload.loaded(sent.file_name, sent.data, name=checked_name(problem or board_name), entry=entry)
            )
            found = host.new_board(
                board_name,
                sent=loaded,
                gpus=gpu or (),
                deadline=deadline,
                zone=zone,
                description=description,
                visibility=visibility,
                min_isolation=min_isolation,
                confirm=confirm,
                course=course,
                teams=teams,
                teams_only=teams_only,
                practice=practice,
                names=names,
                standings=standings,
                publishes_reference=publishes_reference,
            )
            return Ascii(found)

        return await run_in_threadpool(made)


def add_export(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/export", responses=answers(Places, *HOSTS_FAILURES, 403))
    def export(
        leaderboard: Name,
        sender: Sender,
        live: Annotated[bool, Query(description="Also what others can't see, by people's own names.")] = False,
    ) -> Ascii:
        """A board's standings: each person's best per GPU type, with unrounded scores."""
        host = helping(context, sender, leaderboard, "grade" if live else "see")
        return Ascii({"leaderboard": host.held(leaderboard).name, "places": host.places(leaderboard, live=live)})

    @router.get("/leaderboards/{leaderboard}/names", responses=answers(NamesTold, *HOSTS_FAILURES, 403))
    def names(leaderboard: Name, sender: Sender) -> Ascii:
        """As whom others see the people who have submitted to a board."""
        host = helping(context, sender, leaderboard, "grade")
        return Ascii({"leaderboard": host.held(leaderboard).name, "names": host.shown_names(leaderboard)})
