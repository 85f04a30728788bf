"""The hosts' calls about people as hosts see them: roles, teams, accounts and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kbslurm.client.connection import Connection, part

Role = Literal["owner", "staff", "participant"]


class HostUserCalls(Connection):
    """The hosts' calls about people. Each answers with the person as hosts see them, unless it says otherwise."""

    def add_user(self, name: str, role: Role = "participant") -> Mapping[str, Any]:
        """Add a person."""
        return self._of_user("POST", "", {"name": name, "role": role})

    def users(self) -> list[Mapping[str, Any]]:
        """Everybody."""
        return list(self._get("/admin/users")["users"])

    def user(self, whom: str) -> Mapping[str, Any]:
        """One person."""
        return self._of_user("GET", f"/{part(whom)}")

    def delete_preview(self, whom: str) -> Mapping[str, Any]:
        """What deleting a person would erase, and what would stay."""
        return self._of_user("GET", f"/{part(whom)}/deletion")

    def delete_user(self, whom: str) -> Mapping[str, Any]:
        """Delete a person for good: what they did stays under a pseudonym."""
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/users/{part(whom)}")
        return found

    def deletions_due(self) -> Mapping[str, Any]:
        """Participants whose retention period is over."""
        found: Mapping[str, Any] = self._get("/admin/deletions")
        return found

    def delete_due(self) -> Mapping[str, Any]:
        """Delete them all."""
        found: Mapping[str, Any] = self._told("POST", "/admin/deletions")
        return found

    def set_role(self, whom: str, role: Role) -> Mapping[str, Any]:
        """Change a person's role."""
        return self._of_user("PUT", f"/{part(whom)}/role", {"role": role})

    def set_team(self, whom: str, team: str | None) -> Mapping[str, Any]:
        """Set the team that they submit for from now on, or none."""
        return self._of_user("PUT", f"/{part(whom)}/team", {"team": team})

    def set_cluster_account(self, whom: str, account: str | None) -> Mapping[str, Any]:
        """Set the account that pays for their jobs on clusters that charge each person's own, or none."""
        return self._of_user("PUT", f"/{part(whom)}/cluster_account", {"cluster_account": account})

    def ban(self, whom: str, reason: str = "") -> Mapping[str, Any]:
        """Ban a person."""
        self._told("POST", f"/admin/ban/{part(whom)}", params={"reason": reason})
        return self.user(whom)

    def unban(self, whom: str) -> Mapping[str, Any]:
        """Lift a ban."""
        self._told("DELETE", f"/admin/ban/{part(whom)}")
        return self.user(whom)

    def link_token(self, whom: str, token: str) -> Mapping[str, Any]:
        """Link a pending token to a person."""
        self._told("POST", "/admin/link", json={"token": token, "person": whom})
        return self.user(whom)

    def link_account(self, whom: str, account: str) -> Mapping[str, Any]:
        """Link an account to a person: discord:ID, github:ID or oidc:SUBJECT."""
        return self._of_user("POST", f"/{part(whom)}/accounts", {"account": account})

    def issue_token(
        self,
        whom: str,
        *,
        device: str = "",
        days: int | None = None,
        service: bool = False,
        gpu_s_per_day: float | None = None,
    ) -> Mapping[str, Any]:
        """A new token for a person, or with `service` for their programs: `person`, `token`, `expires_at`."""
        wanted: dict[str, Any] = {"device": device, "days": days}
        wanted |= {"service": True} if service else {}
        wanted |= {"gpu_s_per_day": gpu_s_per_day} if gpu_s_per_day is not None else {}
        return self._of_user("POST", f"/{part(whom)}/tokens", wanted)

    def tokens(self, whom: str) -> list[Mapping[str, Any]]:
        """A person's tokens by device, without their secrets."""
        return list(self._get(f"/admin/users/{part(whom)}/tokens")["tokens"])

    def revoke_tokens(self, whom: str, token: int | None = None) -> Mapping[str, Any]:
        """Revoke one or all of a person's tokens: `person`, and `revoked` with their numbers."""
        wanted = {} if token is None else {"token": token}
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/users/{part(whom)}/tokens", params=wanted)
        return found

    def _of_user(self, method: str, path: str, wanted: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        body = {} if wanted is None else {"json": wanted}
        found: Mapping[str, Any] = self._told(method, f"/admin/users{path}", **body)
        return found
