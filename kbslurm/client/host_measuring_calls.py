"""The hosts' calls that order measurements: rejudges, finals, shadow runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbslurm.client.connection import Connection, part


class HostMeasuringCalls(Connection):
    """The hosts' calls about rejudges, finals and shadow runs."""

    def rejudge_preview(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """The state of the board's open rejudge; if there is none, order one."""
        path = f"/admin/leaderboards/{part(board)}/rejudge-preview"
        found: Mapping[str, Any] = self._told("POST", path, json={"filter": list(chosen), "version": version})
        return found

    def rejudge_estimate(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """What a rejudge of these runs would cost and how long it would take. Orders nothing."""
        wanted = {"filter": list(chosen), "version": version}
        return self._act(f"/admin/leaderboards/{part(board)}/rejudge-estimate", wanted)

    def rejudge_apply(self, board: str) -> Mapping[str, Any]:
        """Make all new verdicts of the open rejudge count, and its version live."""
        return self._act(f"/admin/leaderboards/{part(board)}/rejudge-apply")

    def rejudge_cancel(self, board: str) -> Mapping[str, Any]:
        """Discard the open rejudge."""
        return self._act(f"/admin/leaderboards/{part(board)}/rejudge-cancel")

    def final(self, board: str, gpu: str | None = None, top: int | None = None) -> Mapping[str, Any]:
        """The state of the board's open final; if there is none, order one with the `top` leaders."""
        return self._act(f"/admin/leaderboards/{part(board)}/final", {"gpu": gpu, "top": top})

    def final_apply(self, board: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Make the final's scores count for those who took part."""
        return self._act(f"/admin/leaderboards/{part(board)}/final-apply", {"gpu": gpu})

    def final_forget(self, board: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Discard the final, killing its job if it is running."""
        return self._act(f"/admin/leaderboards/{part(board)}/final-forget", {"gpu": gpu})

    def shadow(self, submission: int, place: str | None = None, *, cold: bool = False) -> Mapping[str, Any]:
        """Measure a submission again at another place, or `cold`: at the same place by a job of its own instead of in a
        warm worker. It never ranks, and it may cost money."""
        return self._act(f"/admin/submissions/{submission}/shadow", {"place": place, "cold": cold})

    def shadows(self, board: str) -> Mapping[str, Any]:
        """The board's times at other places against those at home, from shadow runs."""
        found: Mapping[str, Any] = self._get(f"/admin/leaderboards/{part(board)}/shadows")
        return found
