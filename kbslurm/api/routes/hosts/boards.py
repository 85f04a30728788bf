"""Hosts' calls about boards."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity, upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held, whom
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name, Number
from kbslurm.contract.boards import (
    BoardDeleted,
    BoardMade,
    BoardNamed,
    Extension,
    NewBoard,
    NewVisibility,
    VisibilityTold,
)
from kbslurm.contract.rankings import Places
from kbslurm.domain import board as boards
from kbslurm.domain import contest, places
from kbslurm.domain.access import Visibility
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.problems import upload as problem_upload


def add_boards(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards", responses=answers(BoardNamed, *HOSTS_FAILURES, 403))
    def create(wanted: NewBoard, sender: Sender) -> Ascii:
        """Create a board from a problem's directory on the server, named after the directory."""
        by = identity.host(context, sender)
        identity.check_reaches_files(context, sender)
        place = FilePath(wanted.directory)
        problem = loading.load(place, name=contest.board_name(place.resolve().name.removesuffix(".py")))
        board = context.store.boards.add(
            problem.name,
            problem,
            gpus=problem.gpus or tuple(context.slots),
            visibility=wanted.visibility or "public",
            min_isolation=context.config.policy.ranked_min_isolation,
            by=by,
            now=context.clock.now(),
        )
        return Ascii({"status": "ok", "leaderboard": board.name})

    @router.delete("/leaderboards/{leaderboard}", responses=answers(BoardDeleted, *HOSTS_FAILURES))
    def delete(leaderboard: Name, sender: Sender, force: bool = False, only: Number | None = None) -> Ascii:
        """Delete a board; with submissions only by force. Its data stays in the database. `only`: the expected board
        id, so that a newer board of the same name isn't deleted.
        """
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.boards.delete(board.name, force=force, only=only, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "force": force})

    @router.post("/leaderboards/{leaderboard}/visibility", responses=answers(VisibilityTold, *HOSTS_FAILURES))
    def visibility(leaderboard: Name, wanted: NewVisibility, sender: Sender) -> Ascii:
        """Show a board to everyone, or only to invited people."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.boards.set_visibility(board.name, wanted.visibility, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "visibility": wanted.visibility})

    @router.post("/leaderboards/{leaderboard}/close", responses=answers(BoardNamed, *HOSTS_FAILURES))
    def close(leaderboard: Name, sender: Sender) -> Ascii:
        """Stop accepting submissions to a board; its standings stay."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.boards.close(board.name, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name})

    @router.post("/leaderboards/{leaderboard}/extend", responses=answers(BoardNamed, *HOSTS_FAILURES))
    def extend(leaderboard: Name, wanted: Extension, sender: Sender) -> Ascii:
        """Give one person a deadline extension."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        now = context.clock.now()
        until = contest.coming_deadline(wanted.until, board.zone, now, what="extension") if wanted.until else None
        context.store.limits.extend(board.name, whom(context, wanted.person), until, by=by, now=now)
        return Ascii({"status": "ok", "leaderboard": board.name})


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
    ) -> Ascii:
        """Create a board from an uploaded problem: a zip of its folder, or one reference file. Also for creators."""
        sent = await upload.read(request)

        def made() -> Ascii:
            by, creator = identity.creator(context, sender)
            now, board_name = context.clock.now(), contest.board_name(name)
            closes = contest.coming_deadline(deadline, zone, now) if deadline else None
            if context.store.boards.find(board_name, counted=False) is not None:
                raise Invalid(f"there is already a board {board_name!r}", hint="Pick another name.")
            problem = problem_upload.loaded(sent.file_name, sent.data, name=board_name)
            gpus = contest.as_known(gpu or problem.gpus, tuple(context.slots))
            board = context.store.boards.add(
                board_name,
                problem,
                gpus=gpus,
                deadline_at=closes,
                zone=zone,
                description=description,
                visibility=visibility,
                min_isolation=context.config.policy.ranked_min_isolation,
                created_by=creator,
                by=by,
                now=now,
            )
            warnings = [*problem.warnings, *contest.unknown_gpus(board.gpus, tuple(context.slots))]
            told = {"status": "ok", "leaderboard": board.name, "gpu_types": list(board.gpus)}
            return Ascii({**told, "warnings": warnings[:20]})

        return await run_in_threadpool(made)


def add_export(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/leaderboards/{leaderboard}/export", responses=answers(Places, *HOSTS_FAILURES))
    def export(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's standings: each person's best per GPU type, with unrounded scores."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        rows = [
            places.row(board.name, gpu, one, paired=board.problem.baseline is not None)
            for gpu in board.gpus
            for one in boards.ranked(context.store.standings.best(board.name, gpu))
        ]
        context.store.events.audit(by, "export", f"board:{board.id}", {"places": len(rows)}, now=context.clock.now())
        return Ascii({"leaderboard": board.name, "places": rows})
