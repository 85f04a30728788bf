"""The interface of what starts runners for the judge, wherever they run."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kbslurm_eval.cage.core_warmer import CoreWarmer
from kbslurm_eval.shared.wire import ProfileTool

CALL_STOP_S = 5.0
IMAGE_FACTS = ("image", "image_digest", "image_pinned", "image_seen")
START_S = 60.0
TOO_MUCH = "the submission used more memory than allowed"


class CantStart(RuntimeError):
    """No runner could be started, which isn't the submission's fault."""


class Unstoppable(RuntimeError):
    """The runner's processes couldn't be stopped."""


class Runner(Protocol):
    """One launch. The judge holds it frozen except while a call runs. `pid`: its process, if the judge started that
    itself."""

    furnished: bool
    pid: int | None
    work: Path | None

    @property
    def folder(self) -> Path:
        """Where its link's files are, as the judge sees them."""
        ...

    def meets(self, line: socket.socket) -> None:
        """The judge has accepted this connection of its."""
        ...

    def thaw(self) -> None:
        """Continue all its processes."""
        ...

    def freeze(self) -> None:
        """Stop all its processes; all are stopped when this returns. Unstoppable otherwise."""
        ...

    def went_on_ns(self) -> int:
        """How long some of its processes went on while it was stopped last, or none could have been stopped."""
        ...

    def stopping_ns(self) -> int:
        """How long it took until all its processes were found stopped last: whoever is in a system call goes on."""
        ...

    def core(self) -> int | None:
        """The core that the process which is called was on when it was stopped."""
        ...

    def ended(self) -> str | None:
        """How it ended, in words for people; None while it runs."""
        ...

    def overdrawn(self) -> str:
        """Why it ended, or should end, if it used more memory than allowed, or other things that the kernel counts for
        its user; empty otherwise."""
        ...

    def kept_bytes(self) -> int:
        """How much it keeps in files where the links' are, as far as that can be seen."""
        ...

    def threads(self, *, running: bool = False) -> int:
        """How many threads its processes have now, or how many of those don't wait for anything."""
        ...

    def ran_ns(self) -> int:
        """How long its processes, those that are there now, have had a core."""
        ...

    def clocks_ns(self) -> dict[int, int]:
        """The same of each that was there when it was stopped last."""
        ...

    def killed_by_kernel(self) -> bool:
        """Whether it was killed, and not by the judge."""
        ...

    def kill(self) -> None:
        """End it; nothing is left when this returns."""
        ...

    def log(self) -> str:
        """Its stdout and stderr, capped."""
        ...

    def written(self) -> int:
        """How many bytes it has written to them so far; it is stopped."""
        ...

    def log_parts(self, cuts: Sequence[int]) -> list[str]:
        """Its log, cut where it had written so many bytes."""
        ...


def folder_apart(where: Path) -> Path:
    """A folder for the next launch, by a number that tells nothing: a runner reads it off its mounts, and a count would
    say which launch it is in."""
    while (found := where / str(secrets.randbelow(900_000_000) + 100_000_000)).exists():
        pass
    return found


class Runners(Protocol):
    """Starts runners and says what kind of cage they are in. `image`: what their container's image is and has to be.
    `ranks`: how many processes of the submission each of them holds. `bare`: they have no file system of their own.
    `profiler`: the program that can be started around a runner here, or none; while `profiling` is true it is.
    `spared`: while it is true, a runner that is started isn't the first to be ended when memory is short.
    `beside`: so many other submissions' runners are there at the same time, each with so many `processes` at most.
    `notes`: what the report says of the cage. `warmer`: what keeps a stopped runner's core awake."""

    bare: bool
    container: bool
    image: Mapping[str, str]
    notes: Sequence[str]
    means: str
    highest: int
    ranks: int
    profiler: ProfileTool | None
    profiling: bool
    spared: bool
    beside: int
    processes: int
    warmer: CoreWarmer

    def prepare(self) -> Path:
        """The folder for the next launch's link; it doesn't exist yet."""
        ...

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """A runner on this link, whose files are there; CantStart otherwise. `place`: one more folder that a bare one
        may write to."""
        ...

    def hello(self) -> dict[str, Any]:
        """What a runner must be told before it reports what it sees."""
        ...

    def close(self) -> None:
        """End every runner and remove our folders."""
        ...


def profiler_named(name: str) -> ProfileTool | None:
    """The profiler of that name that may run around a runner, or none."""
    return "ncu" if name == "ncu" else "rocprof" if name == "rocprof" else None


def end_in_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"signal {signal.Signals(number).name}"
        except ValueError:
            return f"signal {number}"
    return f"exit code {os.WEXITSTATUS(status)}"
