"""The hosts' calls about courses: rosters, invitations, roles on boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kbslurm.client.connection import UPLOAD_TIMEOUT_S, Connection, part

CourseRole = Literal["student", "owner", "assistant", "grader", "observer"]
BoardRole = Literal["owner", "assistant", "grader", "observer"]


class HostCourseCalls(Connection):
    """The hosts' calls about courses."""

    def courses(self) -> Sequence[Mapping[str, Any]]:
        """Every course: its people and boards."""
        return list(self._get("/admin/courses")["courses"])

    def roster(self, course: str) -> Mapping[str, Any]:
        """Everyone on a course's roster, with their personal data."""
        found: Mapping[str, Any] = self._get(f"/admin/courses/{part(course)}")
        return found

    def import_roster(
        self, course: str, data: bytes, *, preview: bool = False, remove: bool = False
    ) -> Mapping[str, Any]:
        """Bring a course's roster to what a CSV says, or say what that would change."""
        found: Mapping[str, Any] = self._told(
            "POST",
            f"/admin/courses/{part(course)}/import",
            params={"preview": preview, "remove": remove},
            files={"file": ("roster.csv", data)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return found

    def place_on_roster(
        self,
        course: str,
        whom: str,
        *,
        section: str | None = None,
        team: str | None = None,
        role: CourseRole | None = None,
    ) -> Mapping[str, Any]:
        """Put somebody on a course's roster, or change their place there; an empty section or team is none."""
        wanted = {"section": section, "team": team, "role": role}
        path = f"/admin/courses/{part(course)}/people/{part(whom)}"
        found: Mapping[str, Any] = self._told("PUT", path, json=wanted)
        return found

    def drop_from_roster(self, course: str, whom: str) -> Mapping[str, Any]:
        """Take somebody off a course's roster."""
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/courses/{part(course)}/people/{part(whom)}")
        return found

    def invite_roster(
        self, course: str, people: Sequence[str] = (), *, days: int = 14, again: bool = False
    ) -> Mapping[str, Any]:
        """A link for each of these, or for everyone on the roster, by which they sign in once."""
        wanted = {"people": list(people) or None, "days": days, "again": again}
        return self._act(f"/admin/courses/{part(course)}/invitations", wanted)

    def board_roles(self, board: str) -> Mapping[str, Any]:
        """Who helps on a board."""
        found: Mapping[str, Any] = self._get(f"/admin/leaderboards/{part(board)}/roles")
        return found

    def set_board_role(self, board: str, whom: str, role: BoardRole | None) -> Mapping[str, Any]:
        """Give somebody a role on a board; None takes it away."""
        path = f"/admin/leaderboards/{part(board)}/roles/{part(whom)}"
        found: Mapping[str, Any] = self._told("PUT", path, json={"role": role})
        return found
