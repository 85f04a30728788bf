"""The hosts' calls about people, submissions and the service as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kbslurm.client.answers import (
    PersonInfo,
)
from kbslurm.client.connection import Connection, part
from kbslurm.client.parsing import parsed

PAGE = 100  # the most lines that the service returns at once


class HostCalls(Connection):
    """The hosts' calls about people, submissions and the service."""

    def person(self, whom: str) -> PersonInfo:
        """Look up a person by number, name, discord:ID or github:ID."""
        return parsed(PersonInfo, self._get(f"/admin/people/{part(whom)}"))

    def link(self, token: str, whom: str) -> PersonInfo:
        """Link a pending token to a person."""
        return parsed(PersonInfo, self._told("POST", "/admin/link", json={"token": token, "person": whom}))

    def people(self, matching: str, *, limit: int = 25) -> list[PersonInfo]:
        """People whose names contain this text."""
        return [parsed(PersonInfo, row) for row in self._get("/admin/people", matching=matching, limit=limit)["people"]]

    def any_submission(self, number: int) -> Mapping[str, Any]:
        """Anyone's submission with what only hosts see."""
        found: Mapping[str, Any] = self._get(f"/admin/submissions/{number}")["submission"]
        return found

    def find_submissions(
        self,
        *,
        board: str | None = None,
        person: str | None = None,
        verdict: str | None = None,
        mode: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Sequence[Mapping[str, Any]]:
        """Submissions at the boards that one may grade, and one's own, newest first."""
        wanted = {"leaderboard": board, "person": person, "verdict": verdict, "mode": mode}
        wanted |= {"since": None if since is None else since.isoformat()}
        told = {name: value for name, value in wanted.items() if value is not None}
        return list(self._get("/admin/submissions", **told, limit=limit, offset=offset)["submissions"])

    def set_accepting(self, accepting: bool) -> bool:
        """Accept or pause submissions, even across restarts."""
        return bool(self._told("POST", "/admin/start" if accepting else "/admin/stop")["accepts_jobs"])

    def set_ban(self, whom: str, banned: bool, reason: str = "") -> None:
        """Ban a person, or lift the ban."""
        path = f"/admin/ban/{part(whom)}"
        if banned:
            self._told("POST", path, params={"reason": reason})
        else:
            self._told("DELETE", path)

    def delete_any(self, number: int) -> None:
        """Remove anyone's submission from every list."""
        self._told("DELETE", f"/admin/submissions/{number}")

    def usage(self, *, by: str = "board", month: str | None = None, board: str | None = None) -> Mapping[str, Any]:
        """A month's GPU-seconds and cost (UTC, like 2026-11), by board, person, team, place or run."""
        wanted = {"by": by, "month": month, "leaderboard": board}
        found: Mapping[str, Any] = self._get(
            "/admin/usage", **{name: value for name, value in wanted.items() if value is not None}
        )
        return found

    def service_status(self) -> Mapping[str, Any]:
        """How the service is doing: daemon, places, queue, what needs attention."""
        found: Mapping[str, Any] = self._get("/admin/status")
        return found

    def accepting(self) -> bool:
        """Whether submissions are accepted."""
        return bool(self.overview()["accepts_jobs"])

    def source(self, number: int) -> str:
        """The source of anyone's submission; empty if it was deleted."""
        return str(self.any_submission(number)["code"] or "")

    def database(self) -> Mapping[str, Any]:
        """How the database is doing: schema, leader, lag, last event."""
        found: Mapping[str, Any] = self._get("/admin/database")
        return found

    def overview(self) -> Mapping[str, Any]:
        """Queue, leader, and what needs attention: `accepts_jobs`, `leader`, `queue`, `attention`."""
        found: Mapping[str, Any] = self._get("/admin/overview")
        return found

    def stats(self, board: str | None = None, *, last_day: bool = False) -> Mapping[str, Any]:
        """Counts, for one board or all."""
        wanted: dict[str, Any] = {"last_day_only": last_day, **({"leaderboard_name": board} if board else {})}
        found: Mapping[str, Any] = self._get("/admin/stats", **wanted)["stats"]
        return found

    def audit(self, *, limit: int = 50) -> list[Mapping[str, Any]]:
        """The audit log, newest first."""
        found: list[Mapping[str, Any]] = []
        while len(found) < limit:
            older = {"before": found[-1]["id"]} if found else {}
            step = min(PAGE, limit - len(found))
            page = self._get("/admin/audit", limit=step, **older)["audit"]
            found += page
            if len(page) < step:
                break
        return found
