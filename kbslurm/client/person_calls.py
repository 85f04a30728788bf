"""A person's own calls: submitting, and everything that is theirs."""

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
    """A person's own calls."""

    def me(self) -> PersonInfo:
        """The person that the token belongs to."""
        return parsed(PersonInfo, self._get("/user/me"))

    def submit(self, board: str, gpu: str, mode: str, file_name: str, source: bytes) -> Accepted:
        """Submit a file. Once this returns, the submission can't be lost."""
        told = self._told(
            "POST",
            f"/submission/{part(board)}/{part(gpu)}/{part(mode)}",
            files={"file": (file_name, source)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return parsed(Accepted, told)

    def submit_to_many(
        self,
        board: str | None,
        gpus: Sequence[str],
        mode: str,
        file_name: str,
        source: bytes,
        *,
        on: str | None = None,
        benchmark: int | None = None,
    ) -> Accepted:
        """Submit a file for several GPU types; its #!POPCORN lines give the board and GPU types if they are left out.

        `on`: the place where a test run goes. `benchmark`: the only one to profile.
        """
        wanted: dict[str, Any] = {"gpu": list(gpus), "mode": mode, **({"leaderboard": board} if board else {})}
        wanted |= {"place": on} if on is not None else {}
        wanted |= {"benchmark": benchmark} if benchmark is not None else {}
        told = self._told(
            "POST", "/user/submissions", params=wanted, files={"file": (file_name, source)}, timeout=UPLOAD_TIMEOUT_S
        )
        return parsed(Accepted, told)

    def places_offered(self) -> Mapping[str, tuple[str, ...]]:
        """The places that the caller may choose for a test run, each with its GPU types."""
        return {row["name"]: tuple(row["gpu_types"]) for row in self._get("/user/places")["places"]}

    def full_submission(self, number: int) -> Mapping[str, Any]:
        """One's own submission in full, as the server sends it: `submission`, `runner_queue`, `message`."""
        found: Mapping[str, Any] = self._get(f"/user/submissions/{number}/whole")
        return found

    def submission_rows(self, board: str | None = None, *, limit: int = 50, offset: int = 0) -> list[Mapping[str, Any]]:
        """One's own submissions, newest first, as the server sends them."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        return list(self._get("/user/submissions", **wanted))

    def pending(self, provider: Literal["discord", "github"] = "discord") -> str:
        """A new pending token, to be linked to a person."""
        return str(self._get("/auth/init", provider=provider)["state"])

    def logout(self) -> None:
        """Revoke the token that this client uses."""
        self._told("POST", "/user/logout")

    def submission(self, number: int) -> SubmissionInfo:
        """The state of one's own submission."""
        return parsed(SubmissionInfo, self._get(f"/user/submissions/{number}"))

    def submissions(self, board: str | None = None, *, limit: int = 50, offset: int = 0) -> list[SubmissionSummary]:
        """One's own submissions, newest first."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        return [parsed(SubmissionSummary, row) for row in self._get("/user/submissions", **wanted)]

    def why(self, number: int, *, of_submission: bool = False) -> list[Mapping[str, Any]]:
        """An explanation of a run's state, or of each run of a submission."""
        if of_submission:
            return list(self._get(f"/user/submissions/{number}/why")["runs"])
        return [self._get(f"/user/runs/{number}/why")]

    def artifacts(self, number: int) -> list[ArtifactInfo]:
        """The files of one's own submission's profiles that are still stored."""
        return [parsed(ArtifactInfo, row) for row in self._get(f"/user/submissions/{number}/artifacts")["artifacts"]]

    def artifact(self, number: int, gpu: str, name: str) -> bytes:
        """One of these files. Never display or run it."""
        return self._answered("GET", f"/user/submissions/{number}/artifacts/{part(gpu)}/{part(name)}").content

    def cancel(self, number: int) -> int:
        """Cancel the open runs of one's own submission, or as staff of anyone's; verdicts stay. Returns how many of its
        jobs still have to be killed."""
        return int(self._told("POST", f"/user/submissions/{number}/cancel").get("still_to_end", 0))

    def delete(self, number: int) -> None:
        """Delete one's own submission, including its source."""
        self._told("DELETE", f"/user/submissions/{number}")

    def join(self, code: str) -> list[str]:
        """Claim an invitation; returns the boards that are now open."""
        return list(self._told("POST", "/user/join", json={"code": code})["leaderboards"])
