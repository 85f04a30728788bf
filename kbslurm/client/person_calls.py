"""What a person asks for themselves: submitting, and all that is theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kbslurm.client.answers import (
    Accepted,
    ArtifactInfo,
    PersonInfo,
    SubmissionInfo,
    SubmissionSummary,
)
from kbslurm.client.connection import UPLOAD_TIMEOUT_S, Connection, part
from kbslurm.client.parsing import parsed


class PersonCalls(Connection):
    """What a person asks for themselves."""

    def me(self) -> PersonInfo:
        """Who the token stands for."""
        return parsed(PersonInfo, self._get("/user/me"))

    def submit(self, board: str, gpu: str, mode: str, file_name: str, source: bytes) -> Accepted:
        """Submit a file. After this returns it will not be lost."""
        told = self._told(
            "POST",
            f"/submission/{part(board)}/{part(gpu)}/{part(mode)}",
            files={"file": (file_name, source)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return parsed(Accepted, told)

    def submit_to_many(
        self, board: str | None, gpus: Sequence[str], mode: str, file_name: str, source: bytes, *, on: str | None = None
    ) -> Accepted:
        """Submit a file for several GPU types; where board or GPU types aren't said, its #!POPCORN lines say them.

        `on`: the place where a try runs.
        """
        wanted: dict[str, Any] = {"gpu": list(gpus), "mode": mode, **({"leaderboard": board} if board else {})}
        wanted |= {"place": on} if on is not None else {}
        told = self._told(
            "POST", "/user/submissions", params=wanted, files={"file": (file_name, source)}, timeout=UPLOAD_TIMEOUT_S
        )
        return parsed(Accepted, told)

    def places_offered(self) -> Mapping[str, tuple[str, ...]]:
        """The places that the caller may choose for a try, each with its GPU types."""
        return {row["name"]: tuple(row["gpu_types"]) for row in self._get("/user/places")["places"]}

    def whole(self, number: int) -> Mapping[str, Any]:
        """All of one's own submission as the server tells it: `submission`, `runner_queue`, `message`."""
        found: Mapping[str, Any] = self._get(f"/user/submissions/{number}/whole")
        return found

    def lines(self, board: str | None = None, *, limit: int = 50, offset: int = 0) -> list[Mapping[str, Any]]:
        """One's own submissions, newest first, as the server tells them."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        return list(self._get("/user/submissions", **wanted))

    def pending(self, provider: Literal["discord", "github"] = "discord") -> str:
        """A new token that is nobody's until somebody links it."""
        return str(self._get("/auth/init", provider=provider)["state"])

    def logout(self) -> None:
        """End the token that this client carries."""
        self._told("POST", "/user/logout")

    def submission(self, number: int) -> SubmissionInfo:
        """How one's own submission stands."""
        return parsed(SubmissionInfo, self._get(f"/user/submissions/{number}"))

    def submissions(self, board: str | None = None, *, limit: int = 50, offset: int = 0) -> list[SubmissionSummary]:
        """One's own submissions, newest first."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        return [parsed(SubmissionSummary, row) for row in self._get("/user/submissions", **wanted)]

    def why(self, number: int, *, of_submission: bool = False) -> list[Mapping[str, Any]]:
        """Why a run, or each of a submission's, is where it is."""
        if of_submission:
            return list(self._get(f"/user/submissions/{number}/why")["runs"])
        return [self._get(f"/user/runs/{number}/why")]

    def artifacts(self, number: int) -> list[ArtifactInfo]:
        """What the profiles of one's own submission left, as far as it is still kept."""
        return [parsed(ArtifactInfo, row) for row in self._get(f"/user/submissions/{number}/artifacts")["artifacts"]]

    def artifact(self, number: int, gpu: str, name: str) -> bytes:
        """One of these files. Never show or run it."""
        return self._answered("GET", f"/user/submissions/{number}/artifacts/{part(gpu)}/{part(name)}").content

    def cancel(self, number: int) -> None:
        """Cancel what is still open of one's own submission; verdicts stay."""
        self._told("POST", f"/user/submissions/{number}/cancel")

    def delete(self, number: int) -> None:
        """Take one's own submission back, with its source."""
        self._told("DELETE", f"/user/submissions/{number}")

    def join(self, code: str) -> list[str]:
        """Take up an invitation; the boards that are open now."""
        return list(self._told("POST", "/user/join", json={"code": code})["leaderboards"])
