"""`kbslurm board list`: the boards."""

from __future__ import annotations

from datetime import UTC, datetime

from kbslurm.cli.arguments import Json
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import opened_store
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import board_json, board_json_over_http, closing_time, closing_time_over_http
from kbslurm.cli.service_in_use import InUse, in_use
from kbslurm.domain.contest import shown_visibility
from kbslurm.errors import EXIT_OK


def board_list(as_json: Json = False) -> int:
    """List the boards. Over HTTP, the ones that you may see."""
    if (named := in_use()) is not None:
        return _list_over_http(named, as_json)
    with opened_store() as store:
        found = store.boards.all()
    now = datetime.now(UTC)
    if as_json:
        printing.as_json([board_json(board) for board in found])
    elif found:
        rows = [
            (
                b.name,
                b.problem_name,
                " ".join(b.gpus),
                closing_time(b, now),
                str(b.submissions),
                shown_visibility(b.visibility),
            )
            for b in found
        ]
        printing.table(("board", "problem", "GPUs", "closes", "submissions", "visibility"), rows)
    else:
        printing.say("no boards yet; kbslurm board create NAME --gpus H100 --reference FILE.py makes one")
    return EXIT_OK


def _list_over_http(named: InUse, as_json: bool) -> int:
    with reached(named.url, named.token, anybody=True) as client:
        found = client.board_rows()
    if as_json:
        printing.as_json([board_json_over_http(row) for row in found])
    elif found:
        rows = [
            (
                printing.escape(row["name"]),
                printing.escape(str(row["task"].get("name", ""))),
                " ".join(row["gpu_types"]),
                closing_time_over_http(row),
                shown_visibility(row["visibility"]),
            )
            for row in found
        ]
        printing.table(("board", "problem", "GPUs", "closes", "visibility"), rows)
    else:
        printing.say(f"you can't see any boards at {named.url}")
    return EXIT_OK
