"""The service over HTTP: for the bot, and for commands on a laptop. Every refusal is the same error as at the server.

One `Client` may be shared by threads. `acting_for` gives the hosts' client the voice of one person: the bot's way.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx

from kbslurm.errors import (
    BackendTrouble,
    Invalid,
    KbslurmError,
    NotAccepting,
    NotFound,
    QuotaSpent,
    Refused,
    TooLarge,
    Unauthenticated,
)

TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 60.0
SYNC_TIMEOUT_S = 150.0
# The feed says something at least every 20 s; a longer silence is a dead connection.
FEED_SILENCE_S = 70.0
DONE = frozenset({"succeeded", "failed", "timed_out", "hacked"})


class ServerGone(BackendTrouble):
    """The server can't be reached."""


class LimitReached(QuotaSpent):
    """You have used up what you may use for now."""

    def __init__(self, said: str, resets_at: datetime) -> None:
        super().__init__(said, used=0, limit=0, resets_at=resets_at)
        self.message, self.hint = said, None
        self.args = (said,)


class NoSuch(NotFound):
    """There is no such thing."""

    def __init__(self, said: str) -> None:
        super().__init__("thing", "")
        self.message, self.hint = said, None
        self.args = (said,)


@dataclass(frozen=True, kw_only=True)
class BoardInfo:
    """A board that the caller may see."""

    id: int
    name: str
    description: str
    task: Mapping[str, Any]
    deadline: datetime | None
    zone: str
    gpus: tuple[str, ...]
    visibility: str
    is_open: bool


@dataclass(frozen=True, kw_only=True)
class Queue:
    """How it stands with a GPU type; place, start (a range in seconds) and why while a submission of ours waits."""

    gpu: str
    queued: int | None
    running: int | None
    free: int | None
    is_available: bool
    error: str | None
    place: int | None = None
    starts_in_s: tuple[float, float] | None = None
    waits_for: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One phase of a run. `score_s` is exact as the server said it."""

    mode: str
    secret: bool
    gpu: str
    passed: bool
    score_s: float | None
    result: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SubmissionInfo:
    """A submission as its owner sees it. `status`: pending, running, succeeded, failed, timed_out or hacked."""

    id: int
    board: str
    mode: str
    file_name: str
    person_id: int
    submitted_at: datetime
    done: bool
    status: str
    error: str | None
    code: str
    runs: tuple[RunInfo, ...]
    queue: Queue | None


@dataclass(frozen=True, kw_only=True)
class ArtifactInfo:
    """A file that a profile left: whatever the submission wrote, under a name of the judge's."""

    gpu: str
    name: str
    size: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class LineInfo:
    """A submission in a list; `scores` by GPU type, None where it doesn't rank."""

    id: int
    board: str
    mode: str
    file_name: str
    submitted_at: datetime
    done: bool
    status: str
    scores: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One line of a leaderboard."""

    rank: int
    tied_with: tuple[int, ...]
    best_rank: int
    worst_rank: int
    submission_id: int
    person_id: int
    person: str
    file_name: str
    score_s: float
    low_s: float
    high_s: float
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """It will not be lost any more."""

    submission_id: int
    queue: Queue


@dataclass(frozen=True, kw_only=True)
class PersonInfo:
    """Somebody."""

    id: int
    name: str
    role: str
    banned: bool
    team: str | None = None


@dataclass(frozen=True, kw_only=True)
class FeedEvent:
    """One thing that happened; `token` is where to go on from."""

    token: str
    kind: str
    subject: str
    data: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, kw_only=True)
class May:
    """What somebody may beside submitting; `gpus` are what places offer, for those who may something."""

    host: bool
    creator: bool
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MadeBoard:
    """A new board; `warnings` are its problem's, and what no place offers."""

    name: str
    gpus: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """A canary on its way, one submission for each place; the first gives all of them its number. `left_out` are GPU
    types that places offer and the board hasn't."""

    submission_id: int
    submission_ids: tuple[int, ...]
    board: str
    gpus: tuple[str, ...]
    places: tuple[str, ...]
    left_out: tuple[str, ...]


