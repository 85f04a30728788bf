"""Calls open to anyone: boards, rankings and queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.answers import (
    BoardInfo,
    Queue,
    StandingInfo,
)
from kbslurm.client.connection import Connection, part
from kbslurm.client.parsing import parsed
from kbslurm.errors import (
    NotFound,
)


class PublicCalls(Connection):
    """Calls open to anyone."""

    def boards(self) -> list[BoardInfo]:
        """The boards that the caller may see, newest first."""
        return [parsed(BoardInfo, row) for row in self._get("/leaderboards")]

    def board(self, name: str) -> BoardInfo:
        """The board with that name in any case, or NotFound with the existing ones."""
        found = self.boards()
        for board in found:
            if board.name.lower() == name.strip().lower():
                return board
        raise NotFound("board", name, known=[board.name for board in found])

    def gpu_types(self, board: str) -> list[str]:
        """The GPU types of a board."""
        return [str(one) for one in self._get(f"/gpus/{part(board)}")]

    def ranking(
        self, board: str, gpu: str, *, limit: int = 100, offset: int = 0, practice: bool = False
    ) -> list[StandingInfo]:
        """Each person's best, best first; `practice`: of what was submitted after the end."""
        more = {"practice": True} if practice else {}
        path = f"/submissions/{part(board)}/{part(gpu)}"
        return [parsed(StandingInfo, row) for row in self._get(path, limit=limit, offset=offset, **more)]

    def queue(self, gpu: str) -> Queue:
        """The state of a GPU type's queue."""
        return parsed(Queue, self._get(f"/runner_queue/{part(gpu)}"))

    def board_rows(self) -> list[Mapping[str, Any]]:
        """The boards that the caller may see, as the server sends them."""
        return list(self._get("/leaderboards"))

    def announcements(self, board: str) -> Mapping[str, Any]:
        """What hosts told everyone on a board, newest first: `leaderboard`, `announcements`."""
        found: Mapping[str, Any] = self._get(f"/announcements/{part(board)}")
        return found

    def problem_of(self, board: str) -> Mapping[str, Any]:
        """A board's problem to work on at home, as the server sends it."""
        found: Mapping[str, Any] = self._get(f"/leaderboards/{part(board)}/problem")
        return found

    def check(self) -> None:
        """ServerGone unless kbslurm answers there."""
        if self._get("/health") != {"status": "ok"} or not isinstance(self._get("/leaderboards"), list):
            raise self._stranger("something else")
