"""What a runner answered, what verdict that claim can lead to, and its text made fit to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kbslurm_eval.shared import claimed_layout, layouts
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.wire import (
    LOG_CAP,
    VerdictName,
)

if TYPE_CHECKING:
    from kbslurm_eval.judge.device_memory import Answered

MESSAGE_CAP = 1_000


class Rejected(Exception):
    """The run ends here with this verdict. `said` is for public phases, `bare_reason` says no more than the class."""

    def __init__(self, verdict: VerdictName, said: str, bare_reason: str = "") -> None:
        super().__init__(said)
        self.verdict, self.said, self.bare_reason = verdict, said, bare_reason or said
        self.alone = ""  # what is said without the test that it came of, where `said` names it


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one message came to."""

    ns: int
    status: int
    text: str
    out: bytes | bytearray | memoryview
    layout: layouts.Layout | None = None  # what `out` is, where it isn't the layout that was asked for
    there: Answered | None = None  # what of the answer is on the device


SIGNALS = {
    "signal SIGSEGV": "it touched memory that isn't its own, as an index beyond an array's end does",
    "signal SIGBUS": "it touched memory that isn't there any more",
    "signal SIGFPE": "it divided a whole number by zero",
    "signal SIGILL": "it has instructions that this processor lacks",
    "signal SIGXFSZ": "a file of it became larger than allowed",
    "signal SIGSYS": "it made a system call that the cage doesn't know",
}


def gone(how: str) -> Rejected:
    """The verdict for a runner that has ended, in these words."""
    hint = f" - {SIGNALS[how]}" if how in SIGNALS else ""
    return Rejected("error", f"the submission's process ended ({how}){hint}", "the submission's process ended")


def claimed(reply: Reply) -> Rejected:
    """The verdict for a runner's own word that it has no answer: it can only reject."""
    text = as_one_line(clean(claimed_layout.without_claim(reply.text), MESSAGE_CAP))
    match reply.status:
        case Status.WRONG_TYPE | Status.WRONG_SHAPE:
            what = "type" if reply.status == Status.WRONG_TYPE else "shape"
            return Rejected("wrong", f"an answer has the wrong {what}: {text}", "an answer is wrong")
        case Status.MEMORY:
            return Rejected(
                "memory", "the submission ran out of memory (MemoryError)", "the submission ran out of memory"
            )
        case Status.ENDED:
            return Rejected("error", f"the submission's process ended ({text})", "the submission's process ended")
        case Status.RAISED | Status.SYNTAX | Status.LOAD_RAISED | Status.NO_ENTRY:
            return Rejected("error", text or "an exception", "the submission raised an error")
        case _:
            return Rejected("violation", "the submission wrote into the link's control words")


def with_last_line(said: str, log: str) -> str:
    """What a runner that had no submission yet wrote last: the machine's trouble, told to whoever runs it."""
    lines = [line for line in clean(log, LOG_CAP).splitlines() if line.strip()]
    return f"{said}: {as_one_line(lines[-1])[:300]}" if lines else said


def as_one_line(text: str) -> str:
    """A message stands in lists and reports of others: it can't begin a line there that looks like theirs."""
    return " ".join(text.split())


def clean(text: str, cap: int) -> str:
    """Text of a runner's that can be shown: printable, line breaks and tabs apart; capped."""
    kept = "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text[:cap])
    return kept if len(text) <= cap else f"{kept[: cap - 2]} …"


def status_of(fault: Rejected) -> Literal["fail", "error", "timeout"]:
    """A case's status for this verdict."""
    return "fail" if fault.verdict == "wrong" else "timeout" if fault.verdict == "timeout" else "error"
