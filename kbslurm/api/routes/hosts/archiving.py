"""Hosts' calls that hand a board's work on: its archive, and one person's work log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Annotated, Any

from anyio import CancelScope
from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, helping
from kbslurm.api.hosting.archiving import TEAM, Rows
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.archiving import ArchiveLine, ArchiveWanted, WorkLog

CHUNK = 64_000
LINES = "application/x-ndjson"
_STREAM: dict[int | str, dict[str, Any]] = {
    **answers(ArchiveLine, *HOSTS_FAILURES, 403),
    200: {
        "description": "One JSON object per line: a table's name and one of its rows.",
        "content": {LINES: {"schema": ArchiveLine.model_json_schema()}},
    },
}
Whose = Annotated[
    str,
    Path(
        max_length=100, description=f"A person's number, name or e-mail address, discord:ID, github:ID, or {TEAM}NAME."
    ),
]

After = Annotated[int, Query(ge=0, le=2**63 - 1, description="Only submissions with higher numbers.")]


def add_archiving(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/archive", responses=_STREAM, response_class=StreamingResponse)
    async def archive(leaderboard: Name, wanted: ArchiveWanted, sender: Sender) -> StreamingResponse:
        """Every row of a board's archive, as lines of JSON. Also for the board's graders; with everything, for its
        owners."""

        def begun() -> Rows:
            host = helping(context, sender, leaderboard, "own" if wanted.private else "grade")
            return host.archive(leaderboard, private=wanted.private, place=wanted.place)

        rows = await run_in_threadpool(begun)
        return StreamingResponse(_lines(context, rows), media_type=LINES)

    @router.get("/leaderboards/{leaderboard}/worklog/{whose}", responses=answers(WorkLog, *HOSTS_FAILURES, 403))
    def work_log(leaderboard: Name, whose: Whose, sender: Sender, after: After = 0) -> Ascii:
        """What a person or a team has submitted to a board, oldest first, at most 200 at once. Also for the board's
        graders."""
        return Ascii(helping(context, sender, leaderboard, "grade").work_log(leaderboard, whose, after=after))


async def _lines(context: Context, rows: Rows) -> AsyncIterator[bytes]:
    """The rows as text, made where waiting for the database delays nobody."""
    chunks = _chunks(rows)
    try:
        while (chunk := await context.patiently(lambda: next(chunks, None))) is not None:
            yield chunk
    finally:  # whoever hangs up gives the connection back
        with CancelScope(shield=True), suppress(ValueError):
            await context.patiently(chunks.close)


def _chunks(rows: Rows) -> Generator[bytes, None, None]:
    held = bytearray()
    try:
        for table, row in rows:
            told = json.dumps({"table": table, "row": row}, allow_nan=False, separators=(",", ":"))
            held += told.encode() + b"\n"
            if len(held) >= CHUNK:
                yield bytes(held)
                held.clear()
        yield bytes(held)
    finally:
        rows.close()
