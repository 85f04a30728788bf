"""Hosts' calls about a board's times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kbslurm.client.connection import Connection, part
from kbslurm.domain.access import CodeRule


class HostTimeCalls(Connection):
    """Late submissions, extensions, freezes, final standings."""

    def times(self, board: str) -> Mapping[str, Any]:
        """A board's deadline, late policy, extensions, and freeze."""
        found: Mapping[str, Any] = self._get(f"/admin/leaderboards/{part(board)}/times")
        return found

    def set_late(
        self,
        board: str,
        *,
        until: str | None = None,
        grace: str | None = None,
        percent: float | None = None,
        per: Literal["hour", "day"] | None = None,
        slip_days: int | None = None,
    ) -> Mapping[str, Any]:
        """Change what is given of a board's late policy; `until` may be `none`."""
        wanted = {"until": until, "grace": grace, "percent": percent, "per": per, "slip_days": slip_days}
        found: Mapping[str, Any] = self._told("POST", f"/admin/leaderboards/{part(board)}/late", json=wanted)
        return found

    def code_rule(self, board: str) -> Mapping[str, Any]:
        """When a board's code is published, and under which licence."""
        found: Mapping[str, Any] = self._get(f"/admin/leaderboards/{part(board)}/code")
        return found

    def set_code_rule(self, board: str, rule: CodeRule, licence: str | None = None) -> Mapping[str, Any]:
        """Let this rule hold from now on; without a licence the one that was chosen before stays."""
        found: Mapping[str, Any] = self._told(
            "PUT", f"/admin/leaderboards/{part(board)}/code", json={"rule": rule, "licence": licence}
        )
        return found

    def extend(self, board: str, whom: str, until: str | None) -> Mapping[str, Any]:
        """Give one person, or with `section:NAME` a section, a later deadline; None removes it."""
        found: Mapping[str, Any] = self._told(
            "POST", f"/admin/leaderboards/{part(board)}/extend", json={"person": whom, "until": until}
        )
        return found

    def freeze(self, board: str, at: str | None = None) -> Mapping[str, Any]:
        """Stop showing others what is submitted from now on, or from a later moment on."""
        found: Mapping[str, Any] = self._told("POST", f"/admin/leaderboards/{part(board)}/freeze", json={"at": at})
        return found

    def unfreeze(self, board: str) -> Mapping[str, Any]:
        """Show everything again."""
        found: Mapping[str, Any] = self._told("POST", f"/admin/leaderboards/{part(board)}/unfreeze")
        return found

    def finalise(
        self, board: str, *, top: int | None = None, finals: bool = True, again: bool = False, note: str = ""
    ) -> Mapping[str, Any]:
        """Run the finals of a board that is over and fix its standings. While finals are running, call it again."""
        wanted = {"top": top, "finals": finals, "again": again, "note": note}
        found: Mapping[str, Any] = self._told("POST", f"/admin/leaderboards/{part(board)}/finalise", json=wanted)
        return found

    def unfinalise(self, board: str, note: str = "") -> Mapping[str, Any]:
        """Let a board's standings follow from the verdicts again."""
        path = f"/admin/leaderboards/{part(board)}/unfinalise"
        found: Mapping[str, Any] = self._told("POST", path, json={"note": note})
        return found
