"""Who starts and stops runners: this machine's own processes (`Local`) or a job script's containers (`Doorbell`).

The protocol of `--supervisor DIR --link LINK` (the job script is the supervisor; the judge runs in a container too)
-----------------------------------------------------------------------------------------------------------------
Before the judge starts, the script makes two folders, mode 0700, and binds both into the judge's container, read-write:
`DIR` for asking (never bound into a runner) and `LINK` on /dev/shm of the node (only its subfolder N goes into
runner N).

    DIR/ask            a FIFO made by the script (mkfifo). The judge writes whole lines, each below 64 bytes; the script
                       holds it open for reading and writing (`exec 3<>"$dir/ask"`) and reads lines from it.
      run N            start runner container N (N = 1, 2, 3 …; each number is used once). Before it asks, the judge has
                       made LINK/N with the files bell, in, out and the FIFO log (and, where a GPU's memory is lent,
                       the socket lent). The script binds LINK/N at /link
                       (read-write) and the eval folder at /eval (read-only), nothing else of the attempt, and runs
                       `python3 -I -B /eval --runner /link` in it, in the background, with stdin from /dev/null and
                       its own stdout and stderr into DIR/run.N.err (the runner itself writes to LINK/N/log).
                       LINK/N.built is bound at /built, read-only; where the judge made none, the script makes an
                       empty one. A builder is started like a runner and finds nothing there.
      prof N           the same with a profiler around it, which leaves its files in /link. Only asked for where facts
                       names one.
      stop N           kill runner N: SIGKILL to the process of run.N.pid and whatever of it is left. No answer;
                       run.N.status appears as for every end. Asking for a runner that has ended is allowed and does
                       nothing.
      look N           look at processes of runner N for the judge, whom the kernel doesn't let: unprivileged containers
                       have a user namespace each, and the script is above both. DIR/look.N, written by the judge, is
                       one line `ANSWER WORD PLACE PLACE …`, its ANSWER like `seen.N.1`. The script leaves DIR/ANSWER
                       (temp + mv): a line `PID:` for each process that it sees, then `PLACE/FD:LINE` for each line of
                       /proc/PLACE/FD that begins with WORD (`lock` and `scm_fds` of fdinfo, `Pss` of smaps_rollup,
                       which has no FD), their number there if that is `tfd`, or each descriptor of /proc/PLACE that is
                       a `pipe`, and last `end STATUS`. It gives that 5 s and 8 MiB, and does nothing else meanwhile.
                       Only asked for where facts say `looks=1`.
      end              the judge is done: kill every runner that is left and leave the loop. Also do so, and end the
                       job's work, when the judge's container has exited without saying `end`.
    DIR/run.N.pid      written by the script at once after the start (temp + mv): the decimal pid, as the host sees
                       it, of the container's first process (`$!`). The judge waits at most 60 s for it.
    DIR/run.N.status   written by the script when the container has ended (temp + mv): its exit status in decimal
                       (128 + signal when it was killed, as the shell says it).
    DIR/facts          optional, written by the script before the judge starts: lines `name=value`.
                       `container=apptainer` names the means; `profiler=ncu` a profiler (see `prof`);
                       `looks=1` that it obeys `look`; `clears=1` that it leaves run.N.cleared;
                       `exclusive=1` says that GPU and cores are this job's alone: with it and with what the
                       runner finds inside the isolation level is 3 instead of 2.
                       `image=…`, `image_digest=…` (what it is), `image_pinned=…` (what it has to be) and
                       `image_seen=file|tree|record` (how the digest was found: over its bytes, or as it is written
                       down beside it) go into the report as they are. `scratch=…` says in words what bounds all that
                       a runner may write; the report's notes hold it.
    DIR/run.N.over     written by the script before it ends a runner that wrote more than that: how many MiB it may.
    DIR/run.N.cleared  written after run.N.status, where facts say `clears=1`: what the runner wrote to the node's disk
                       is gone. The judge waits for it, so that it is gone before anything else is measured.

The judge's container has no PID namespace of its own (no `--pid`), so that it sees the runners' processes: it stops
a runner between any two calls with SIGSTOP to run.N.pid and all its descendants, continues them with SIGCONT, and
ends them with SIGKILL. The script must therefore not take a stopped child for an ended one (a plain `wait` in sh
doesn't), and must forward no signal to runners. On SIGTERM the script kills runners and judge; the judge then writes
no report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbslurm_eval.cage import held_locks, places, seen_processes, sent_descriptors
from kbslurm_eval.cage.core_warmer import CoreWarmer
from kbslurm_eval.cage.dead_sockets import DeadSockets
from kbslurm_eval.cage.held_locks import HeldLocks
from kbslurm_eval.cage.held_memory import HeldMemory
from kbslurm_eval.cage.kernel_memory import KernelMemory
from kbslurm_eval.cage.limits import GOES_FIRST, SPARED
from kbslurm_eval.cage.process_tree import ProcessTree
from kbslurm_eval.cage.processes import has_ended, send_signal
from kbslurm_eval.cage.runner_log import RunnerLog
from kbslurm_eval.cage.runners import (
    CALL_STOP_S,
    IMAGE_FACTS,
    START_S,
    TOO_MUCH,
    CantStart,
    Runner,
    end_in_words,
    folder_apart,
    profiler_named,
)
from kbslurm_eval.cage.seen_processes import CANT_LOOK, Lookout
from kbslurm_eval.cage.sent_descriptors import SentDescriptors
from kbslurm_eval.cage.user_counts import Hoarded
from kbslurm_eval.shared.wire import LOG_CAP, Limits

CLEARS_S = 30.0  # what is left of a runner's files by then is cleared while the run goes on


class ContainerRunners:
    """Runners as containers that the job script starts when it is asked to: see the protocol above."""

    bare = False
    container = False
    highest = 3

    def __init__(self, folder: Path, link: Path, limits: Limits, *, ranks: int = 1) -> None:
        self._folder, self._link, self._limits, self.ranks = folder, link, limits, ranks
        facts = _read_facts(folder / "facts")
        self.means = facts.get("container", "container")
        self.container = facts.get("exclusive") == "1"
        self.profiler, self.profiling = profiler_named(facts.get("profiler", "")), False
        self.spared, self.beside, self.processes = False, 0, limits.processes
        self.looks, self.clears = facts.get("looks") == "1", facts.get("clears") == "1"
        self.image: Mapping[str, str] = {name: facts[name] for name in IMAGE_FACTS if facts.get(name)}
        self.notes: Sequence[str] = (
            (f"all that a runner may write: {facts['scratch']}",) if facts.get("scratch") else ()
        )
        self._live: list[ContainerRunner] = []
        self.warmer = CoreWarmer()
        try:
            self._ask = os.open(folder / "ask", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CantStart(f"the supervisor's FIFO can't be opened: {error}") from None

    def prepare(self) -> Path:
        """The folder for the next launch's link."""
        return folder_apart(self._link)

    def hello(self) -> dict[str, Any]:
        """The container is the outer part of the cage; the runner applies limits and filter to itself when it reads
        this."""
        limits = {
            "memory_bytes": self._limits.memory_bytes,
            "processes": self._limits.processes,
            "file_bytes": self._limits.file_bytes,
            "beside": self.beside,
        }
        score = SPARED if self.spared else GOES_FIRST
        return {
            "supervised": True,
            "limits": limits,
            "oom_score": score,
            "inet": self.ranks > 1,
            "profiled": self.profiling,
            "places": places.WRITABLE_BY_ALL,
        }

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """Ask the script for the container of this link and wait until it has started."""
        number = int(folder.name)
        os.mkfifo(folder / "log", 0o666)
        (folder / "log").chmod(0o666)
        drain = os.open(folder / "log", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.say(f"{'prof' if self.profiling else 'run'} {number}")
        runner = ContainerRunner(self, number, folder, drain, self._limits)
        self._live.append(runner)
        return runner

    def say(self, line: str) -> None:
        """Write one line into the FIFO; it is short, so the write is atomic."""
        os.write(self._ask, line.encode("ascii") + b"\n")

    def file(self, name: str) -> Path:
        """A file of the protocol."""
        return self._folder / name

    def notice(self, pids: Sequence[int]) -> None:
        """Say in the report if these processes of a runner can't be looked at by anybody."""
        if not self.looks and CANT_LOOK not in self.notes and any(map(seen_processes.is_hidden, pids)):
            self.notes = (*self.notes, CANT_LOOK)

    def close(self) -> None:
        """End every runner; the script leaves its loop."""
        self.warmer.close()
        for runner in self._live:
            runner.kill()
        with contextlib.suppress(OSError):
            self.say("end")
        os.close(self._ask)


def _read_facts(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, found, value in (line.partition("=") for line in lines) if found}


class ContainerRunner:
    """One launch in a container that the job script started."""

    furnished = False
    pid: int | None = None  # the judge knows the one of its container
    work: Path | None = None

    def __init__(self, bell: ContainerRunners, number: int, folder: Path, drain: int, limits: Limits) -> None:
        self._bell, self._number, self._folder, self._limits = bell, number, folder, limits
        self._killed, self._peak = False, 0
        self._noticed = self._rests = False
        self._lookout = Lookout(bell.file("."), number, bell.say, answers=bell.looks)
        self._memory = HeldMemory(limits.memory_bytes, self._lookout.shares)
        self._drain = RunnerLog(drain, limits.log_bytes)
        self._text: str | None = None
        self._pid = self._awaited()
        self._tree = ProcessTree([self._pid], None, inner=True)
        self._kernel_memory, self._locks = KernelMemory(self._pid, self._lookout), HeldLocks(self._lookout)
        self._dead = DeadSockets(self._kernel_memory.sockets_there)
        self._sent, self._hoarded = SentDescriptors(self._lookout), Hoarded(self._lookout)

    @property
    def folder(self) -> Path:
        """Where its link's files are."""
        return self._folder

    def _awaited(self) -> int:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return int(self._bell.file(f"run.{self._number}.pid").read_text())
            if (status := self._status()) is not None:
                raise CantStart(f"the job script started no container (status {status})")
            time.sleep(0.002)
        raise CantStart(f"the job script started no container within {START_S:.0f} s")

    def meets(self, line: socket.socket) -> None:
        """The judge has accepted this connection of its."""
        self._dead.meets(line)

    def thaw(self) -> None:
        """Continue all its processes."""
        self._rests = False
        self._tree.thaw()

    def freeze(self) -> None:
        """Stop all its processes; all are stopped when this returns."""
        self._tree.freeze(None)
        self._rests = True
        self._dead.wait(self._tree.known)
        if not self._noticed:
            self._noticed = True
            self._bell.notice(self._tree.known())

    def went_on_ns(self) -> int:
        """How long some of its processes went on while it was stopped last."""
        return self._tree.went_on_ns + self._dead.waited_ns

    def stopping_ns(self) -> int:
        """How long it took until all its processes were found stopped last."""
        return self._tree.stopping_ns

    def core(self) -> int | None:
        """The core that it was last on."""
        return self._tree.core()

    def _status(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(self._bell.file(f"run.{self._number}.status").read_text())
        return None

    def ended(self) -> str | None:
        """How it ended, in words for people."""
        status = self._status()
        if status is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            over = int(self._bell.file(f"run.{self._number}.over").read_text())
            return f"it wrote more than {over} MiB of files and was stopped"
        return end_in_words(status - 128) if status > 128 else f"exit code {status}"

    def kept_bytes(self) -> int:
        """It writes elsewhere, and is stopped where that is too much."""
        return 0

    def threads(self, *, running: bool = False) -> int:
        """How many threads its processes have now, or how many of those don't wait for anything."""
        return self._tree.threads(running=running)

    def ran_ns(self) -> int:
        """How long its processes, those that are there now, have had a core."""
        return self._tree.ran_ns()

    def clocks_ns(self) -> dict[int, int]:
        """The same of each that was there when it was stopped last."""
        return self._tree.clocks_ns()

    def killed_by_kernel(self) -> bool:
        """Whether it was killed, and not by the judge."""
        return self._status() == 128 + signal.SIGKILL and not self._killed

    def overdrawn(self) -> str:
        """Whether it holds more than allowed, and of what, or was killed by the kernel rather than by the judge."""
        status = self._status()
        if status is not None:
            told = self._bell.file(f"run.{self._number}.memory").exists()
            return TOO_MUCH if self.killed_by_kernel() and (told or self._peak > self._limits.memory_bytes // 2) else ""
        held = self._memory.now(own := self._tree.known(), self._tree.resident)
        held += self._kernel_memory.now(own, rests=self._rests)
        self._peak = max(self._peak, held)
        if self._locks.look(own):
            return held_locks.TOO_MANY
        # many have sockets: while they work, the judge is to see their answer, and has no time for this
        if self._rests and self._kernel_memory.sockets(own) != 0 and self._sent.look(own):
            return sent_descriptors.TOO_MANY
        return TOO_MUCH if held > self._limits.memory_bytes else self._hoarded.look(own)

    def kill(self) -> None:
        """Asks the script and signals the tree itself; waits a moment for the script's word, and longer until what it
        wrote is gone."""
        if self._killed:
            return
        self._killed = True
        if self._status() is None:
            members = self._tree.all()
            for pid in members:
                send_signal(pid, signal.SIGKILL)
            self._bell.say(f"stop {self._number}")
            deadline = time.monotonic() + CALL_STOP_S
            while self._status() is None and not all(has_ended(p) for p in members) and time.monotonic() < deadline:
                time.sleep(0.002)
        if self._bell.clears:
            cleared, deadline = self._bell.file(f"run.{self._number}.cleared"), time.monotonic() + CLEARS_S
            while not cleared.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
        self._tree.close()
        self._dead.wait_for_all()
        self._kernel_memory.close()

    def log(self) -> str:
        """Its stdout and stderr, capped; the container's messages if it never ran."""
        if self._text is None:
            self._text = self._drain.text()
            if not self._text:
                with contextlib.suppress(OSError):
                    self._text = (
                        self._bell.file(f"run.{self._number}.err").read_bytes()[:LOG_CAP].decode("utf-8", "replace")
                    )
        return self._text

    def written(self) -> int:
        """How many bytes it has written so far; it is stopped."""
        return self._drain.written()

    def log_parts(self, cuts: Sequence[int]) -> list[str]:
        """Its log, cut where it had written so many bytes."""
        text = self.log()
        return self._drain.parts(cuts) if cuts else [text]
