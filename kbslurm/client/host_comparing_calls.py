"""Hosts' calls about similar sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.client.connection import Connection, part
from kbslurm.domain.similarity import Watch, unwatched

PATIENCE_S = 600.0  # a large course's sources take a while


class HostComparingCalls(Connection):
    """Similarity."""

    def similar(
        self,
        board: str,
        *,
        section: str | None = None,
        others: Sequence[str] = (),
        at_least: float | None = None,
        watch: Watch = unwatched,
    ) -> Mapping[str, Any]:
        """Pairs of people with similar sources on this board, or on it and on the `others`. `watch` hears only that the
        service is at work: it answers once it has finished."""
        for _ in watch((board,), f"comparing at {self.url}"):
            pass
        wanted: dict[str, Any] = {"section": section, "board": list(others), "at_least": at_least}
        found: Mapping[str, Any] = self._told(
            "GET",
            f"/admin/leaderboards/{part(board)}/similar",
            params={name: value for name, value in wanted.items() if value is not None},
            timeout=PATIENCE_S,
        )
        return found

    def similar_pair(self, left: int, right: int) -> Mapping[str, Any]:
        """Two submissions' sources, with the lines that they have in common."""
        found: Mapping[str, Any] = self._get(f"/admin/submissions/{left}/similar/{right}")
        return found
