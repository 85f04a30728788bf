"""Hosts' calls about boards."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity, upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, creating, hosting
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
    Extended,
    Extension,
    NewBoard,
    NewVisibility,
    VisibilityTold,
)
from kbslurm.contract.rankings import Places
from kbslurm.domain import contest
from kbslurm.domain.access import Visibility
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.problems import upload as problem_upload


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

    @router.patch("/leaderboards/{leaderboard}", responses=answers(BoardEdited, *HOSTS_FAILURES))
    def edit(leaderboard: Name, wanted: BoardEdit, sender: Sender) -> Ascii:
        """Change what is given of a board; queued runs keep their GPU type."""
        given = wanted.model_dump(exclude_none=True)
        return Ascii(hosting(context, sender).edit_board(leaderboard, **given))

    @router.delete("/leaderboards/{leaderboard}", responses=answers(BoardDeleted, *HOSTS_FAILURES))
    def delete(leaderboard: Name, sender: Sender, force: bool = False, only: Number | None = None) -> Ascii:
        """Delete a board; with submissions only by force. Its data stays in the database. `only`: the expected board
        id, so that a newer board of the same name isn't deleted.
        """
        return Ascii(hosting(context, sender).delete_board(leaderboard, force=force, only=only))

    @router.post("/leaderboards/{leaderboard}/visibility", responses=answers(VisibilityTold, *HOSTS_FAILURES))
    def visibility(leaderboard: Name, wanted: NewVisibility, sender: Sender) -> Ascii:
        """Show a board to everyone, or only to invited people."""
        return Ascii(hosting(context, sender).set_visibility(leaderboard, wanted.visibility))

    @router.post("/leaderboards/{leaderboard}/close", responses=answers(BoardNamed, *HOSTS_FAILURES))
    def close(leaderboard: Name, sender: Sender) -> Ascii:
        """Stop accepting submissions to a board; its standings stay."""
        return Ascii(hosting(context, sender).close_board(leaderboard))

    @router.post("/leaderboards/{leaderboard}/extend", responses=answers(Extended, *HOSTS_FAILURES))
    def extend(leaderboard: Name, wanted: Extension, sender: Sender) -> Ascii:
        """Give one person a deadline extension."""
        return Ascii(hosting(context, sender).extend(leaderboard, wanted.person, wanted.until))


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
            )
            return Ascii(found)

        return await run_in_threadpool(made)


def add_export(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/export", responses=answers(Places, *HOSTS_FAILURES))
    def export(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's standings: each person's best per GPU type, with unrounded scores."""
        host = hosting(context, sender)
        return Ascii({"leaderboard": host.held(leaderboard).name, "places": host.places(leaderboard)})
