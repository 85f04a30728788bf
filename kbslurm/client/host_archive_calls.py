"""Hosts' calls that hand a board's work on: archives and work logs."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from kbslurm.client.connection import Connection, part

BETWEEN_LINES_S = 120.0


class HostArchiveCalls(Connection):
    """Archives and work logs."""

    def archive(self, board: str, *, private: bool, place: str) -> Generator[tuple[str, Mapping[str, Any]], None, None]:
        """Every row of a board's archive with its table, as they come; at last that there are no more."""
        wanted = {"private": private, "place": place}
        for line in self._lines(
            "POST", f"/admin/leaderboards/{part(board)}/archive", json=wanted, timeout=BETWEEN_LINES_S
        ):
            try:
                told = json.loads(line)
                yield str(told["table"]), told["row"]
            except (ValueError, LookupError, TypeError):
                raise self._stranger("invalid JSON") from None

    def work_log(self, board: str, whom: str, *, after: int = 0) -> Mapping[str, Any]:
        """What a person, or with team:NAME a team, has submitted to a board, oldest first: the next part after that
        submission."""
        path = f"/admin/leaderboards/{part(board)}/worklog/{part(whom)}"
        found: Mapping[str, Any] = self._get(path, **({"after": after} if after else {}))
        return found
