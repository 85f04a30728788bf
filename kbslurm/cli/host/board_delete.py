"""`kbslurm board delete`: delete a board."""

from __future__ import annotations

from typing import Annotated

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output.printing import answer


def board_delete(
    name: BoardName,
    force: Annotated[bool, typer.Option("--force", help="Even if it has submissions.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a board. Its data stays in the database; its name can be used again."""
    with opened_store() as store:
        board = board_named(store, name)
        store.boards.delete(board.name, force=force, by=own_name())
    return answer(as_json, f"{board.name} is deleted", board=board.name, deleted=True)
