"""What agents' tools answer: structured, with what to try next. Of hidden cases nothing but whether they passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from kbslurm.domain import access, next_steps, places, profiles
from kbslurm.errors import BackendTrouble, NotAccepting, NotFound

if TYPE_CHECKING:
    from kbslurm.client.http import Client

FAILURES_SHOWN, LOG_CAP = 5, 4000
TIMED = ("test", "benchmark", "ranked")


class BoardTold(BaseModel):
    name: str
    problem: str
    description: str
    gpus: list[str]
    is_open: bool
    deadline: str | None = Field(description="Until when submissions count, with a time zone.")


class BoardsTold(BaseModel):
    boards: list[BoardTold]
    next: list[str]


class ProblemTold(BaseModel):
    board: BoardTold
    language: str
    modes: list[str]
    tests: list[dict[str, Any]] = Field(description="The public cases; there are hidden ones as well.")
    benchmarks: list[dict[str, Any]]
    templates: dict[str, str] = Field(description="What to begin with, by language.")
    timeouts_s: dict[str, float]
    remarks: list[str]
    next: list[str]


class CaseTold(BaseModel):
    phase: str
    case: str
    message: str


class TimeTold(BaseModel):
    case: str
    median_s: float
    low_s: float | None
    high_s: float | None


class VerdictTold(BaseModel):
    """A run's state on one GPU type; `verdict` is null until it has ended."""

    gpu: str
    state: str
    verdict: str | None
    reason: str
    time_s: float | None = None
    interval_s: tuple[float, float] | None = None
    ranked: bool = False
    not_ranked: str | None = None
    failures: list[CaseTold] = []
    times: list[TimeTold] = []
    log: str = ""


class SubmissionTold(BaseModel):
    submission: int
    board: str
    mode: str
    file_name: str
    done: bool
    progress: str
    runs: list[VerdictTold]
    places: list[str]  # the rank, and what it compares with, where it ranks
    next: list[str]


class TrialTold(BaseModel):
    verdict: VerdictTold
    isolation: int
    next: list[str]


class KernelTold(BaseModel):
    name: str
    calls: int
    mean_s: float
    share: float
    occupancy_pct: float | None


class DigestTold(BaseModel):
    gpu: str
    title: str
    limits: list[str]
    hints: list[str]
    kernels: list[KernelTold]


class ProfileTold(BaseModel):
    submission: int
    profiles: list[DigestTold]
    files: list[str]
    next: list[str]


class LineTold(BaseModel):
    submission: int
    board: str
    mode: str
    file_name: str
    at: str
    status: str
    scores_s: dict[str, float | None]


class HistoryTold(BaseModel):
    submissions: list[LineTold]
    next: list[str]


def board_told(row: Mapping[str, Any]) -> BoardTold:
    return BoardTold(
        name=row["name"],
        problem=str(row["task"].get("name", "")),
        description=row["description"].strip(),
        gpus=row["gpu_types"],
        is_open=row["is_open"],
        deadline=row["deadline"],
    )


def problem_told(row: Mapping[str, Any]) -> ProblemTold:
    task, board = row["task"], board_told(row)
    steps = ["Begin with the template. Submit in mode test until it passes, then benchmark, then leaderboard."]
    if not board.is_open:
        steps = ["The board is closed: submissions are refused."]
    return ProblemTold(
        board=board,
        language=str(task.get("lang", "")),
        modes=list(task.get("modes") or ()),
        tests=list(task.get("tests") or ()),
        benchmarks=list(task.get("benchmarks") or ()),
        templates=dict(task.get("templates") or {}),
        timeouts_s={name: float(task[f"{name}_timeout"]) for name in TIMED if f"{name}_timeout" in task},
        remarks=list(row.get("remarks") or ()),
        next=steps,
    )


def submission_told(told: Mapping[str, Any], client: Client) -> SubmissionTold:
    """From the service's own description, and the places that it came to once it is done."""
    row = told["submission"]
    runs = [_run_told(run) for run in row["runs"]]
    return SubmissionTold(
        submission=row["id"],
        board=row["board"],
        mode=row["mode"],
        file_name=row["file_name"],
        done=row["done"],
        progress=str(told["message"]),
        runs=runs,
        places=_places(client, row["id"]) if row["done"] and row["mode"] == "leaderboard" else [],
        next=next_steps.after_all([(_ending(run), run.not_ranked) for run in runs], row["mode"]),
    )


