"""The hosts' calls about scripts that run on a GPU without a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.connection import UPLOAD_TIMEOUT_S, Connection
from kbslurm.domain.scripts import DEFAULT_S


class HostScriptCalls(Connection):
    """The hosts' calls about scripts."""

    def run_script(
        self, file_name: str, data: bytes, gpu: str, timeout_s: int = DEFAULT_S, place: str | None = None
    ) -> Mapping[str, Any]:
        """Run a Python file on this GPU type, at this or any place, within the host's budget. It never ranks."""
        wanted = {"gpu": gpu, "timeout_s": timeout_s, **({"place": place} if place is not None else {})}
        found: Mapping[str, Any] = self._told(
            "POST", "/admin/scripts", params=wanted, files={"file": (file_name, data)}, timeout=UPLOAD_TIMEOUT_S
        )
        return found

    def script(self, number: int) -> Mapping[str, Any]:
        """A script's state and, once it has ended, its exit status and what it wrote."""
        found: Mapping[str, Any] = self._get(f"/admin/scripts/{number}")
        return found

    def cancel_script(self, number: int) -> Mapping[str, Any]:
        """Cancel a script."""
        found: Mapping[str, Any] = self._told("DELETE", f"/admin/scripts/{number}")
        return found
