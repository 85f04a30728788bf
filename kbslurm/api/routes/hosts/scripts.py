"""Hosts' calls about scripts that run on a GPU without a board."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Given, Sender
from kbslurm.api.parameters import Number
from kbslurm.contract.scripts import ScriptTold
from kbslurm.domain.scripts import DEFAULT_S, MOST_S


def add_scripts(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post(
        "/scripts",
        status_code=202,
        responses=answers(ScriptTold, *HOSTS_FAILURES, 403, 408, 413, 429, status=202),
        openapi_extra=upload.OPENAPI,
    )
    async def run(
        request: Request,
        sender: Sender,
        gpu: Annotated[str, Query(max_length=64, description="The GPU type; one that a place offers.")],
        timeout_s: Annotated[int, Query(ge=1, le=MOST_S, description="How long it may take.")] = DEFAULT_S,
        place: Annotated[str | None, Query(max_length=64, description="Run only at this place.")] = None,
    ) -> Ascii:
        """Run a Python file on a GPU type, without a board: caged like a submission, within the host's budget."""
        sent = await upload.read(request)
        return Ascii(await run_in_threadpool(ordered, sender, sent, gpu, timeout_s, place), status_code=202)

    def ordered(sender: Given, sent: upload.Upload, gpu: str, timeout_s: int, place: str | None) -> object:
        return hosting(context, sender).run_script(sent.file_name, sent.data, gpu, timeout_s, place)

    @router.get("/scripts/{script}", responses=answers(ScriptTold, *HOSTS_FAILURES))
    def look(script: Number, sender: Sender) -> Ascii:
        """A script's state and, once it has ended, its exit status and what it wrote."""
        return Ascii(hosting(context, sender).script(script))

    @router.delete("/scripts/{script}", responses=answers(ScriptTold, *HOSTS_FAILURES, 403))
    def cancel(script: Number, sender: Sender) -> Ascii:
        """Cancel a script: one that waits now, and one that runs is killed where it runs."""
        return Ascii(hosting(context, sender).cancel_script(script))
