"""The shapes of what the API takes and answers, for the OpenAPI document and for the tests that hold answers to it.

Answers are not built from these at run time: a poll is answered far more often than anything else, and its shape is
held by a test instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, le=2**63 - 1)]
WITHOUT_NUL = r"^[^\x00]*$"  # no file and no program's argument has one in its name


class Shape(BaseModel):
    """Nothing but what is listed."""

    model_config = ConfigDict(extra="forbid")


class Wanted(BaseModel):
    """What a caller sends. A field that we don't know is another version's business."""


class Failure(Shape):
    """Every error: one sentence and what to do next."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"detail": "there is no board 'sort'."}})
    detail: str


class Health(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]


class RunnerQueue(Shape):
    """How it stands with a GPU type. `place` and `starts_in_s` (a range) are there while a submission waits;
    `waits_for` while its job waits where it was sent and that place says why."""

    runner: str
    gpu: str
    queued_jobs: int | None
    running_jobs: int | None
    available_runners: int | None
    status: Literal["available", "unavailable"]
    error: str | None
    place: int | None = None
    starts_in_s: list[float] | None = None
    waits_for: str | None = None


RQ: Any = {
    "runner": "kbslurm",
    "gpu": "H100",
    "queued_jobs": 3,
    "running_jobs": 2,
    "available_runners": 0,
    "status": "available",
    "error": None,
    "place": 2,
    "starts_in_s": [40.0, 190.0],
}


class Leaderboard(Shape):
    """A board as anybody may know it. `task` says what is judged: no secret seed, no hidden case.

    `paired`: scores are in units of a baseline's times, whose state stands in `calibration` by GPU type; else raw
    times. `notes` says what is to be known of the scores, by GPU type; mostly nothing.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 1,
                "name": "transpose",
                "description": "Transpose a matrix.",
                "task": {"lang": "py", "tests": [{"size": 64, "seed": 1}], "ranking_by": "geom"},
                "deadline": "2026-12-24T23:59:59+00:00",
                "gpu_types": ["H100"],
                "visibility": "public",
                "zone": "UTC",
                "is_open": True,
                "paired": True,
                "calibration": {"H100": "calibrated"},
                "notes": {"H100": ""},
            }
        },
    )
    id: Id
    name: str
    description: str
    task: dict[str, Any]
    deadline: str | None
    gpu_types: list[str]
    visibility: Literal["public", "closed"]
    zone: str
    is_open: bool
    paired: bool
    calibration: dict[str, Literal["calibrated", "calibrating", "failed"]]
    notes: dict[str, str]


class Details(Shape):
    id: Id
    job_status_id: Id


class Accepted(Shape):
    """It will not be lost any more."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "accepted", "details": {"id": 412, "job_status_id": 690}, "runner_queue": RQ}
        },
    )
    status: Literal["accepted"]
    details: Details
    runner_queue: RunnerQueue


class Run(Shape):
    """One phase of a run. Of a secret one only whether it passed."""

    start_time: str | None
    end_time: str | None
    mode: str
    secret: bool
    runner: str
    score: str | None
    passed: bool
    result: dict[str, str]


class Job(Shape):
    status: Literal["pending", "running", "succeeded", "failed", "timed_out", "hacked"]
    error: str | None
    last_heartbeat: str | None


