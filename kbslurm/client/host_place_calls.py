"""The hosts' calls about places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.connection import Connection, part


class HostPlaceCalls(Connection):
    """The hosts' calls about places."""

    def place_list(self) -> Mapping[str, Any]:
        """Every place with its slots, role, state, cost and last trouble."""
        found: Mapping[str, Any] = self._get("/admin/places")
        return found

    def place_drain(self, place: str, why: str = "", gpu: str | None = None) -> Mapping[str, Any]:
        """Let nothing new go to a place, or to one GPU type there; what is open there ends as usual."""
        return self._act(f"/admin/places/{part(place)}/drain", {"why": why, "gpu": gpu})

    def place_resume(self, place: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Let new runs go there again; without a GPU type, all of them."""
        return self._act(f"/admin/places/{part(place)}/resume", {"gpu": gpu})

    def place_log(self, place: str, lines: int = 50, since: str | None = None) -> Mapping[str, Any]:
        """The daemon's log lines about a place and the attempts that went wrong there, oldest first."""
        after = {} if since is None else {"since": since}
        found: Mapping[str, Any] = self._get(f"/admin/places/{part(place)}/log", lines=lines, **after)
        return found

    def reload(self) -> Mapping[str, Any]:
        """Have the daemons read their configuration anew; `reloaded` says what came of it."""
        return self._act("/admin/reload")

    def reloaded(self, order: str) -> Mapping[str, Any] | None:
        """What the leading daemon answered to that order; None: nothing yet."""
        found: Mapping[str, Any] | None = self._get(f"/admin/reload/{part(order)}")["answer"]
        return found