class Client:
    """Calls by method; JSON becomes values. Connections are kept; `close` gives them back."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        admin: str | None = None,
        timeout_s: float = TIMEOUT_S,
        trust_env: bool = False,
        _shared: httpx.Client | None = None,
        _acting: str | None = None,
        _roles: str | None = None,
    ) -> None:
        self._headers: dict[str, str] = {}
        if token:
            self._headers["X-Popcorn-Cli-Id"] = token
        if admin:
            self._headers["Authorization"] = f"Bearer {admin}"
        if _acting:
            self._headers["X-Kbslurm-Acting-For"] = _acting
        if _roles:
            self._headers["X-Kbslurm-Discord-Roles"] = _roles
        self._admin, self._url, self._timeout_s = admin, url.rstrip("/"), timeout_s
        self._http = _shared or httpx.Client(base_url=self._url, timeout=timeout_s, trust_env=trust_env)

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._url

    def acting_for(self, whom: str, *, roles: str | None = None) -> Client:
        """The same hosts' client as this person: `discord:ID`, `github:ID` or `person:ID`. Shares its connections.

        `roles` are the person's on Discord, as `GUILD:ROLE,ROLE`; only the bot is believed.
        """
        return Client(
            self._url, admin=self._admin, timeout_s=self._timeout_s, _shared=self._http, _acting=whom, _roles=roles
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------- for everybody

    def boards(self) -> list[BoardInfo]:
        """The boards that the caller may see, newest first."""
        return [_board(row) for row in self._get("/leaderboards")]

    def board(self, name: str) -> BoardInfo:
        """The board of that name in any case, or NotFound with those that there are."""
        found = self.boards()
        for board in found:
            if board.name.lower() == name.strip().lower():
                return board
        raise NotFound("board", name, known=[board.name for board in found])

    def ranking(self, board: str, gpu: str, *, limit: int = 100, offset: int = 0) -> list[Place]:
        """Each person's best, best first."""
        path = f"/submissions/{_part(board)}/{_part(gpu)}"
        return [_place(row) for row in self._get(path, limit=limit, offset=offset)]

    def queue(self, gpu: str) -> Queue:
        """How it stands with a GPU type."""
        return _queue(self._get(f"/runner_queue/{_part(gpu)}"))

    # ------------------------------------------------------------------------------------------------- for a person

    def me(self) -> PersonInfo:
        """Who the token stands for."""
        return _person(self._get("/user/me"))

    def submit(self, board: str, gpu: str, mode: str, file_name: str, source: bytes) -> Accepted:
        """Submit a file. After this returns it will not be lost."""
        told = self._told(
            "POST",
            f"/submission/{_part(board)}/{_part(gpu)}/{_part(mode)}",
            files={"file": (file_name, source)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return Accepted(submission_id=told["details"]["id"], queue=_queue(told["runner_queue"]))

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
        return Accepted(submission_id=told["details"]["id"], queue=_queue(told["runner_queue"]))

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

    def board_rows(self) -> list[Mapping[str, Any]]:
        """The boards that the caller may see, as the server tells them."""
        return list(self._get("/leaderboards"))

    def pending(self, provider: Literal["discord", "github"] = "discord") -> str:
        """A new token that is nobody's until somebody links it."""
        return str(self._get("/auth/init", provider=provider)["state"])

    def logout(self) -> None:
        """End the token that this client carries."""
        self._told("POST", "/user/logout")

    def check(self) -> None:
        """ServerGone unless a kbslurm answers there."""
        if self._get("/health") != {"status": "ok"} or not isinstance(self._get("/leaderboards"), list):
            raise self._stranger("something else")

    def submission(self, number: int) -> SubmissionInfo:
        """How one's own submission stands."""
        return _submission(self._get(f"/user/submissions/{number}"))

    def submissions(self, board: str | None = None, *, limit: int = 50, offset: int = 0) -> list[LineInfo]:
        """One's own submissions, newest first."""
        wanted: dict[str, Any] = {"limit": limit, "offset": offset, **({"leaderboard": board} if board else {})}
        return [_line(row) for row in self._get("/user/submissions", **wanted)]

    def why(self, number: int, *, of_submission: bool = False) -> list[Mapping[str, Any]]:
        """Why a run, or each of a submission's, is where it is."""
        if of_submission:
            return list(self._get(f"/user/submissions/{number}/why")["runs"])
        return [self._get(f"/user/runs/{number}/why")]

    def artifacts(self, number: int) -> list[ArtifactInfo]:
        """What the profiles of one's own submission left, as far as it is still kept."""
        return [
            ArtifactInfo(gpu=row["gpu"], name=row["name"], size=row["size"], at=datetime.fromisoformat(row["at"]))
            for row in self._get(f"/user/submissions/{number}/artifacts")["artifacts"]
        ]

    def artifact(self, number: int, gpu: str, name: str) -> bytes:
        """One of these files. Never show or run it."""
        return self._answered("GET", f"/user/submissions/{number}/artifacts/{_part(gpu)}/{_part(name)}").content

    def cancel(self, number: int) -> None:
        """Cancel what is still open of one's own submission; verdicts stay."""
        self._told("POST", f"/user/submissions/{number}/cancel")

    def delete(self, number: int) -> None:
        """Take one's own submission back, with its source."""
        self._told("DELETE", f"/user/submissions/{number}")

    def join(self, code: str) -> list[str]:
        """Take up an invitation; the boards that are open now."""
        return list(self._told("POST", "/user/join", json={"code": code})["leaderboards"])

    # ------------------------------------------------------------------------------------------------- for the hosts

    def person_for(self, provider: Literal["discord", "github"], account: str, name: str) -> PersonInfo:
        """The person of this account, made when there is none."""
        return _person(
            self._told("POST", "/admin/people", json={"name": name, "provider": provider, "account": account})
        )

    def person(self, whom: str) -> PersonInfo:
        """Who that is: a number, a name, discord:ID or github:ID."""
        return _person(self._get(f"/admin/people/{_part(whom)}"))

    def link(self, token: str, whom: str) -> PersonInfo:
        """Give a pending token to the person that it is for."""
        return _person(self._told("POST", "/admin/link", json={"token": token, "person": whom}))

    def discord_user(self, account: str, name: str) -> PersonInfo:
        """The bot's call: the person of this Discord account, made when there is none."""
        return _person(self._told("POST", "/bot/people", json={"account": account, "name": name}))

    def link_mine(self, token: str) -> PersonInfo:
        """The bot's call: give a pending token to the person that this client acts for."""
        return _person(self._told("POST", "/bot/link", json={"token": token}))

    def may(self) -> May:
        """The bot's call: what the person that this client acts for may beside submitting."""
        told = self._get("/bot/may")
        return May(host=told["host"], creator=told["creator"], gpus=tuple(told["gpu_types"]))

    def resync(self) -> None:
        """The bot's call: refused unless a host asks for it."""
        self._told("POST", "/bot/resync")

    def verification(self, number: int) -> Mapping[str, Any]:
        """The bot's call: how a canary stands."""
        found: Mapping[str, Any] = self._get(f"/bot/verifications/{number}")
        return found

    def verify(
        self,
        board: str,
        gpus: Sequence[str] = (),
        mode: Literal["test", "benchmark"] = "test",
        *,
        on: str | None = None,
    ) -> Verifying:
        """Submit what is known to be right on a board, unranked, to these or all of its GPU types, at this or every
        place that has them."""
        path = f"/admin/leaderboards/{_part(board)}/verify"
        told = self._told("POST", path, json={"mode": mode, "gpus": list(gpus) or None, "place": on})
        return Verifying(
            submission_id=told["submission_id"],
            submission_ids=tuple(told["submission_ids"]),
            board=told["leaderboard"],
            gpus=tuple(told["gpu_types"]),
            places=tuple(told["places"]),
            left_out=tuple(told["left_out"]),
        )

    def create_board(
        self,
        name: str,
        file_name: str,
        data: bytes,
        *,
        gpus: Sequence[str] = (),
        deadline: str | None = None,
        zone: str = "UTC",
        description: str | None = None,
        visibility: Literal["public", "closed"] = "public",
    ) -> MadeBoard:
        """Make a board of a problem: a zip of its folder, or one reference file."""
        wanted: dict[str, Any] = {"name": name, "gpu": list(gpus), "zone": zone, "visibility": visibility}
        more = {"deadline": deadline, "description": description}
        wanted |= {key: value for key, value in more.items() if value is not None}
        told = self._told(
            "POST",
            "/admin/leaderboards/upload",
            params=wanted,
            files={"file": (file_name, data)},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return MadeBoard(name=told["leaderboard"], gpus=tuple(told["gpu_types"]), warnings=tuple(told["warnings"]))

    def people(self, matching: str, *, limit: int = 25) -> list[PersonInfo]:
        """People whose names have this text in them."""
        return [_person(row) for row in self._get("/admin/people", matching=matching, limit=limit)["people"]]

    def rejudge_preview(self, board: str, chosen: Sequence[str] = (), version: int | None = None) -> Mapping[str, Any]:
        """How the board's open rejudging stands; where there is none, order one."""
        path = f"/admin/leaderboards/{_part(board)}/rejudge-preview"
        found: Mapping[str, Any] = self._told("POST", path, json={"filter": list(chosen), "version": version})
        return found

    def places(self, board: str) -> list[Mapping[str, Any]]:
        """Every place of a board, with the scores unrounded."""
        return list(self._get(f"/admin/leaderboards/{_part(board)}/export")["places"])

    def any_submission(self, number: int) -> Mapping[str, Any]:
        """Anybody's submission with what only hosts see."""
        found: Mapping[str, Any] = self._get(f"/admin/submissions/{number}")["submission"]
        return found

    def set_accepting(self, accepting: bool) -> bool:
        """Take submissions, or take none, also after a restart."""
        return bool(self._told("POST", "/admin/start" if accepting else "/admin/stop")["accepts_jobs"])

    def set_ban(self, whom: str, banned: bool, reason: str = "") -> None:
        """Take no more submissions from a person, or take them again."""
        path = f"/admin/ban/{_part(whom)}"
        if banned:
            self._told("POST", path, params={"reason": reason})
        else:
            self._told("DELETE", path)

    def extend(self, board: str, whom: str, until: str | None) -> None:
        """Let one person submit for longer; None takes it away."""
        path = f"/admin/leaderboards/{_part(board)}/extend"
        self._told("POST", path, json={"person": whom, "until": until})

    def invite(self, boards: Sequence[str], count: int) -> list[str]:
        """New invitations, each to all of these boards."""
        told = self._told("POST", "/admin/invites", json={"leaderboards": list(boards), "count": count})
        return list(told["codes"])

    def set_rate_limit(self, board: str, category: Literal["test", "leaderboard"], most: int | None) -> None:
        """How many submissions of a category a person may make to a board within an hour; None: any number."""
        path = f"/admin/leaderboards/{_part(board)}/rate-limits"
        if most is None:
            self._told("DELETE", f"{path}/{category}")
        else:
            self._told("PUT", path, json={"mode_category": category, "max_submissions_per_hour": most})

    def close_board(self, board: str) -> None:
        """Take no more submissions to a board."""
        self._told("POST", f"/admin/leaderboards/{_part(board)}/close")

    def delete_board(self, board: str, *, force: bool = False, only: int | None = None) -> None:
        """Take a board away; with submissions only by force. `only`: the id that the board of this name must have."""
        wanted = {"force": force, **({} if only is None else {"only": only})}
        self._told("DELETE", f"/admin/leaderboards/{_part(board)}", params=wanted)

    def set_visibility(self, board: str, visibility: Literal["public", "closed"]) -> None:
        """Show a board to everybody, or only to those who were invited."""
        path = f"/admin/leaderboards/{_part(board)}/visibility"
        self._told("POST", path, json={"visibility": visibility})

    def cancel_any(self, number: int) -> None:
        """Cancel what is still open of anybody's submission."""
        self._told("POST", f"/admin/submissions/{number}/cancel")

    def delete_any(self, number: int) -> None:
        """Take anybody's submission off every list."""
        self._told("DELETE", f"/admin/submissions/{number}")

    def usage(self, *, by: str = "board", month: str | None = None, board: str | None = None) -> Mapping[str, Any]:
        """GPU-seconds and money of a month (UTC, like 2026-11), by board, person, team, place or run."""
        wanted = {"by": by, "month": month, "leaderboard": board}
        found: Mapping[str, Any] = self._get(
            "/admin/usage", **{name: value for name, value in wanted.items() if value is not None}
        )
        return found

    def overview(self) -> Mapping[str, Any]:
        """Queue, leader, and what a host should look at: `accepts_jobs`, `leader`, `queue`, `attention`."""
        found: Mapping[str, Any] = self._get("/admin/overview")
        return found

    def stats(self, board: str | None = None, *, last_day: bool = False) -> Mapping[str, Any]:
        """Counts, of one board or of all."""
        wanted: dict[str, Any] = {"last_day_only": last_day, **({"leaderboard_name": board} if board else {})}
        found: Mapping[str, Any] = self._get("/admin/stats", **wanted)["stats"]
        return found

    def audit(self, *, limit: int = 50) -> list[Mapping[str, Any]]:
        """What hosts did, newest first."""
        return list(self._get("/admin/audit", limit=limit)["audit"])

    def update_problems(
        self, repository: str, problem_set: str | None = None, *, branch: str | None = None, force: bool = False
    ) -> Mapping[str, Any]:
        """Bring boards up to date with a repository: created, updated, skipped, errors."""
        wanted = {"repository": repository, "problem_set": problem_set, "branch": branch, "force": force}
        found: Mapping[str, Any] = self._told("POST", "/admin/update-problems", json=wanted, timeout=SYNC_TIMEOUT_S)
        return found

    def events(self, since: str | None = None, *, stream: bool = True) -> Iterator[FeedEvent]:
        """What happened after this token, then what happens, until the connection ends: come back with the last token.

        Trouble is ServerGone; a token that the feed doesn't know is Invalid. Each event comes at least once.
        """
        wanted: dict[str, Any] = {"stream": stream, **({"since_token": since} if since else {})}
        patience = httpx.Timeout(self._timeout_s, read=FEED_SILENCE_S)
        try:
            with self._http.stream("GET", "/events", params=wanted, headers=self._headers, timeout=patience) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise refusal(answer)
                for text in answer.iter_lines():
                    if text.strip():
                        yield _event(json.loads(text))
        except httpx.HTTPError as error:
            raise ServerGone("server", _why(error), hint="Is it running? Try again soon.") from error

    async def follow(self, since: str) -> AsyncIterator[FeedEvent]:
        """As `events`, for whoever has an event loop: it ends at once when its task is cancelled."""
        patience = httpx.Timeout(self._timeout_s, read=FEED_SILENCE_S)
        wanted: dict[str, Any] = {"stream": True, "since_token": since}
        try:
            async with (
                httpx.AsyncClient(base_url=self._url, timeout=patience, trust_env=False) as http,
                http.stream("GET", "/events", params=wanted, headers=self._headers) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    raise refusal(answer)
                async for text in answer.aiter_lines():
                    if text.strip():
                        yield _event(json.loads(text))
        except httpx.HTTPError as error:
            raise ServerGone("server", _why(error), hint="Is it running? Try again soon.") from error

    # ---------------------------------------------------------------------------------------------------- within

    def _get(self, path: str, **params: Any) -> Any:
        return self._told("GET", path, params=params)

    def _answered(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, headers=self._headers, **more)
        except httpx.HTTPError as error:
            raise ServerGone(self._url, _why(error), hint="Is it running? Try again soon.") from error
        if answer.is_redirect:
            where = answer.headers.get("Location", "elsewhere")
            raise ServerGone(self._url, f"it sends on to {where}", hint="Name the service's own address.")
        if not answer.is_success:
            if answer.status_code < 500 and not _is_ours(answer):
                kind = answer.headers.get("Content-Type", "nothing").partition(";")[0]
                raise self._stranger(f"{answer.status_code} with {kind}")
            raise refusal(answer)
        return answer

    def _stranger(self, said: str) -> ServerGone:
        return ServerGone(
            self._url, f"this isn't kbslurm, it seems: it answers {said}", hint="Look at the address once more."
        )

    def _told(self, method: str, path: str, **more: Any) -> Any:
        answer = self._answered(method, path, **more)
        try:
            return answer.json()
        except ValueError:
            raise self._stranger("no JSON") from None


def _is_ours(answer: httpx.Response) -> bool:
    """Whether an error has the shape that ours have."""
    try:
        return isinstance(answer.json()["detail"], str)
    except (ValueError, KeyError, TypeError):
        return False


def refusal(answer: httpx.Response) -> KbslurmError:
    """The error that the server meant."""
    try:
        told = answer.json()
        said = str(told["detail"])
    except (ValueError, KeyError, TypeError):
        said = f"the server answered {answer.status_code}"
    match answer.status_code:
        case 401:
            return Unauthenticated(said)
        case 403:
            return Refused(said)
        case 404:
            return NoSuch(said)
        case 413:
            return TooLarge(said)
        case 429:
            wait_s = answer.headers.get("Retry-After", "60")
            resets_at = datetime.now(UTC) + timedelta(seconds=int(wait_s) if wait_s.isdecimal() else 60)
            return LimitReached(said, resets_at)
        case 503:
            return NotAccepting(said)
        case status if status >= 500:
            return BackendTrouble("server", said)
        case _:
            return Invalid(said)


def _why(error: httpx.HTTPError) -> str:
    return f"it can't be reached ({str(error) or type(error).__name__})"


def _part(text: str) -> str:
    return quote(text, safe="")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _board(row: Mapping[str, Any]) -> BoardInfo:
    return BoardInfo(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        task=row["task"],
        deadline=_moment(row["deadline"]) if row["deadline"] else None,
        zone=row["zone"],
        gpus=tuple(row["gpu_types"]),
        visibility=row["visibility"],
        is_open=row["is_open"],
    )


def _queue(row: Mapping[str, Any]) -> Queue:
    starts = row.get("starts_in_s")
    return Queue(
        gpu=row["gpu"],
        queued=row["queued_jobs"],
        running=row["running_jobs"],
        free=row["available_runners"],
        is_available=row["status"] == "available",
        error=row["error"],
        place=row.get("place"),
        starts_in_s=None if starts is None else (starts[0], starts[1]),
        waits_for=row.get("waits_for"),
    )


def _submission(row: Mapping[str, Any]) -> SubmissionInfo:
    return SubmissionInfo(
        id=row["id"],
        board=row["leaderboard_name"],
        mode=row["mode"],
        file_name=row["file_name"],
        person_id=int(row["user_id"]),
        submitted_at=_moment(row["submission_time"]),
        done=row["done"],
        status=row["job"]["status"],
        error=row["job"]["error"],
        code=row["code"],
        runs=tuple(
            RunInfo(
                mode=run["mode"],
                secret=run["secret"],
                gpu=run["runner"],
                passed=run["passed"],
                score_s=None if run["score"] is None else float(run["score"]),
                result=run["result"],
            )
            for run in row["runs"]
        ),
        queue=_queue(row["runner_queue"]) if row["runner_queue"] else None,
    )


def _line(row: Mapping[str, Any]) -> LineInfo:
    return LineInfo(
        id=row["id"],
        board=row["leaderboard_name"],
        mode=row["mode"],
        file_name=row["file_name"],
        submitted_at=_moment(row["submission_time"]),
        done=row["done"],
        status=row["status"],
        scores={run["gpu_type"]: run["score"] for run in row["runs"]},
    )


def _place(row: Mapping[str, Any]) -> Place:
    return Place(
        rank=row["rank"],
        tied_with=tuple(row["tied_with"]),
        best_rank=row["best_rank"],
        worst_rank=row["worst_rank"],
        submission_id=row["submission_id"],
        person_id=int(row["user_id"]),
        person=row["user_name"],
        file_name=row["submission_name"],
        score_s=row["submission_score"],
        low_s=row["interval"][0],
        high_s=row["interval"][1],
        at=_moment(row["submission_time"]),
    )


def _person(row: Mapping[str, Any]) -> PersonInfo:
    return PersonInfo(id=int(row["id"]), name=row["name"], role=row["role"], banned=row["banned"], team=row.get("team"))


def _event(row: Mapping[str, Any]) -> FeedEvent:
    return FeedEvent(
        token=row["token"], kind=row["type"], subject=row["subject"], data=row["data"], at=_moment(row["at"])
    )
