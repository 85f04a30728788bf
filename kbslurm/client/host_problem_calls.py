"""The hosts' calls about problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from kbslurm.client.connection import SYNC_TIMEOUT_S, UPLOAD_TIMEOUT_S, Connection, part


class Sent(Protocol):
    """A problem's files in one: a zip, its own name, the problem's, and which file of it describes the problem."""

    @property
    def name(self) -> str: ...
    @property
    def file_name(self) -> str: ...
    @property
    def entry(self) -> str: ...
    @property
    def data(self) -> bytes: ...


class HostProblemCalls(Connection):
    """The hosts' calls about problems."""

    def add_problem(self, sent: Sent) -> Mapping[str, Any]:
        """Add a problem, or a new version of it."""
        return self._uploaded("/admin/problems", sent, {"name": sent.name, "entry": sent.entry})

    def problems(self) -> list[Mapping[str, Any]]:
        """Every version of every problem."""
        return list(self._get("/admin/problems")["problems"])

    def problem(self, name: str) -> Mapping[str, Any]:
        """The newest version of a problem. Hidden cases are counted, not shown."""
        found: Mapping[str, Any] = self._get(f"/admin/problems/{part(name)}")
        return found

    def update_problems(
        self,
        repository: str,
        problem_set: str | None = None,
        *,
        branch: str | None = None,
        force: bool = False,
        visibility: Literal["public", "closed"] = "public",
    ) -> Mapping[str, Any]:
        """Update boards from a repository: created, updated, skipped, errors."""
        wanted = {
            "repository": repository,
            "problem_set": problem_set,
            "branch": branch,
            "force": force,
            "visibility": visibility,
        }
        found: Mapping[str, Any] = self._told("POST", "/admin/update-problems", json=wanted, timeout=SYNC_TIMEOUT_S)
        return found

    def _uploaded(self, path: str, sent: Sent, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        files = {"file": (sent.file_name, sent.data)}
        found: Mapping[str, Any] = self._told("POST", path, params=wanted, files=files, timeout=UPLOAD_TIMEOUT_S)
        return found
