"""The hosts' calls about warm workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.connection import Connection


class HostWarmCalls(Connection):
    """The hosts' calls about warm workers."""

    def warm(self) -> Mapping[str, Any]:
        """Those that may hold a GPU, and what the sites allow."""
        found: Mapping[str, Any] = self._get("/admin/warm")
        return found

    def warm_start(self, count: int = 1, place: str | None = None, gpu: str | None = None) -> Mapping[str, Any]:
        """Start some, within what the site allows; a daemon sends them."""
        return self._act("/admin/warm", {"count": count, "place": place, "gpu": gpu})

    def warm_drain(
        self, worker: int | None = None, place: str | None = None, gpu: str | None = None, *, every: bool = False
    ) -> Mapping[str, Any]:
        """Let one go, or those of a place or GPU type, or all: each ends when its run has."""
        return self._act("/admin/warm/drain", {"worker": worker, "place": place, "gpu": gpu, "every": every})