class Submission(Shape):
    """A submission as its owner may see it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 412,
                "leaderboard_id": 1,
                "leaderboard_name": "transpose",
                "file_name": "kernel.py",
                "user_id": "7",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "mode": "leaderboard",
                "done": True,
                "code": "def custom_kernel(data):\n    ...\n",
                "runs": [
                    {
                        "start_time": "2026-05-01T12:00:05+00:00",
                        "end_time": "2026-05-01T12:00:09+00:00",
                        "mode": "leaderboard",
                        "secret": False,
                        "runner": "H100",
                        "score": "0.000041836",
                        "passed": True,
                        "result": {},
                    }
                ],
                "job": {"status": "succeeded", "error": None, "last_heartbeat": "2026-05-01T12:00:12+00:00"},
                "runner_queue": None,
            }
        },
    )
    id: Id
    leaderboard_id: Id
    leaderboard_name: str
    file_name: str
    user_id: str
    submission_time: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    done: bool
    code: str
    runs: list[Run]
    job: Job
    runner_queue: RunnerQueue | None


class Progress(Shape):
    """How far a job is: cases done in this phase. Of the hidden cases not even how many there are."""

    phase: Literal["start", "test", "benchmark", "ranked", "hidden", "profile"]
    done: int | None = None
    of: int | None = None


class WhyAttempt(Shape):
    """One try and why it went there. Open ones cost what they may at the most; null for who isn't staff."""

    number: int
    backend: str
    state: str
    ending: str | None
    why: str
    gpu_class: str
    ranks: bool
    gpu_s: float
    cost: float | None


class WhyTold(Shape):
    """Why a run is where it is, in sentences, with the facts behind them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "run": 871,
                "submission": 412,
                "leaderboard": "sort",
                "gpu": "H100",
                "state": "queued",
                "verdict": None,
                "place": 3,
                "pinned": None,
                "why": ["it has waited 4 min; 2 before it want H100", "cluster: all 4 slots are in use"],
                "attempts": [],
                "currency": "EUR",
            }
        },
    )
    run: Id
    submission: Id
    leaderboard: str
    gpu: str
    state: Literal["queued", "launching", "running", "scored", "failed", "cancelled"]
    verdict: str | None
    place: int | None
    pinned: str | None
    why: list[str]
    attempts: list[WhyAttempt]
    currency: str


class WhysTold(Shape):
    """The same for each run of a submission."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"runs": []}})
    runs: list[WhyTold]


class WholeVerdict(Shape):
    """What a run came to. `report` is the judge's, without what only the hosts may see."""

    name: str
    reason: str
    score_s: float | None
    low_s: float | None
    high_s: float | None
    isolation: int | None
    ranked: bool
    report: dict[str, Any] | None


class WholeAttempt(Shape):
    """One try; `why` it went there. `harness_…_at_ns` are by the node's clock."""

    number: int
    backend: str
    state: str
    job: str | None
    node: str | None
    ending: str | None
    why: str
    opened_at: str
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    harness_started_at_ns: int | None
    harness_ended_at_ns: int | None


class WholeRun(Shape):
    """A run. `standing` is its state in the word that people are shown."""

    id: Id
    gpu: str
    state: Literal["queued", "launching", "running", "scored", "failed", "cancelled"]
    standing: str
    second: bool
    held: bool
    first_score_s: float | None
    queued_at: str
    ended_at: str | None
    reason: str
    progress: Progress | None
    verdict: WholeVerdict | None
    verdict_at: str | None
    attempts: list[WholeAttempt]


class WholeSubmission(Shape):
    id: Id
    person_id: str
    person: str
    board_id: Id
    board: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    file_name: str
    source: str
    sha256: str
    accepted_at: str
    done: bool
    runs: list[WholeRun]


