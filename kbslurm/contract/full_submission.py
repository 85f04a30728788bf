"""A submission with all attempts, progress and reports: what `kbslurm watch` shows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape
from kbslurm.contract.queue import RQ, RunnerQueue


class Progress(Shape):
    """A job's progress: cases done in this phase. Not even the number of hidden cases."""

    phase: Literal["start", "test", "benchmark", "ranked", "hidden", "profile"]
    done: int | None = None
    of: int | None = None


class FullVerdict(Shape):
    """A run's result. `report` is the judge's, without what only hosts may see. `score_s` is the time that was
    measured; it is a score only if `ranked`, and `not_ranked` says why it isn't."""

    name: str
    reason: str
    score_s: float | None
    low_s: float | None
    high_s: float | None
    isolation: int | None
    ranked: bool
    not_ranked: str | None
    report: dict[str, Any] | None


class FullAttempt(Shape):
    """One attempt; `why` it went there. `warm`: it ran in a job that held the GPU already. `harness_…_at_ns` are by the
    node's clock."""

    number: int
    backend: str
    state: str
    job: str | None
    node: str | None
    ending: str | None
    why: str
    warm: bool = False
    opened_at: str
    submitted_at: str | None
    started_at: str | None
    ended_at: str | None
    harness_started_at_ns: int | None
    harness_ended_at_ns: int | None


class FullRun(Shape):
    """A run. `standing` is its state as shown to people. `broke_off`: it failed, or its author cancelled it, while it
    was being ranked. `measurements`: how often it was measured so far; of more than two the slowest but for the first
    counts."""

    id: Id
    gpu: str
    state: Literal["queued", "launching", "running", "scored", "failed", "cancelled"]
    standing: str
    second: bool
    held: bool
    first_score_s: float | None
    broke_off: bool = False
    measurements: int = 1
    queued_at: str
    ended_at: str | None
    reason: str
    waits_for: str = ""
    progress: Progress | None
    verdict: FullVerdict | None
    verdict_at: str | None
    attempts: list[FullAttempt]


class FullSubmission(Shape):
    """`late_s`: by how much it came after its author's deadline; `practice`: after the
    end, so that it counts nowhere. `frozen`: others can't see how it did, so show it only
    to its author; `kept_back`: why, because standings are hidden or frozen, or because
    people have other names there."""

    id: Id
    person_id: str
    person: str
    team: str | None = None
    board_id: Id
    board: str
    mode: Literal["test", "benchmark", "leaderboard", "profile"]
    file_name: str
    source: str
    sha256: str
    accepted_at: str
    late_s: float = 0.0
    practice: bool = False
    frozen: bool = False
    kept_back: Literal["hidden", "names", "frozen"] | None = None
    done: bool
    runs: list[FullRun]


class FullSubmissionTold(Shape):
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
                            "broke_off": False,
                            "measurements": 1,
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
                                    "warm": False,
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
    submission: FullSubmission
    runner_queue: RunnerQueue | None
    message: str
