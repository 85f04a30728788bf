"""What hosts ask about people, submissions and the service as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kbslurm.client.answers import (
    PersonInfo,
)
from kbslurm.client.connection import Connection, part
from kbslurm.client.parsing import parsed


class HostCalls(Connection):
    """What hosts ask about people, submissions and the service."""

    def person_for(self, provider: Literal["discord", "github"], account: str, name: str) -> PersonInfo:
        """The person of this account, made when there is none."""
        return parsed(
            PersonInfo,
            self._told("POST", "/admin/people", json={"name": name, "provider": provider, "account": account}),
        )

    def person(self, whom: str) -> PersonInfo:
        """Who that is: a number, a name, discord:ID or github:ID."""
        return parsed(PersonInfo, self._get(f"/admin/people/{part(whom)}"))

    def link(self, token: str, whom: str) -> PersonInfo:
        """Give a pending token to the person that it is for."""
        return parsed(PersonInfo, self._told("POST", "/admin/link", json={"token": token, "person": whom}))

    def people(self, matching: str, *, limit: int = 25) -> list[PersonInfo]:
        """People whose names have this text in them."""
        return [parsed(PersonInfo, row) for row in self._get("/admin/people", matching=matching, limit=limit)["people"]]

    def any_submission(self, number: int) -> Mapping[str, Any]:
        """Anybody's submission with what only hosts see."""
        found: Mapping[str, Any] = self._get(f"/admin/submissions/{number}")["submission"]
        return found

    def set_accepting(self, accepting: bool) -> bool:
        """Take submissions, or take none, also after a restart."""
        return bool(self._told("POST", "/admin/start" if accepting else "/admin/stop")["accepts_jobs"])

    def set_ban(self, whom: str, banned: bool, reason: str = "") -> None:
        """Take no more submissions from a person, or take them again."""
        path = f"/admin/ban/{part(whom)}"
        if banned:
            self._told("POST", path, params={"reason": reason})
        else:
            self._told("DELETE", path)

    def cancel_any(self, number: int) -> None:
        """Cancel what is still open of anybody's submission."""
        self._told("POST", f"/admin/submissions/{number}/cancel")

    def delete_any(self, number: int) -> None:
        """Take anybody's submission off every list."""
        self._told("DELETE", f"/admin/submissions/{number}")

    def usage(self, *, by: str = "board", month: str | None = None, board: str | None = None) -> Mapping[str, Any]:
        """GPU-seconds and money of a month (UTC, like 2026-11), by board, person, team, place or run."""
        wanted = {"by": by, "month": month, "leaderboard": board}
        found: Mapping[str, Any] = self._get(
            "/admin/usage", **{name: value for name, value in wanted.items() if value is not None}
        )
        return found

    def overview(self) -> Mapping[str, Any]:
        """Queue, leader, and what a host should look at: `accepts_jobs`, `leader`, `queue`, `attention`."""
        found: Mapping[str, Any] = self._get("/admin/overview")
        return found

    def stats(self, board: str | None = None, *, last_day: bool = False) -> Mapping[str, Any]:
        """Counts, of one board or of all."""
        wanted: dict[str, Any] = {"last_day_only": last_day, **({"leaderboard_name": board} if board else {})}
        found: Mapping[str, Any] = self._get("/admin/stats", **wanted)["stats"]
        return found

    def audit(self, *, limit: int = 50) -> list[Mapping[str, Any]]:
        """What hosts did, newest first."""
        return list(self._get("/admin/audit", limit=limit)["audit"])
