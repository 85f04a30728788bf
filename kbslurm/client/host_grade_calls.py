"""Hosts' calls about grades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.connection import Connection, part


class HostGradeCalls(Connection):
    """Grades by a scheme."""

    def grades(self, board: str, scheme: str) -> Mapping[str, Any]:
        """A grade for everybody on the roster, by this scheme in TOML, with what explains it."""
        found: Mapping[str, Any] = self._told(
            "POST", f"/admin/leaderboards/{part(board)}/grades", json={"scheme": scheme}
        )
        return found