class Whole(Shape):
    """A submission as `kbslurm watch` shows it; `message` is one line of real progress."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission": {
                    "id": 412,
                    "person_id": "7",
                    "person": "ada",
                    "board_id": 1,
                    "board": "transpose",
                    "mode": "leaderboard",
                    "file_name": "kernel.py",
                    "source": "def custom_kernel(data):\n    ...\n",
                    "sha256": "5f8a",
                    "accepted_at": "2026-05-01T12:00:00+00:00",
                    "done": False,
                    "runs": [
                        {
                            "id": 690,
                            "gpu": "H100",
                            "state": "running",
                            "standing": "running",
                            "second": False,
                            "held": False,
                            "first_score_s": None,
                            "queued_at": "2026-05-01T12:00:00+00:00",
                            "ended_at": None,
                            "reason": "",
                            "progress": {"phase": "test", "done": 3, "of": 17},
                            "verdict": None,
                            "verdict_at": None,
                            "attempts": [
                                {
                                    "number": 1,
                                    "backend": "dgx",
                                    "state": "running",
                                    "job": "88123",
                                    "node": "gpu07",
                                    "ending": None,
                                    "why": "cluster had a free slot",
                                    "opened_at": "2026-05-01T12:00:01+00:00",
                                    "submitted_at": "2026-05-01T12:00:02+00:00",
                                    "started_at": "2026-05-01T12:00:09+00:00",
                                    "ended_at": None,
                                    "harness_started_at_ns": None,
                                    "harness_ended_at_ns": None,
                                }
                            ],
                        }
                    ],
                },
                "runner_queue": {**RQ, "place": None, "starts_in_s": None},
                "message": "running on H100, node gpu07, test 3/17",
            }
        },
    )
    submission: WholeSubmission
    runner_queue: RunnerQueue | None
    message: str


class ArtifactTold(Shape):
    """A file that a profile left: bytes of the submission's making under a name of the judge's."""

    gpu: str
    name: str
    size: int
    at: str
    url: str


class Artifacts(Shape):
    """The files of a submission's profiles."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "submission_id": 412,
                "artifacts": [
                    {
                        "gpu": "H100",
                        "name": "benchmark-0.trace.json.gz",
                        "size": 48211,
                        "at": "2026-11-20T09:30:00+00:00",
                        "url": "/user/submissions/412/artifacts/H100/benchmark-0.trace.json.gz",
                    }
                ],
            }
        },
    )
    status: Literal["ok"]
    submission_id: int
    artifacts: list[ArtifactTold]


class LineRun(Shape):
    """`standing`: the verdict, or where the run stands; `interval`: that of a score that ranks."""

    gpu_type: str
    score: float | None
    standing: str
    interval: list[float] | None


class SubmissionLine(Shape):
    """A submission in a list."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "id": 412,
                "leaderboard_name": "transpose",
                "file_name": "kernel.py",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "mode": "leaderboard",
                "done": True,
                "status": "succeeded",
                "runs": [
                    {
                        "gpu_type": "H100",
                        "score": 0.000041836,
                        "standing": "passed",
                        "interval": [0.0000417, 0.000042],
                    }
                ],
            }
        },
    )
    id: Id
    leaderboard_name: str
    file_name: str
    submission_time: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    done: bool
    status: str
    runs: list[LineRun]


class FinalRival(Shape):
    """One who met the others: the place and the score before, and what came of it."""

    place: int
    user_name: str
    submission_id: Id
    before: float
    verdict: str | None
    score: float | None
    interval: list[float] | None


class FinalGap(Shape):
    """How many times as long the one behind takes as the one ahead, launch by launch."""

    ahead: Id
    behind: Id
    ratio: float
    interval: list[float]
    separated: bool


class FinalTold(Shape):
    """A final that counts."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard_name": "transpose",
                "gpu_type": "H100",
                "rivals": [
                    {
                        "place": 1,
                        "user_name": "ada",
                        "submission_id": 412,
                        "before": 0.000041836,
                        "verdict": "passed",
                        "score": 0.0000419,
                        "interval": [0.0000418, 0.000042],
                    }
                ],
                "gaps": [],
            }
        },
    )
    leaderboard_name: str
    gpu_type: str
    rivals: list[FinalRival]
    gaps: list[FinalGap]


