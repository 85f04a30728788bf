"""`kbslurm board close`: stop accepting submissions to a board."""

from __future__ import annotations

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output.printing import answer


def board_close(name: BoardName, as_json: Json = False) -> int:
    """Stop accepting submissions to a board; its standings stay. `board edit NAME --reopen` opens it again."""
    with host() as hosts:
        board = hosts.close_board(name)["leaderboard"]
    return answer(as_json, f"{board} is closed", board=board, closed=True)
