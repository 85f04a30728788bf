"""What happens, for machines: one JSON object a line, in order, from where the reader was; at least once each.

A line with nothing on it says that the connection lives. A token is only good for the feed that gave it. Beside it
`/metrics`, how much happens, for Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity
from kbslurm.api.answers import answers
from kbslurm.api.context import Context
from kbslurm.api.identity import Sender
from kbslurm.api.metrics import MEDIA_TYPE
from kbslurm.contract.feed import FeedLine
from kbslurm.domain.run import EventId
from kbslurm.errors import KbslurmError
from kbslurm.flow import announce

HEARTBEAT_S = 20.0


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["hosts"])

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
        sender: Sender,
        since_token: Annotated[
            str | None, Query(max_length=32, description="The last line's token; `now`: only what is to come.")
        ] = None,
        stream: Annotated[bool, Query(description="Stay for what is to come.")] = True,
    ) -> StreamingResponse:
        """Every event after the token, then what happens, as it happens."""
        await run_in_threadpool(identity.service, context, sender)
        after = await run_in_threadpool(announce.place_of, context.store.events, since_token)
        lines = _lines(context, after, stream)
        return StreamingResponse(lines, media_type="application/x-ndjson", headers={"X-Accel-Buffering": "no"})

    @router.get(
        "/metrics",
        responses={
            **answers(FeedLine, 401),
            200: {"description": "The exposition format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    )
    def metrics(sender: Sender) -> Response:
        """The API's numbers for Prometheus. For hosts only: behind a proxy everybody comes from here."""
        identity.host(context, sender)
        return Response(context.metrics.text(), headers={"Content-Type": MEDIA_TYPE})

    return router


async def _lines(context: Context, after: EventId, stream: bool) -> AsyncIterator[str]:
    with context.listener.follow() as ring:
        # Said at once: who reads knows that the feed is there, and proxies send the headers on.
        yield "\n"
        while True:
            try:
                found = await run_in_threadpool(announce.next_events, context.store.events, after)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader comes back with its last token
            for event in found:
                after = event.id
                yield json.dumps(announce.as_json(event), ensure_ascii=True, default=str) + "\n"
            if found:
                continue
            if not stream or context.listener.is_over:
                return
            await context.listener.rest(ring, HEARTBEAT_S)
            yield "\n"
