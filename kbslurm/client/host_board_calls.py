"""The hosts' calls about boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kbslurm.client.answers import (
    MadeBoard,
    Verifying,
)
from kbslurm.client.connection import SYNC_TIMEOUT_S, UPLOAD_TIMEOUT_S, Connection, part
from kbslurm.client.parsing import parsed


class HostBoardCalls(Connection):
    """The hosts' calls about boards."""

    def verify(
        self,
        board: str,
        gpus: Sequence[str] = (),
        mode: Literal["test", "benchmark"] = "test",
        *,
        on: str | None = None,
    ) -> Verifying:
        """Submit a known-correct kernel to a board, unranked, for these or all of its GPU types, at this or every place
        that has them."""
        path = f"/admin/leaderboards/{part(board)}/verify"
        told = self._told("POST", path, json={"mode": mode, "gpus": list(gpus) or None, "place": on})
        return parsed(Verifying, told)

    def create_board(
        self,
        name: str,
        file_name: str,
        data: bytes,
        *,
        gpus: Sequence[str] = (),
        deadline: str | None = None,
        zone: str = "UTC",
        description: str | None = None,
        visibility: Literal["public", "closed"] = "public",
    ) -> MadeBoard:
        """Create a board from a problem: a zip of its folder, or one reference file."""
        wanted: dict[str, Any] = {"name": name, "gpu": list(gpus), "zone": zone, "visibility": visibility}
        more = {"deadline": deadline, "description": description}
        wanted |= {key: value for key, value in more.items() if value is not None}
        told = self._told(
            "POST",
            "/admin/leaderboards/upload",
            params=wanted,
            files={"file": (file_name, data)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return parsed(MadeBoard, told)

    def rejudge_preview(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """The state of the board's open rejudge; if there is none, order one."""
        path = f"/admin/leaderboards/{part(board)}/rejudge-preview"
        found: Mapping[str, Any] = self._told("POST", path, json={"filter": list(chosen), "version": version})
        return found

    def places(self, board: str) -> list[Mapping[str, Any]]:
        """A board's standings, with unrounded scores."""
        return list(self._get(f"/admin/leaderboards/{part(board)}/export")["places"])

    def extend(self, board: str, whom: str, until: str | None) -> None:
        """Give one person a deadline extension; None removes it."""
        path = f"/admin/leaderboards/{part(board)}/extend"
        self._told("POST", path, json={"person": whom, "until": until})

    def invite(self, boards: Sequence[str], count: int) -> list[str]:
        """Make invitations, each to all of these boards."""
        told = self._told("POST", "/admin/invites", json={"leaderboards": list(boards), "count": count})
        return list(told["codes"])

    def set_rate_limit(self, board: str, category: Literal["test", "leaderboard"], most: int | None) -> None:
        """Set how many submissions of a category a person may make to a board per hour; None: no limit."""
        path = f"/admin/leaderboards/{part(board)}/rate-limits"
        if most is None:
            self._told("DELETE", f"{path}/{category}")
        else:
            self._told("PUT", path, json={"mode_category": category, "max_submissions_per_hour": most})

    def delete_board(self, board: str, *, force: bool = False, only: int | None = None) -> None:
        """Delete a board; with submissions only by force. `only`: the ID that the board with this name must have."""
        wanted = {"force": force, **({} if only is None else {"only": only})}
        self._told("DELETE", f"/admin/leaderboards/{part(board)}", params=wanted)

    def set_visibility(self, board: str, visibility: Literal["public", "closed"]) -> None:
        """Show a board to everyone, or only to invited people."""
        path = f"/admin/leaderboards/{part(board)}/visibility"
        self._told("POST", path, json={"visibility": visibility})

    def update_problems(
        self, repository: str, problem_set: str | None = None, *, branch: str | None = None, force: bool = False
    ) -> Mapping[str, Any]:
        """Update boards from a repository: created, updated, skipped, errors."""
        wanted = {"repository": repository, "problem_set": problem_set, "branch": branch, "force": force}
        found: Mapping[str, Any] = self._told("POST", "/admin/update-problems", json=wanted, timeout=SYNC_TIMEOUT_S)
        return found