class Standing(Shape):
    """One line of a leaderboard; `interval` is that of the measurement, `tied_with` the ranks it can't be told from
    (the nearest fifty), `best_rank` and `worst_rank` the places that the measurements allow."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission_id": 412,
                "rank": 1,
                "submission_name": "kernel.py",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "submission_score": 0.000041836,
                "leaderboard_name": "transpose",
                "user_id": "7",
                "user_name": "ada",
                "gpu_type": "H100",
                "interval": [0.0000417, 0.000042],
                "tied_with": [2],
                "best_rank": 1,
                "worst_rank": 2,
            }
        },
    )
    submission_id: Id
    rank: int
    submission_name: str
    submission_time: str
    submission_score: float
    leaderboard_name: str
    user_id: str
    user_name: str
    gpu_type: str
    interval: list[float]
    tied_with: list[int]
    best_rank: int
    worst_rank: int


class Count(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"count": 12}})
    count: int


class Fine(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok"}})
    status: Literal["ok"]


class Pending(Shape):
    """A token that nobody has yet; it is linked on Discord, on our page, or by a host."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"state": "kZ0…"}})
    state: str


class Code(Wanted):
    """An invitation."""

    model_config = ConfigDict(json_schema_extra={"example": {"code": "H7K2-9QXW-4MZT"}})
    code: Annotated[str, Field(min_length=1, max_length=64)]


class Joined(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboards": ["transpose"]}}
    )
    status: Literal["ok"]
    leaderboards: list[str]


class Ascii(JSONResponse):
    """JSON without a character that isn't ASCII, on one line: whoever cuts it anywhere cuts no letter."""

    def render(self, content: Any) -> bytes:
        import json

        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


FAILURES = {
    400: "The request isn't what it must be, or doesn't say who sends it.",
    401: "The token isn't known or was revoked.",
    403: "Not yours, not open to you, or not now.",
    404: "There is no such thing.",
    408: "The upload came too slowly.",
    413: "The upload is too large.",
    422: "A value of the request isn't one.",
    429: "Too much for now; `detail` says when to try again.",
    500: "The server is misconfigured, or has a bug; its log says more.",
    503: "Submissions are paused, or the database can't be reached.",
}


def answers(model: Any, *failures: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a call may answer, for OpenAPI: its shape, and the failures that it can have beside those of every call."""
    found: dict[int | str, dict[str, Any]] = {status: {"model": model, "description": "As asked."}}
    for code in sorted({*failures, 422, 429, 500, 503}):
        found[code] = {"model": Failure, "description": FAILURES[code]}
    return found


# ------------------------------------------------------------------------------------------------------- hosts' calls


class Accepts(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok", "accepts_jobs": True}})
    status: Literal["ok"]
    accepts_jobs: bool


class Banned(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "user_id": "7", "banned": True}}
    )
    status: Literal["ok"]
    user_id: str
    banned: bool


class GpuStats(Shape):
    runs: int
    gpu_s: float


class StatsTold(Shape):
    """Counts. Submissions that were taken back are left out."""

    submissions: int
    people: int
    runs: int
    queued: int
    running: int
    failed: int
    verdicts: dict[str, int]
    gpus: dict[str, GpuStats]


class Stats(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "stats": {
                    "submissions": 12,
                    "people": 4,
                    "runs": 16,
                    "queued": 1,
                    "running": 2,
                    "failed": 0,
                    "verdicts": {"passed": 9, "wrong": 4},
                    "gpus": {"H100": {"runs": 16, "gpu_s": 301.5}},
                },
            }
        },
    )
    status: Literal["ok"]
    stats: StatsTold


class HostsSubmission(Submission):
    """A submission as the hosts see it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={})
    user_name: str
    removed_at: str | None
    log: str
    secret_log: str


class HostsSubmissionTold(Shape):
    status: Literal["ok"]
    submission: HostsSubmission


class Removed(Shape):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"status": "ok", "submission_id": 412}})
    status: Literal["ok"]
    submission_id: Id


class SubmissionIds(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboard": "sort", "limit": 2, "offset": 0, "submission_ids": [412, 409]}
        },
    )
    status: Literal["ok"]
    leaderboard: str
    limit: int
    offset: int
    submission_ids: list[Id]