def _places(client: Client, number: int) -> list[str]:
    """In words, by GPU type. That they can't be had, from an older service for example, is no failure."""
    try:
        told = client.submission_places(number)
    except (BackendTrouble, NotAccepting, NotFound):
        return []
    return [f"{one['gpu_type']}: {line}" for one in told for line in places.in_words(one)]


def _ending(run: VerdictTold) -> str | None:
    return "cancelled" if run.state == "cancelled" else run.verdict


def _run_told(run: Mapping[str, Any]) -> VerdictTold:
    found = run["verdict"]
    if found is None:
        return VerdictTold(gpu=run["gpu"], state=run["state"], verdict=None, reason=run["waits_for"] or run["reason"])
    low, high = found["low_s"], found["high_s"]
    return VerdictTold(
        gpu=run["gpu"],
        state=run["state"],
        verdict=found["name"],
        reason=found["reason"],
        time_s=found["score_s"],
        interval_s=(low, high) if low is not None and high is not None else None,
        ranked=found["ranked"],
        not_ranked=found["not_ranked"],
        **_of_report(found["report"] or {}),
    )


def trial_told(told: Mapping[str, Any], gpu: str) -> TrialTold:
    """From what `kbslurm try --json` prints."""
    interval = told["interval_s"]
    verdict = VerdictTold(
        gpu=gpu,
        state="here",
        verdict=told["verdict"],
        reason=told["reason"],
        time_s=told["score_s"],
        interval_s=tuple(interval) if interval else None,
        **_of_report(told),
    )
    steps = [next_steps.after(verdict.verdict, told["mode"], is_local=True)]
    return TrialTold(verdict=verdict, isolation=told["isolation"]["level"], next=steps)


def _of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    failed = [row for row in access.shown_cases(report, "tests") if row.get("status") not in ("pass", "skipped")]
    timed = [row for row in access.shown_cases(report, "benchmarks") if row.get("median_ns") is not None]
    log = str(report.get("log") or "")
    return {
        "failures": [
            CaseTold(phase=row["phase"], case=f"{row['index'] + 1} ({row['spec']})", message=row.get("message") or "")
            for row in failed[:FAILURES_SHOWN]
        ],
        "times": [
            TimeTold(
                case=row["spec"],
                median_s=row["median_ns"] / 1e9,
                low_s=_seconds(row.get("low_ns")),
                high_s=_seconds(row.get("high_ns")),
            )
            for row in timed
            if row.get("phase") == "benchmark"
        ],
        "log": log if len(log) <= LOG_CAP else f"{log[:LOG_CAP]}\n[… cut]",
    }


def _seconds(took_ns: float | None) -> float | None:
    return None if took_ns is None else took_ns / 1e9


def profile_told(told: Mapping[str, Any], files: list[str]) -> ProfileTold:
    row = told["submission"]
    found = [
        (run["gpu"], digest)
        for run in row["runs"]
        if run["verdict"] is not None
        for digest in profiles.digests(run["verdict"]["report"])
    ]
    if not row["done"]:
        steps = [next_steps.after(None, "profile")]
    elif not found:
        steps = ["There is no profile: the run didn't pass. Call status with this number."]
    else:
        steps = next_steps.of_profile([digest for _, digest in found])
    return ProfileTold(
        submission=row["id"],
        profiles=[
            DigestTold(
                gpu=gpu,
                title=profiles.title(digest),
                limits=profiles.sentences(digest),
                hints=list(digest.get("hints") or ()),
                kernels=[KernelTold(**one) for one in profiles.kernels(digest)],
            )
            for gpu, digest in found
        ],
        files=files,
        next=steps,
    )


def history_told(rows: list[Mapping[str, Any]]) -> HistoryTold:
    return HistoryTold(
        submissions=[
            LineTold(
                submission=row["id"],
                board=row["leaderboard_name"],
                mode=row["mode"],
                file_name=row["file_name"],
                at=row["submission_time"],
                status=row["status"],
                scores_s={run["gpu_type"]: run["score"] for run in row["runs"]},
            )
            for row in rows
        ],
        next=["Call status with a number for its verdicts."] if rows else ["Nothing was submitted yet: call submit."],
    )
