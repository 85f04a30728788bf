"""The hosts' calls about boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kbslurm.client.answers import (
    MadeBoard,
    Verifying,
)
from kbslurm.client.connection import UPLOAD_TIMEOUT_S, part
from kbslurm.client.host_problem_calls import HostProblemCalls, Sent
from kbslurm.client.parsing import parsed
from kbslurm.domain.access import NamesShown, StandingsShown


class HostBoardCalls(HostProblemCalls):
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

    def new_board(
        self,
        name: str,
        *,
        sent: Sent | None = None,
        problem: str | None = None,
        gpus: Sequence[str] = (),
        deadline: str | None = None,
        zone: str = "UTC",
        description: str | None = None,
        visibility: Literal["public", "closed"] = "public",
        min_isolation: int | None = None,
        confirm: bool = True,
        course: str | None = None,
        teams: bool = False,
        teams_only: bool = False,
        practice: bool = False,
        names: NamesShown = "real",
        standings: StandingsShown = "shown",
        publishes_reference: bool = False,
    ) -> Mapping[str, Any]:
        """Create a board on a problem that is sent along, or on the newest version of the one with that name."""
        wanted: dict[str, Any] = {"name": name, "zone": zone, "visibility": visibility, "confirm": confirm}
        wanted |= {"teams": teams, "teams_only": teams_only, "practice": practice}
        wanted |= {"names": names, "standings": standings, "publishes_reference": publishes_reference}
        more = {"deadline": deadline, "description": description, "min_isolation": min_isolation, "course": course}
        wanted |= {key: value for key, value in more.items() if value is not None}
        found: Mapping[str, Any]
        if sent is None:
            whole = {**wanted, "gpus": list(gpus), "problem": problem or ""}
            found = self._told("POST", "/admin/leaderboards/of-problem", json=whole)
        else:
            wanted |= {"gpu": list(gpus), "problem": sent.name, "entry": sent.entry}
            found = self._uploaded("/admin/leaderboards/upload", sent, wanted)
        return found

    def edit_board(
        self,
        board: str,
        *,
        description: str | None = None,
        gpus: Sequence[str] | None = None,
        deadline: str | None = None,
        zone: str | None = None,
        visibility: Literal["public", "closed"] | None = None,
        min_isolation: int | None = None,
        version: int | None = None,
        cold: bool | None = None,
        course: str | None = None,
        teams: bool | None = None,
        teams_only: bool | None = None,
        practice: bool | None = None,
        names: NamesShown | None = None,
        standings: StandingsShown | None = None,
        publishes_reference: bool | None = None,
        reopen: bool = False,
    ) -> Mapping[str, Any]:
        """Change what is given; a deadline may also be `never`. The answer names what changed."""
        wanted = {
            "description": description,
            "gpus": None if gpus is None else list(gpus),
            "deadline": deadline,
            "zone": zone,
            "visibility": visibility,
            "min_isolation": min_isolation,
            "version": version,
            "cold": cold,
            "course": course,
            "teams": teams,
            "teams_only": teams_only,
            "practice": practice,
            "names": names,
            "standings": standings,
            "publishes_reference": publishes_reference,
            "reopen": reopen,
        }
        found: Mapping[str, Any] = self._told("PATCH", f"/admin/leaderboards/{part(board)}", json=wanted)
        return found

    def places(self, board: str, *, live: bool = False) -> list[Mapping[str, Any]]:
        """A board's standings, with unrounded scores; `live`: also what others can't see."""
        more = {"live": True} if live else {}
        return list(self._get(f"/admin/leaderboards/{part(board)}/export", **more)["places"])

    def shown_names(self, board: str) -> list[Mapping[str, Any]]:
        """As whom others see the people who have submitted to a board."""
        return list(self._get(f"/admin/leaderboards/{part(board)}/names")["names"])

    def invite(self, boards: Sequence[str], count: int) -> list[str]:
        """Make invitations, each to all of these boards; their codes."""
        return list(self.make_invites(boards, count)["codes"])

    def make_invites(self, boards: Sequence[str], count: int, *, newcomers: bool = False) -> Mapping[str, Any]:
        """Make invitations, each for one person and all of these boards; `newcomers`: also for who has no account."""
        return self._act("/admin/invites", {"leaderboards": list(boards), "count": count, "newcomers": newcomers})

    def invites(self, board: str) -> list[Mapping[str, Any]]:
        """A board's invitations and who claimed them."""
        return list(self._get(f"/admin/leaderboards/{part(board)}/invites")["invites"])

    def revoke_invite(self, code: str) -> Mapping[str, Any]:
        """Revoke an invitation, and the access of the person who claimed it."""
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/invites/{part(code)}")
        return found

    def limits(self, board: str) -> Mapping[str, Any]:
        """A board's limits: submissions per hour by category, and GPU-seconds per day."""
        found: Mapping[str, Any] = self._get(f"/admin/leaderboards/{part(board)}/limits")
        return found

    def set_quota(self, board: str, gpu_s_per_day: float | None) -> Mapping[str, Any]:
        """Set how many GPU-seconds a person may use on a board per day; None: no limit."""
        path = f"/admin/leaderboards/{part(board)}/quota"
        found: Mapping[str, Any] = self._told("PUT", path, json={"gpu_s_per_day": gpu_s_per_day})
        return found

    def set_rate_limit(
        self, board: str, category: Literal["test", "leaderboard"], most: int | None
    ) -> Mapping[str, Any]:
        """Set how many submissions of a category a person may make to a board per hour; None: no limit."""
        path = f"/admin/leaderboards/{part(board)}/rate-limits"
        found: Mapping[str, Any]
        if most is None:
            found = self._told("DELETE", f"{path}/{category}")
        else:
            found = self._told("PUT", path, json={"mode_category": category, "max_submissions_per_hour": most})
        return found

    def close_board(self, board: str) -> Mapping[str, Any]:
        """Stop accepting submissions to a board."""
        return self._act(f"/admin/leaderboards/{part(board)}/close")

    def delete_board(self, board: str, *, force: bool = False, only: int | None = None) -> Mapping[str, Any]:
        """Delete a board; with submissions only by force. `only`: the ID that the board with this name must have."""
        wanted = {"force": force, **({} if only is None else {"only": only})}
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/leaderboards/{part(board)}", params=wanted)
        return found

    def set_visibility(self, board: str, visibility: Literal["public", "closed"]) -> Mapping[str, Any]:
        """Show a board to everyone, or only to invited people."""
        return self._act(f"/admin/leaderboards/{part(board)}/visibility", {"visibility": visibility})