class NewBoard(Wanted):
    """`directory` is one of the server's."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"directory": "/srv/problems/transpose", "visibility": "public"}},
    )
    directory: Annotated[str, Field(min_length=1, max_length=4096, pattern=WITHOUT_NUL)]
    visibility: Literal["public", "closed"] | None = None


class BoardNamed(Shape):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose"}}
    )
    status: Literal["ok"]
    leaderboard: str


class BoardDeleted(BoardNamed):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "force": False}}
    )
    force: bool


class NewVisibility(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"visibility": "closed"}})
    visibility: Literal["public", "closed"]


class VisibilityTold(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "visibility": "closed"}},
    )
    visibility: Literal["public", "closed"]


class RateLimitWanted(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"mode_category": "test", "max_submissions_per_hour": 20}})
    mode_category: Literal["test", "leaderboard"]
    max_submissions_per_hour: Annotated[int, Field(ge=0, le=1_000_000)]


class RateLimitTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"leaderboard": "transpose", "mode_category": "test", "max_submissions_per_hour": 20}
        },
    )
    leaderboard: str
    mode_category: Literal["test", "leaderboard"]
    max_submissions_per_hour: int


class RateLimitSet(Shape):
    status: Literal["ok"]
    rate_limit: RateLimitTold


class RateLimits(Shape):
    rate_limits: list[RateLimitTold]


class RateLimitGone(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "mode_category": "test"}},
    )
    mode_category: Literal["test", "leaderboard"]


class InvitesWanted(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"leaderboards": ["transpose"], "count": 2}})
    leaderboards: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=100)]
    count: Annotated[int, Field(ge=1, le=10_000)]


class InvitesMade(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboards": ["transpose"], "codes": ["H7K2-9QXW-4MZT", "2BCD-EF34-GHJK"]}
        },
    )
    status: Literal["ok"]
    leaderboards: list[str]
    codes: list[str]


class InviteTold(Shape):
    code: str
    user_id: str | None
    user_name: str | None
    claimed_at: str | None
    created_at: str


class Invites(Shape):
    invites: list[InviteTold]


class InviteRevoked(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "code": "H7K2-9QXW-4MZT", "was_claimed": False}},
    )
    status: Literal["ok"]
    code: str
    was_claimed: bool


class SyncWanted(Wanted):
    """`repository`: https:// or file:/// URL, a directory of the server, or OWNER/NAME. No `problem_set`: all."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"repository": "example/problems", "problem_set": "spring", "branch": "main", "force": False}
        },
    )
    repository: Annotated[str, Field(min_length=1, max_length=1000, pattern=WITHOUT_NUL)]
    problem_set: Annotated[str, Field(max_length=200, pattern=WITHOUT_NUL)] | None = None
    branch: Annotated[str, Field(max_length=200, pattern=WITHOUT_NUL)] | None = None
    force: bool | None = None
    visibility: Literal["public", "closed"] | None = None


class Skipped(Shape):
    name: str
    reason: str


class Faulty(Shape):
    name: str
    error: str


class SyncTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "commit": "3f1c",
                "created": ["transpose"],
                "updated": [],
                "skipped": [{"name": "sort", "reason": "unchanged"}],
                "errors": [{"name": "scan", "error": "task.yml:3: tests: there are none"}],
            }
        },
    )
    status: Literal["ok"]
    commit: str
    created: list[str]
    updated: list[str]
    skipped: list[Skipped]
    errors: list[Faulty]


