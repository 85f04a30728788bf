"""`kbslurm board close`: stop accepting submissions to a board."""

from __future__ import annotations

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output.printing import answer


def board_close(name: BoardName, as_json: Json = False) -> int:
    """Stop accepting submissions to a board; its standings stay. `board edit NAME --reopen` opens it again."""
    with opened_store() as store:
        board = board_named(store, name)
        store.boards.close(board.name, by=own_name())
    return answer(as_json, f"{board.name} is closed", board=board.name, closed=True)
