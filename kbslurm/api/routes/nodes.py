"""What nodes of a Ray cluster call: the right to start an attempt, their signs of life, and its sealed result.

These calls are between the service and its own node program, so the document leaves them out.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import node_calls
from kbslurm.api.answers import Ascii
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.backends.ray import calls
from kbslurm.config import shared_folders
from kbslurm.errors import Invalid

NODE_CAP = 200
BYTES = "application/octet-stream"


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(route_class=Door, include_in_schema=False)

    @router.get("/nodes/{place}/{name}/kit")
    def kit(request: Request) -> Response:
        """The node program and the harness, with proof that they are ours."""
        from kbslurm.backends.ray.kit import kit

        call = node_calls.check(context, request)
        packed = kit(shared_folders.eval_dir())
        return Response(packed, media_type=BYTES, headers={calls.MAC: calls.kit_mac(call.key, packed)})

    @router.post("/nodes/{place}/{name}/claim")
    async def claimed(request: Request) -> Response:
        """The sealed order, for the first process that asks and for no other one."""
        call = node_calls.check(context, request)
        told = _object(await node_calls.taken(request, call))
        node, now = str(told.get("node", ""))[:NODE_CAP].replace("\0", ""), context.clock.now()
        order = await run_in_threadpool(
            context.store.node_jobs.claim,
            call.name,
            call.place,
            who=call.who,
            node=node,
            number=_number(told),
            now=now,
        )
        return Response(order, media_type=BYTES)

    @router.post("/nodes/{place}/{name}/beat")
    async def heard(request: Request) -> Ascii:
        """A sign of life; whether the attempt is to go on."""
        call = node_calls.check(context, request)
        told, now = _object(await node_calls.taken(request, call)), context.clock.now()
        progress = told.get("progress")
        go_on = await run_in_threadpool(
            context.store.node_jobs.hear,
            call.name,
            call.place,
            who=call.who,
            number=_number(told),
            progress=progress if isinstance(progress, dict) else {},
            now=now,
        )
        return Ascii({"go_on": go_on})

    @router.post("/nodes/{place}/{name}/result")
    async def delivered(request: Request) -> Ascii:
        """The sealed result, kept until it is collected."""
        call = node_calls.check(context, request)
        result, now = await node_calls.taken(request, call), context.clock.now()
        await run_in_threadpool(
            context.store.node_jobs.deliver, call.name, call.place, who=call.who, result=result, now=now
        )
        return Ascii({"kept": True})

    return router


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Invalid("the body must be a JSON object")
    return told


def _number(told: dict[str, Any]) -> int:
    """Higher in each call of one process, so that nobody who overhears a call can repeat it as a sign of life."""
    number = told.get("number")
    if type(number) is not int or not 0 < number <= calls.LAST_NUMBER:
        raise Invalid("the call's number must be a positive integer")
    return number