class NewPerson(Wanted):
    """Somebody by the account that stands for them; asked for again it is the same person."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"name": "ada", "provider": "discord", "account": "81384788765712384"}},
    )
    name: Annotated[str, Field(min_length=1, max_length=64)]
    provider: Literal["discord", "github"]
    account: Annotated[str, Field(min_length=1, max_length=64)]


class DiscordUser(Wanted):
    """Somebody by their number on Discord; asked for again it is the same person."""

    model_config = ConfigDict(json_schema_extra={"example": {"account": "81384788765712384", "name": "ada"}})
    account: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
    name: Annotated[str, Field(min_length=1, max_length=64)]


class PendingToken(Wanted):
    """The state of `/auth/init`."""

    model_config = ConfigDict(json_schema_extra={"example": {"token": "kZ0…"}})
    token: Annotated[str, Field(min_length=1, max_length=512)]


class PersonTold(Shape):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"id": "7", "name": "ada", "role": "participant", "team": "blue", "banned": False}
        },
    )
    id: str
    name: str
    role: Literal["owner", "staff", "participant"]
    team: str | None
    banned: bool


class Link(Wanted):
    """A pending token (the state of `/auth/init`) and whom it is to stand for: person:ID, discord:ID or github:ID."""

    model_config = ConfigDict(json_schema_extra={"example": {"token": "kZ0…", "person": "discord:8138"}})
    token: Annotated[str, Field(min_length=1, max_length=512)]
    person: Annotated[str, Field(min_length=3, max_length=100)]


class Extension(Wanted):
    """Until when a person may submit: `2026-12-24`, `2026-12-24 18:00`, or with an offset; null takes it away."""

    model_config = ConfigDict(json_schema_extra={"example": {"person": "person:7", "until": "2026-12-24 18:00"}})
    person: Annotated[str, Field(min_length=3, max_length=100)]
    until: Annotated[str, Field(max_length=64)] | None


class Quota(Wanted):
    model_config = ConfigDict(json_schema_extra={"example": {"gpu_s_per_day": 600}})
    gpu_s_per_day: Annotated[float, Field(ge=0, le=1e9)] | None


class QuotaTold(BoardNamed):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"status": "ok", "leaderboard": "transpose", "gpu_s_per_day": 600}},
    )
    gpu_s_per_day: float | None


class AuditLine(Shape):
    id: Id
    act: str
    subject: str
    by: str
    data: dict[str, Any]
    at: str


class Audit(Shape):
    audit: list[AuditLine]


class QueueTold(Shape):
    gpu: str
    queued: int
    launching: int
    running: int
    oldest_at: str | None


class AttentionTold(Shape):
    kind: str
    subject: str
    text: str
    since: str


class Overview(Shape):
    """What a host looks at first."""

    accepts_jobs: bool
    leader: str | None
    queue: list[QueueTold]
    attention: list[AttentionTold]


class UsageRow(Shape):
    """`name` is null for people without a team; `budget` what it may spend in a month, where that is bounded."""

    name: str | None
    attempts: int
    open: int
    runs: int
    gpu_s: float
    money: float
    paid_gpu_s: float
    budget: float | None


class UsageTold(Shape):
    """What was used in a month (UTC), the dearest first; what is open counts at its most."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "month": "2026-11",
                "by": "team",
                "board": None,
                "currency": "EUR",
                "budget": 200.0,
                "gpu_s": 5400.0,
                "money": 1.97,
                "rows": [
                    {
                        "name": "blue",
                        "attempts": 41,
                        "open": 2,
                        "runs": 40,
                        "gpu_s": 5400.0,
                        "money": 1.97,
                        "paid_gpu_s": 1800.0,
                        "budget": 20.0,
                    }
                ],
            }
        },
    )
    month: str
    by: Literal["board", "person", "team", "place", "run"]
    board: str | None
    currency: str
    budget: float | None
    gpu_s: float
    money: float
    rows: list[UsageRow]


class BoardMade(BoardNamed):
    """`warnings` are the problem's, and GPU types that no place offers now."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"status": "ok", "leaderboard": "transpose", "gpu_types": ["H100"], "warnings": []}
        },
    )
    gpu_types: list[str]
    warnings: list[str]


class PlaceOffered(Shape):
    name: str
    gpu_types: list[str]


class PlacesOffered(Shape):
    """Places that may be chosen for a try."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"places": [{"name": "della", "gpu_types": ["A100", "H100"]}]}}
    )
    places: list[PlaceOffered]


