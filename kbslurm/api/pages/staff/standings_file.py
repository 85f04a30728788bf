"""A board's standings as a file: what `kbslurm export` writes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api import parquet
from kbslurm.api.context import Context
from kbslurm.api.pages.rendering import HEADERS
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.parameters import Name
from kbslurm.domain import contest, places
from kbslurm.errors import Invalid

MEDIA = {"csv": "text/csv; charset=utf-8", "json": "application/json", "parquet": "application/vnd.apache.parquet"}


def standings_file(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/staff/board/{leaderboard}/export")
    def export(
        leaderboard: Name,
        request: Request,
        form: Annotated[str, Query(alias="format", max_length=contest.NAME_CAP)] = "csv",
        live: bool = False,
    ) -> Response:
        """The standings as a download: what others see, or, `live`, everything by people's own names. Also for whoever
        has a role on the board that allows it."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work = visitors.at_board(reader, leaderboard, "grade" if live else "see")
        if form not in places.FORMATS:
            raise Invalid(
                f"{contest.shown(form)} isn't a format of exports", hint=f"Choose one of: {', '.join(places.FORMATS)}."
            )
        if form == "parquet":
            parquet.check()
        board = work.held(leaderboard).name
        name = f"{board}-{'all-' if live else ''}standings.{form}"
        told = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        data = _written(work.places(board, live=live), form)
        return Response(data, media_type=MEDIA[form], headers={**HEADERS, **told})


def _written(rows: Sequence[Mapping[str, Any]], form: str) -> str | bytes:
    if form == "json":
        return places.as_json(rows)
    if form == "csv":
        return places.as_csv(rows)
    with tempfile.TemporaryDirectory(prefix="kbslurm-export-") as folder:
        file = Path(folder, "standings.parquet")
        with parquet.ParquetFile(file, places.KINDS) as table:
            for row in rows:
                table.add(row)
        return file.read_bytes()
