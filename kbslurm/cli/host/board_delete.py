"""`kbslurm board delete`: delete a board."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output.printing import answer


def board_delete(
    name: BoardName,
    force: Annotated[bool, typer.Option("--force", help="Even if it has submissions.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a board. Its data stays in the database; its name can be used again."""
    with host() as hosts:
        board = hosts.delete_board(name, force=force)["leaderboard"]
    return answer(as_json, f"{board} is deleted", board=board, deleted=True)