class VerifyWanted(Wanted):
    """`gpus`: the board's GPU types that are meant, `place`: the one that is; nothing is all of them."""

    model_config = ConfigDict(json_schema_extra={"example": {"mode": "test", "gpus": ["H100"]}})
    mode: Literal["test", "benchmark"] = "test"
    gpus: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] | None = None
    place: Annotated[str, Field(max_length=64)] | None = None


class Verifies(BoardNamed):
    """`submission_ids`: one for each of `places`, perhaps one for types that none has now; `submission_id` is the
    first. `left_out`: GPU types that places offer and this board hasn't."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "status": "ok",
                "leaderboard": "transpose",
                "submission_id": 412,
                "submission_ids": [412, 413],
                "places": ["della", "modal"],
                "gpu_types": ["H100"],
                "left_out": ["A100"],
            }
        },
    )
    submission_id: Id
    submission_ids: list[Id]
    places: list[str]
    gpu_types: list[str]
    left_out: list[str]


class VerifiedRun(Shape):
    gpu: str
    place: str | None
    state: str
    backend: str | None
    attempts: int
    verdict: str | None
    took_s: float | None


class Verification(Shape):
    """How a canary stands, by place and GPU type; `place` is where it was ordered, `backend` who has it or had it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission_id": 412,
                "submission_ids": [412],
                "leaderboard": "transpose",
                "mode": "test",
                "done": True,
                "runs": [
                    {
                        "gpu": "H100",
                        "place": "della",
                        "state": "scored",
                        "backend": "della",
                        "attempts": 1,
                        "verdict": "passed",
                        "took_s": 42.5,
                    }
                ],
            }
        },
    )
    submission_id: Id
    submission_ids: list[Id]
    leaderboard: str
    mode: Literal["test", "benchmark"]
    done: bool
    runs: list[VerifiedRun]


class RejudgeWanted(Wanted):
    """`filter`: KEY=VALUE, of submission, gpu, verdict, mode, person. `version` of the problem; null: the live one."""

    model_config = ConfigDict(json_schema_extra={"example": {"filter": ["mode=leaderboard"], "version": 7}})
    filter: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=5)] | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class Change(Shape):
    before: str
    after: str
    runs: int


class RejudgingTold(Shape):
    """How many runs would go from which verdict to which; `open` are not judged yet."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "board": "transpose",
                "rejudging": 3,
                "state": "preview",
                "version": 7,
                "matrix": [{"before": "passed", "after": "wrong", "runs": 2}],
                "open": 0,
                "changed": 2,
                "spent_gpu_s": 80.5,
                "expected_gpu_s": 96.0,
            }
        },
    )
    board: str
    rejudging: Id
    state: Literal["preview"]
    version: Id
    matrix: list[Change]
    open: int
    changed: int
    spent_gpu_s: float
    expected_gpu_s: float


class PlaceRow(Shape):
    board: str
    gpu: str
    rank: int
    best_rank: int
    worst_rank: int
    person: str
    person_id: Id
    submission: Id
    run: Id
    score_s: float
    low_s: float
    high_s: float
    paired: bool
    submitted_at: str
    file_name: str


class Places(Shape):
    """What `kbslurm export` writes."""

    leaderboard: str
    places: list[PlaceRow]


class People(Shape):
    people: list[PersonTold]


class May(Shape):
    """`gpu_types`: what places offer; told to hosts and creators only."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"host": False, "creator": True, "gpu_types": ["A100", "H100"]}}
    )
    host: bool
    creator: bool
    gpu_types: list[str]


class FeedLine(Shape):
    """One thing that happened. `subject` is like `run:12`; `token` is where a reader goes on from."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "token": "e971",
                "type": "run.scored",
                "subject": "run:12",
                "data": {"submission": 412, "gpu": "H100", "verdict": "passed"},
                "at": "2026-05-01T12:00:12+00:00",
            }
        },
    )
    token: str
    type: str
    subject: str
    data: dict[str, Any]
    at: str
