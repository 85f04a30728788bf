"""Events for machines: one JSON object per line, in order, from the reader's last position; each at least once.

An empty line keeps the connection alive. A token is valid only for the feed that issued it. `/metrics` for Prometheus
is here too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity
from kbslurm.api.answers import answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door, Look, look_in_turn
from kbslurm.api.endless import EndlessResponse
from kbslurm.api.identity import Sender
from kbslurm.api.metrics import MEDIA_TYPE
from kbslurm.contract.feed import FeedLine
from kbslurm.domain.run import EventId
from kbslurm.errors import KbslurmError, Unauthenticated
from kbslurm.flow import announce
from kbslurm.ports import Event

HEARTBEAT_S = 20.0


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["hosts"], route_class=Door)

    @router.get(
        "/events",
        responses={
            **answers(FeedLine, 400, 401),
            200: {
                "description": "One FeedLine per line, empty lines as heartbeats.",
                "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
            },
        },
    )
    async def events(
        request: Request,
        sender: Sender,
        since_token: Annotated[
            str | None, Query(max_length=32, description="The last line's token; `now`: only new events.")
        ] = None,
        stream: Annotated[bool, Query(description="Keep streaming new events.")] = True,
    ) -> StreamingResponse:
        """Every event after the token, then new ones as they happen."""
        await run_in_threadpool(identity.service, context, sender)
        after = await run_in_threadpool(announce.place_of, context.store.events, since_token)
        lines = _lines(context, look_in_turn(context, request), sender, after, stream)
        kind = EndlessResponse if stream else StreamingResponse
        return kind(lines, media_type="application/x-ndjson")

    @router.get(
        "/metrics",
        responses={
            **answers(FeedLine, 401),
            200: {"description": "The exposition format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    def metrics(sender: Sender) -> Response:
        """The API's metrics for Prometheus. For hosts only: behind a proxy every request seems to come from this
        machine."""
        identity.host(context, sender)
        return Response(context.metrics.text(), headers={"Content-Type": MEDIA_TYPE})

    return router


async def _lines(context: Context, look: Look, sender: Sender, after: EventId, stream: bool) -> AsyncIterator[str]:
    def looked() -> Sequence[Event]:
        found = announce.next_events(context.store.events, after)
        identity.service(context, sender)  # asked after that: whoever may no longer read gets not even the news of it
        return found

    with context.listener.follow() as ring:
        # Sent immediately, so that the reader knows the feed works and proxies forward the headers.
        yield "\n"
        while True:
            try:
                found = await look(looked)
            except Unauthenticated:
                return
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader reconnects with its last token
            for event in found:
                after = event.id
                yield json.dumps(announce.as_json(event), ensure_ascii=True, default=str) + "\n"
            if found:
                continue
            if not stream or context.listener.is_over:
                return
            await context.listener.rest(ring, HEARTBEAT_S)
            yield "\n"
