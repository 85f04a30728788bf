"""How a job ended according to the supervisor in it, eval/supervise.sh: its note, and what that proves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from kbslurm.domain.run import Ending

WHY_CAP = 300
Cause = Literal["judge", "expired", "term", "image", "setup", "cancelled", "unstarted"]
CAUSES: tuple[Cause, ...] = ("judge", "expired", "term", "image", "setup", "cancelled", "unstarted")
UNWRITTEN = 74  # the harness's own status (kbslurm_eval.run)
SIGNALLED = (128 + 9, 128 + 15)  # signals to a whole job also reach the judge, often before the script
# of one that code of its own brings down: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV
NATIVE_DEATHS = (4, 6, 7, 8, 11)


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The supervisor's final status. `began`: the judge had started, so the limits hit are the submission's.
    `checking`: when it ended, it was looking at an answer."""

    cause: Cause
    status: int
    began: bool
    job: str
    node: str
    at: datetime | None
    why: str = ""
    checking: bool = False


def exit_in(told: Mapping[str, Any], at: datetime | None) -> Exit | None:
    """The final status in a note; None if it isn't a valid one."""
    cause, status = told.get("cause"), told.get("status")
    if cause not in CAUSES or not isinstance(status, int):
        return None
    return Exit(
        cause=cast("Cause", cause),
        status=status,
        began=told.get("began") is True,
        job=_text(told, "job"),
        node=_text(told, "node"),
        at=at,
        checking=told.get("checking") is True,
        why="".join(letter for letter in _text(told, "why") if letter.isprintable())[:WHY_CAP],
    )


def blamed(ending: Ending, status: int | None, *, checking: bool) -> Ending:
    """How an attempt ended whose judge ended with this status (a signal's is negative, or 128 more). One that went down
    by itself while it was looking at an answer went down by that: the next try would, too, on any node."""
    died = status is not None and (-status in NATIVE_DEATHS or status - 128 in NATIVE_DEATHS)
    return Ending.CHECK_DIED if ending is Ending.NO_REPORT and checking and died else ending


def end_without_report(
    left: Exit, *, cancelled: bool = False, unfit: bool = False, results: str = "the shared root"
) -> tuple[Ending, str] | None:
    """What a final status proves where there is no report: the ending and its reason, without the node. None if it was
    a signal from outside, of which it doesn't know why. `results`: where the judge was to write its report."""
    match left.cause:
        case "expired" if left.began:
            return Ending.TIMEOUT, "it hit the time limit"
        case "expired":
            return Ending.BOOT_FAILURE, "the container didn't start in time"
        case "image":
            return Ending.IMAGE, _with_why(left, "the container wouldn't start")
        case "setup":
            return Ending.BOOT_FAILURE, _with_why(left, "the node couldn't prepare the job")
        case "cancelled":
            return Ending.CANCELLED, "it was cancelled before it started"
        case "unstarted":
            return Ending.WITHDRAWN, _with_why(left, "its warm worker didn't start it")
        case "term" | "judge" if cancelled and left.status in SIGNALLED:
            return Ending.CANCELLED, "it was cancelled"
        case "judge" if unfit:
            return Ending.BAD_REPORT, "its report isn't a regular file of a valid size"
        case "judge" if left.status == UNWRITTEN:
            return Ending.NO_REPORT, f"{results} was full or read-only when the judge wrote its report"
        case "judge" if blamed(Ending.NO_REPORT, left.status, checking=left.checking) is Ending.CHECK_DIED:
            return Ending.CHECK_DIED, f"the judge ended with status {left.status} while it was looking at an answer"
        case "judge" if left.status not in SIGNALLED:
            return Ending.NO_REPORT, f"the judge ended with status {left.status} and left no report"
        case _:
            return None


def _with_why(left: Exit, text: str) -> str:
    return f"{text}: {left.why}" if left.why else text


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""
