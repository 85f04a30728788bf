"""A person's own calls: submitting, and everything that is theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from kbslurm.client.answers import (
    Accepted,
    ArtifactInfo,
    InvitationTaken,
    Joined,
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
        key: str | None = None,
        by_agent: bool = False,
    ) -> Accepted:
        """Submit a file for several GPU types; its #!POPCORN lines give the board and GPU types if they are left out.

        `on`: the place where a test run goes. `benchmark`: the only one to profile. `key`: sent again with the same
        key, the file isn't submitted twice. `by_agent`: hosts see that an agent submitted it.
        """
        wanted: dict[str, Any] = {"gpu": list(gpus), "mode": mode, **({"leaderboard": board} if board else {})}
        wanted |= {"place": on} if on is not None else {}
        wanted |= {"benchmark": benchmark} if benchmark is not None else {}
        told = self._told(
            "POST",
            "/user/submissions",
            params=wanted,
            files={"file": (file_name, source)},
            timeout=UPLOAD_TIMEOUT_S,
            more_headers={
                **({"Idempotency-Key": key} if key is not None else {}),
                **({"X-Kbslurm-By": "agent"} if by_agent else {}),
            },
        )
        return parsed(Accepted, told)

    def places_offered(self) -> Mapping[str, tuple[str, ...]]:
        """The places that the caller may choose for a test run, each with its GPU types."""
        return {row["name"]: tuple(row["gpu_types"]) for row in self._get("/user/places")["places"]}

    def full_submission(self, number: int) -> Mapping[str, Any]:
        """One's own submission in full, as the server sends it: `submission`, `runner_queue`, `message`."""
        found: Mapping[str, Any] = self._get(f"/user/submissions/{number}/whole")
        return found

    def submission_rows(
        self,
        board: str | None = None,
        *,
        verdict: str | None = None,
        mode: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Mapping[str, Any]]:
        """One's own submissions, newest first, as the server sends them."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        more = {"verdict": verdict, "mode": mode, "since": since and since.isoformat()}
        wanted |= {name: value for name, value in more.items() if value is not None}
        return list(self._get("/user/submissions", **wanted))

    def ask(
        self, text: str, *, board: str | None = None, submission: int | None = None, appeal: bool = False
    ) -> Mapping[str, Any]:
        """Ask the hosts something, at a board or at a submission of one's own; or appeal against its verdict."""
        wanted = {"text": text, "leaderboard": board, "submission": submission, "appeal": appeal}
        found: Mapping[str, Any] = self._told("POST", "/user/questions", json=wanted)
        return found

    def own_questions(self, *, limit: int = 50, offset: int = 0) -> list[Mapping[str, Any]]:
        """One's own questions with their answers, newest first."""
        return list(self._get("/user/questions", limit=limit, offset=offset)["questions"])

    def pending(self, provider: Literal["discord", "github"] = "discord") -> str:
        """A new pending token, to be linked to a person."""
        return str(self._get("/auth/init", provider=provider)["state"])

    def take_invitation(self, code: str, *, device: str = "", name: str | None = None) -> InvitationTaken:
        """A token of one's own for an invitation, which that uses up. `name`: of the person whom an invitation to
        boards makes."""
        told = self._told("POST", "/user/invitation", json={"code": code, "device": device, "name": name})
        return parsed(InvitationTaken, told)

    def logout(self) -> None:
        """Revoke the token that this client uses."""
        self._told("POST", "/user/logout")

    def standing(self, board: str) -> list[Mapping[str, Any]]:
        """One's own place on a board for each GPU type, and as whom others see one there."""
        return list(self._get(f"/user/standing/{part(board)}")["places"])

    def submission_places(self, number: int) -> list[Mapping[str, Any]]:
        """What one's own submission came to, for each GPU type on which it ranks."""
        return list(self._get(f"/user/submissions/{number}/places")["places"])

    def set_nickname(self, board: str, name: str | None) -> str | None:
        """Choose as whom others see one on a board; None: no nickname."""
        told = self._told("PUT", f"/user/nickname/{part(board)}", json={"nickname": name})
        found: str | None = told["nickname"]
        return found

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

    def own_submission(self, number: int) -> Mapping[str, Any]:
        """One's own submission, as the server sends it."""
        found: Mapping[str, Any] = self._get(f"/user/submissions/{number}")
        return found

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

    def join(self, code: str) -> Joined:
        """Claim an invitation; says which boards are now open."""
        return parsed(Joined, self._told("POST", "/user/join", json={"code": code}))

    def published_code(self, board: str, gpu: str) -> Mapping[str, Any]:
        """When a board's code is published, and whose is."""
        found: Mapping[str, Any] = self._get(f"/code/{part(board)}/{part(gpu)}")
        return found

    def code_of(self, board: str, gpu: str, number: int) -> Mapping[str, Any]:
        """The code of a published submission."""
        found: Mapping[str, Any] = self._get(f"/code/{part(board)}/{part(gpu)}/{number}")
        return found

    def consent(self, board: str, *, consents: bool) -> Mapping[str, Any]:
        """Agree that one's code on this board is published, or take that back."""
        found: Mapping[str, Any] = self._told("PUT", f"/user/consent/{part(board)}", json={"consents": consents})
        return found
