"""Streams that tell an open page when to refresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import waiting
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.parameters import Name, Number
from kbslurm.domain import access
from kbslurm.domain.run import EventId, SubmissionId
from kbslurm.errors import KbslurmError
from kbslurm.store.views import Board

HEARTBEAT_S = 15.0
PROGRESS_S = 4.0  # progress makes no event, so a submission that is being viewed is checked this often
STAFF_S = 2.0
QUEUE_S = 1.0  # a board's page is told of changes at most this often
Check = Callable[[], object]  # raises when the reader may no longer see this


def live_streams(router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories) -> None:
    @router.get("/live/{leaderboard}")
    async def live(
        leaderboard: Name,
        request: Request,
        after: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> StreamingResponse:
        """A short event whenever this board's standings or queues may have changed; the page then refreshes."""

        def seen() -> Board:
            return seen_board(context, leaderboard, visitors.who(request))

        board = await run_in_threadpool(seen)
        if last_event_id and last_event_id.isascii() and last_event_id.isdecimal():
            after = int(last_event_id)
        settled = await run_in_threadpool(context.store.events.last)
        start = settled if after is None else EventId(min(after, settled))
        check = None if access.is_for_everybody(board.visibility) else seen

        def queues() -> object:
            return [waiting.runner_queue(context, histories, gpu) for gpu in board.gpus]

        return _stream(_moves(context, board.id, start, check, queues))

    @router.get("/live/-/s/{submission_id}")
    async def submission(submission_id: Number, request: Request) -> StreamingResponse:
        """A short event whenever one's own submission changed, and `over` when nothing more will."""

        def owned() -> None:
            visitors.own(visitors.who(request), submission_id)

        await run_in_threadpool(owned)
        return _stream(_steps(context, histories, SubmissionId(submission_id), owned))

    @router.get("/live/-/staff")
    async def staff(request: Request) -> StreamingResponse:
        """A short event when anything happened, at most one every `STAFF_S`."""

        def checked() -> None:
            visitors.staff(visitors.who(request))

        await run_in_threadpool(checked)
        return _stream(_stirs(context, checked))


def _stream(lines: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"})


async def _steps(
    context: Context, histories: waiting.Histories, number: SubmissionId, check: Check
) -> AsyncIterator[str]:
    def looked() -> tuple[object, bool]:
        check()
        view = context.store.submissions.get(number)
        states = tuple((run.shown_state, run.verdict and run.verdict.name) for run in view.runs)
        words = waiting.words(view, waiting.of_submission(context, histories, view))
        return (states, words), view.is_done or view.removed_at is not None

    before: object = None
    with context.listener.follow(number) as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            try:
                now, over = await run_in_threadpool(looked)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects
            if over:
                yield "event: moved\ndata: {}\n\nevent: over\ndata: {}\n\n"
                return
            yield "event: moved\ndata: {}\n\n" if before not in (None, now) else ":\n\n"
            before = now
            await context.listener.rest(ring, PROGRESS_S)


async def _stirs(context: Context, check: Check) -> AsyncIterator[str]:
    with context.listener.follow() as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            heard = await _rung(context, ring)
            try:
                await run_in_threadpool(check)
            except KbslurmError:
                return
            yield "event: moved\ndata: {}\n\n" if heard else ":\n\n"
            await asyncio.sleep(STAFF_S)


async def _rung(context: Context, ring: asyncio.Event) -> bool:
    """Whether it rang within one heartbeat."""
    with suppress(TimeoutError):
        await asyncio.wait_for(ring.wait(), HEARTBEAT_S)
    heard = ring.is_set() and not context.listener.is_over
    ring.clear()
    return heard


async def _moves(
    context: Context, board: int, seen: EventId, check: Check | None, queues: Callable[[], object]
) -> AsyncIterator[str]:
    def moved() -> tuple[bool, EventId, object]:
        if check is not None:
            check()
        found = context.store.standings.moved(board, seen)
        return found.changed or found.people is None or bool(found.people), found.upto, queues()

    before: object = None
    with context.listener.follow() as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            try:
                has_moved, upto, now = await run_in_threadpool(moved)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects with the last id
            # Whoever connects may have a page from before the latest events.
            other_queue, seen, before = (upto > seen if before is None else now != before), upto, now
            if has_moved:
                yield f"id: {seen}\nevent: scored\ndata: {{}}\n\n"
            else:
                yield f"id: {seen}\nevent: moved\ndata: {{}}\n\n" if other_queue else ":\n\n"
            await asyncio.sleep(QUEUE_S)
            await context.listener.rest(ring, HEARTBEAT_S)
