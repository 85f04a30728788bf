"""Streams that keep an open page up to date: boards are sent what has changed, other pages when to load again."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import sessions, waiting
from kbslurm.api.context import Context
from kbslurm.api.door import Look, look_in_turn
from kbslurm.api.endless import EndlessResponse
from kbslurm.api.listener import BOARDS
from kbslurm.api.pages.boards.board_news import BoardNews, Channel
from kbslurm.api.pages.boards.board_views import BoardViews, Found, Place
from kbslurm.api.pages.boards.drawn_boards import page_with
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.visitors import Offset, Visitors
from kbslurm.api.parameters import Name, Number
from kbslurm.domain import contest
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.store.views import SubmissionView

HEARTBEAT_S = 15.0
PROGRESS_S = 4.0  # progress makes no event, so a submission that is being viewed is checked this often
STAFF_S = 2.0
RECONNECT_MS = (2000, 8000)
Seen = Annotated[str, Query(max_length=64)]
LastEvent = Annotated[str | None, Header(max_length=64)]


def live_streams(
    router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories, views: BoardViews
) -> None:
    news = BoardNews(context, views)

    @router.get("/live/{leaderboard}")
    async def live(
        leaderboard: Name,
        request: Request,
        gpu: Annotated[str | None, Query(max_length=contest.NAME_CAP)] = None,
        start: Offset = 0,
        seen: Seen = "",
        last_event_id: LastEvent = None,
    ) -> StreamingResponse:
        """The parts of a board's page that have changed since the version that the reader has seen, as they do."""
        place = Place(board=leaderboard, gpu=gpu, start=page_with(start))
        secret = sessions.secret_of(request)
        found, _ = await views.of(place, secret)
        _ = found.drawn  # NotFound must come before the stream begins
        return stream_of(_changes(context, views, news.follow, place, secret, found, last_event_id or seen))

    @router.get("/live/-/s/{submission_id}")
    async def submission(
        submission_id: Number, request: Request, seen: Seen = "", last_event_id: LastEvent = None
    ) -> StreamingResponse:
        """A short event whenever one's own submission differs from what its page shows, and `over` when nothing more
        will come."""

        number = SubmissionId(submission_id)

        def looked() -> tuple[str, bool]:
            view = visitors.own(visitors.who(request), number)
            words = waiting.words(view, waiting.of_submission(context, histories, view))
            return version_of(view, words), view.is_done

        now, _ = await run_in_threadpool(looked)
        shown = last_event_id or seen or now
        return stream_of(_steps(context, look_in_turn(context, request), number, looked, shown))

    @router.get("/live/-/staff")
    async def staff(request: Request, seen: Seen = "", last_event_id: LastEvent = None) -> StreamingResponse:
        """A short event when anything happened that the page doesn't show, at most one every `STAFF_S`."""

        def last() -> str:
            visitors.staff(visitors.who(request))
            return str(context.store.events.last())

        now = await run_in_threadpool(last)
        return stream_of(_stirs(context, look_in_turn(context, request), last, last_event_id or seen or now))


def stream_of(lines: AsyncIterator[str]) -> StreamingResponse:
    """An answer that goes on with these lines."""
    return EndlessResponse(lines, media_type="text/event-stream", headers=HEADERS)


async def _steps(
    context: Context, look: Look, number: SubmissionId, looked: Callable[[], tuple[str, bool]], shown: str
) -> AsyncIterator[str]:
    with context.listener.follow(number) as ring:
        yield beginning()
        while not context.listener.is_over:
            try:
                now, over = await look(looked)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects
            if over:
                yield "event: moved\ndata: {}\n\nevent: over\ndata: {}\n\n"
                return
            yield moved(now) if now != shown else ":\n\n"
            shown = now
            await context.listener.rest(ring, PROGRESS_S)


async def _stirs(context: Context, look: Look, last: Callable[[], str], shown: str) -> AsyncIterator[str]:
    with context.listener.follow() as ring:
        yield beginning()
        while not context.listener.is_over:
            try:
                now = await look(last)
            except KbslurmError:
                return
            yield moved(now) if now != shown else ":\n\n"
            shown = now
            await asyncio.sleep(STAFF_S)
            await context.listener.rest(ring, HEARTBEAT_S)


def version_of(view: SubmissionView, words: str) -> str:
    """What the page of an open submission shows, in short: the stream of a page that shows something else begins with
    the news."""
    states = [
        (run.shown_state, run.waits_for, waiting.progress(run), run.verdict and run.verdict.name) for run in view.runs
    ]
    return hashlib.sha256(repr((states, words)).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def beginning() -> str:
    """With what each stream begins."""
    # Readers whose connections end together come back one after another.
    return f"retry: {random.randint(*RECONNECT_MS)}\n: here\n\n"


def moved(version: str) -> str:
    """That the page shows something else now, which this names."""
    return f"id: {version}\nevent: moved\ndata: {{}}\n\n"


async def _changes(
    context: Context,
    views: BoardViews,
    follow: Callable[[Place, asyncio.Event], AbstractContextManager[Channel]],
    place: Place,
    secret: str | None,
    found: Found,
    seen: str,
) -> AsyncIterator[str]:
    drawn = found.drawn
    with context.listener.follow(BOARDS) as ring, follow(place, ring) as channel:
        yield beginning()
        while not context.listener.is_over:
            if channel.found is not None and isinstance(channel.found.page, NotFound):
                return  # the board has lost this GPU type
            if channel.found is not None and channel.found.drawn.number > drawn.number:
                found, drawn = channel.found, channel.found.drawn
            try:
                may_see = not channel.is_gone and await views.may_see(found.board, secret)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects with the version that it has
            if not may_see:
                return
            yield drawn.since(seen) or ":\n\n"
            seen = drawn.version
            await context.listener.rest(ring, HEARTBEAT_S)
