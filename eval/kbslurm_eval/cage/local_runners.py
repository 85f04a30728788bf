"""Runners as children of the judge, in the cage that this machine allows."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbslurm_eval.cage import held_files, held_locks, sent_descriptors, user_counts, users
from kbslurm_eval.cage.core_warmer import CoreWarmer
from kbslurm_eval.cage.dead_sockets import DeadSockets
from kbslurm_eval.cage.held_files import HeldFiles
from kbslurm_eval.cage.held_locks import HeldLocks
from kbslurm_eval.cage.held_memory import HeldMemory
from kbslurm_eval.cage.judge_children import LAUNCH_OF_ORPHAN, OWN_CHILDREN, end_orphans, orphans_now
from kbslurm_eval.cage.kernel_memory import KernelMemory
from kbslurm_eval.cage.limits import GOES_FIRST, SPARED, gpu_devices, set_oom_score
from kbslurm_eval.cage.process_tree import ProcessTree
from kbslurm_eval.cage.processes import descendants_of, send_signal
from kbslurm_eval.cage.runner_environment import interpreter_paths, places_for_all, runner_environment, toolkit_paths
from kbslurm_eval.cage.runner_log import RunnerLog
from kbslurm_eval.cage.runners import (
    IMAGE_FACTS,
    START_S,
    TOO_MUCH,
    CantStart,
    Runner,
    end_in_words,
    folder_apart,
    profiler_named,
)
from kbslurm_eval.cage.sent_descriptors import SentDescriptors
from kbslurm_eval.shared import remove_tree
from kbslurm_eval.shared.profile_files import LEFT
from kbslurm_eval.shared.program import eval_folder
from kbslurm_eval.shared.runner_link import BUILT_SUFFIX, FILES, LENT, rank_folder
from kbslurm_eval.shared.wire import Limits, ProfileTool

# keeps libraries from sharing memory by name, which level 1 doesn't allow
UNSHARED = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "NCCL_SHM_DISABLE": "1"}


class LocalRunners:
    """Runners as children of the judge, in the cage that this machine allows."""

    container = False
    profiling = False
    spared = False
    beside = 0

    def __init__(
        self,
        limits: Limits,
        *,
        level: int,
        shm: str | None = None,
        ranks: int = 1,
        notes: Sequence[str] = (),
        shows_gpus: bool = True,
    ) -> None:
        """`shows_gpus`: where a runner has a root of its own, this machine's GPUs are in it."""
        self._devices = gpu_devices() if shows_gpus else []
        self._limits, self._level, self.ranks, self.bare = limits, level, ranks, level < 2
        self.processes = limits.processes
        self.highest = level
        self.profiler = profiler_named(os.environ.get("KBSLURM_PROFILER", ""))
        told = {name: os.environ.get(f"KBSLURM_{name.upper()}", "") for name in IMAGE_FACTS}
        self.image: Mapping[str, str] = {name: text for name, text in told.items() if text}
        self.notes = notes
        self.means = {2: "unshare", 1: "seccomp", 0: "process"}[level]
        self._base = Path(tempfile.mkdtemp(prefix="kb-", dir=shm or _shared_memory()))
        self._lock = _sweep_and_hold(self._base)
        if level < 2 and os.getuid() == 0:
            self._base.chmod(0o711)
        self._live: list[LocalRunner] = []
        self.warmer = CoreWarmer()

    def prepare(self) -> Path:
        """The folder for the next launch's link."""
        return folder_apart(self._base)

    def hello(self) -> dict[str, Any]:
        """What a runner must be told; it is fully isolated before it starts."""
        fenced = self._level == 1
        return {"supervised": False, "places": places_for_all() if fenced else [], "unshared": fenced}

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """A fresh runner in a fresh cage."""
        uid = _uid_of_its_own() if os.getuid() == 0 else 0
        if uid and self._level < 2:
            for reached in (folder, *(rank_folder(folder, n) for n in range(self.ranks if self.ranks > 1 else 0))):
                _let_in(reached, uid)
        score = SPARED if self.spared else GOES_FIRST
        profiler = self.profiler if self.profiling else None
        for name in LEFT[profiler] if profiler else ():  # in a cage only these of the link's folder are to be seen
            (folder / name).touch()
            (folder / name).chmod(0o666)
        runner = LocalRunner(
            folder,
            self._limits,
            self._level,
            self.ranks,
            place,
            uid,
            score,
            profiler,
            devices=self._devices,
            beside=self.beside,
        )
        self._live.append(runner)
        return runner

    def close(self) -> None:
        """End every runner and remove our folders."""
        self.warmer.close()
        for runner in self._live:
            runner.kill()
        if self._level < 2:
            end_orphans()
        remove_tree.remove(self._base)
        os.close(self._lock)


def _sweep_and_hold(mine: Path) -> int:
    """Lock our folder while we live, and remove folders of judges that were killed: theirs aren't locked."""
    for folder in remove_tree.leftovers(mine.parent):
        if folder == mine:
            continue
        with contextlib.suppress(OSError):
            fd = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree.remove(folder)
            finally:
                os.close(fd)
    fd = os.open(mine / "lock.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    (mine / "lock.new").rename(mine / "lock")  # it is never unlocked while we live
    return fd


def _let_in(folder: Path, uid: int) -> None:
    """Let this launch's user, and no one else, pass through this folder, which is root's."""
    try:
        os.chown(folder, -1, uid)
        folder.chmod(0o710)
    except OSError:  # no such group in this user namespace
        folder.chmod(0o711)


def _uid_of_its_own() -> int:
    """A user for one launch, drawn from so many that no other has it: its number tells neither which launch of a run it
    is nor who judges it."""
    own = users.OWN_UIDS + secrets.randbelow(users.OWN_UIDS_MANY)
    return own if all(_is_mapped(own, kind) for kind in ("uid", "gid")) else users.CAGED_UID


def _is_mapped(number: int, kind: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        return any(int(first) <= number < int(first) + int(count) for first, _, count in map(str.split, file))
    return False


def _shared_memory() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()


def _built_beside(link: Path) -> str:
    """The folder of this launch's build results, if any."""
    beside = link.with_name(link.name + BUILT_SUFFIX)
    return str(beside) if beside.is_dir() else ""


class LocalRunner:
    """One launch on this machine."""

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        level: int,
        ranks: int,
        place: Path | None,
        uid: int,
        oom_score: int,
        profiler: ProfileTool | None = None,
        *,
        devices: Sequence[str],
        beside: int = 0,
    ) -> None:
        self._beside = beside
        self._oom_score, self._profiler, self._devices = oom_score, profiler, devices
        self._folder, self._limits, self._level, self._ranks = folder, limits, level, ranks
        self._place, self._uid = place, uid
        self.furnished = level >= 2
        self._status: int | None = None
        self._reaped: set[int] = set()
        self._keeper: int | None = None
        self._killed, self._peak = False, 0
        self._memory = HeldMemory(limits.memory_bytes)
        self.work = None if level >= 2 else folder / "work"
        if self.work is not None:
            self.work.mkdir()
            self.work.chmod(0o777)
        (folder / "root").mkdir(exist_ok=True)
        log_read, log_write = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(log_write, 1031, 1 << 18)  # F_SETPIPE_SZ
        try:
            self._keeper, self._main = self._launched(log_write)
        except BaseException:
            os.close(log_read)
            raise
        finally:
            os.close(log_write)
        set_oom_score(oom_score, self._main)  # once more, so that it can't be lowered where root judges
        self.pid: int | None = self._main
        OWN_CHILDREN.add(self._main)
        # without a PID namespace a process that leaves its family comes to the judge, and has to be stopped there
        self._tree = ProcessTree(
            [p for p in (self._main, self._keeper) if p],
            self._main,
            orphans=None if self._keeper else orphans_now,
            others=self._others_orphans,
        )
        self._kernel_memory, self._files = KernelMemory(self._main), HeldFiles(self.work)
        self._locks, self._sent = HeldLocks(), SentDescriptors()
        self._dead = DeadSockets(self._kernel_memory.sockets_there)
        self._drain = RunnerLog(log_read, limits.log_bytes)
        self._text: str | None = None

    @property
    def folder(self) -> Path:
        """Where its link's files are."""
        return self._folder

    def _launched(self, log_write: int) -> tuple[int | None, int]:
        said, said_fd = os.pipe()
        spec = self._spec(log_write, said_fd)
        argv = [sys.executable, "-I", "-S", "-B", eval_folder(), "--jail"]
        try:
            launcher = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(log_write, said_fd),
                env={"LANG": "C.UTF-8"},
                cwd="/",
            )
        finally:
            os.close(said_fd)
        with launcher, contextlib.suppress(BrokenPipeError):
            assert launcher.stdin is not None
            launcher.stdin.write(json.dumps(spec).encode() + b"\n")
            launcher.stdin.close()
            told = _all_of(said, START_S)
        os.close(said)
        words = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
        keeper = int(words["keeper"]) if "keeper" in words else None
        main = int(words["runner"]) if "runner" in words else None
        if "error" in words or main is None:
            # The keeper is pid 1 of the runner's namespace: it can't end before the runner has been waited for.
            for pid in (main, keeper):
                if pid:
                    send_signal(pid, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, 0)
            raise CantStart(words.get("error", "the launcher gave no answer"))
        return keeper, main

    def _spec(self, log_write: int, said_fd: int) -> dict[str, Any]:
        caged = self._level >= 2
        program, link = ("/eval", "/link") if caged else (eval_folder(), str(self._folder))
        limits = {
            "memory_bytes": self._limits.memory_bytes,
            "processes": self._limits.processes,
            "file_bytes": self._limits.file_bytes,
            "beside": self._beside,
        }
        around = [sys.executable, "-I", "-B", program, "--profiled", self._profiler, link] if self._profiler else []
        return {
            "level": self._level,
            "root": str(self._folder / "root"),
            "link": str(self._folder),
            "links": [
                *FILES,
                *(LEFT[self._profiler] if self._profiler else ()),
                *([LENT] if (self._folder / LENT).exists() else ()),
                *(f"{rank_folder(Path(), n)}/{f}" for n in range(self._ranks if self._ranks > 1 else 0) for f in FILES),
            ],
            "ranks": self._ranks,
            # a profiler speaks TCP with its target; without a network of its own nobody may
            "inet": self._ranks > 1 or (self._profiler is not None and caged),
            "eval": eval_folder(),
            "built": _built_beside(self._folder),
            "binds": [*interpreter_paths(), *toolkit_paths()],
            "libraries": [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.strip("/")],
            "own": [str(path) for path in (self.work, self._place) if path is not None],
            "uid": self._uid,
            "devices": list(self._devices),
            "limits": limits,
            "oom_score": self._oom_score,
            "log_fd": log_write,
            "said_fd": said_fd,
            "judge": int(os.readlink("/proc/self")),
            "argv": [*around, sys.executable, "-I", "-B", program, "--runner", link],
            "env": runner_environment("/tmp")
            if caged
            else {**runner_environment(str(self.work)), **(UNSHARED if self._level else {})},
            "reached": [os.path.realpath(sys.executable), os.path.realpath(eval_folder()), sys.prefix],
        }

    def meets(self, line: socket.socket) -> None:
        """The judge has accepted this connection of its."""
        self._dead.meets(line)

    def thaw(self) -> None:
        """Continue all its processes."""
        self._tree.thaw()

    def freeze(self) -> None:
        """Stop all its processes; all are stopped when this returns."""
        self._tree.freeze(self._keeper)
        if not self._keeper:  # only this launch ran, so any orphan that appeared meanwhile is its own
            for pid in orphans_now():
                LAUNCH_OF_ORPHAN.setdefault(pid, self._main)
        self._dead.wait(self._own)

    def went_on_ns(self) -> int:
        """How long some of its processes went on while it was stopped last."""
        return self._tree.went_on_ns + self._dead.waited_ns

    def stopping_ns(self) -> int:
        """How long it took until all its processes were found stopped last."""
        return self._tree.stopping_ns

    def core(self) -> int | None:
        """The core that it was last on."""
        return self._tree.core()

    def _own(self) -> list[int]:
        """Its processes, without orphans of other launches, and without the keeper, which is ours: whoever isn't root
        couldn't look at that."""
        if self._keeper:
            return [pid for pid in self._tree.known() if pid != self._keeper]
        roots = [self._main, *(p for p in orphans_now() if LAUNCH_OF_ORPHAN.get(p, self._main) == self._main)]
        return [*roots, *(below for root in roots for below in descendants_of(root))]

    def _others_orphans(self) -> list[int]:
        return [pid for pid in orphans_now() if LAUNCH_OF_ORPHAN.get(pid, self._main) != self._main]

    def _reap(self, pid: int, flags: int) -> int | None:
        if pid in self._reaped:
            return self._status if pid == self._main else 0
        try:
            found, status, used = os.wait4(pid, flags)
            self._peak = max(self._peak, used.ru_maxrss * 1024 if pid == self._main else 0)
        except ChildProcessError:
            found, status = pid, 0
        if found == 0:
            return None
        self._reaped.add(pid)
        if pid == self._main:
            OWN_CHILDREN.discard(pid)
            self._status = status
        return status

    def ended(self) -> str | None:
        """How it ended, in words for people."""
        status = self._reap(self._main, os.WNOHANG)
        return None if status is None else end_in_words(status)

    def kept_bytes(self) -> int:
        """How much it keeps in files where the links' are, now."""
        return self._files.seen(self._own())

    def threads(self, *, running: bool = False) -> int:
        """How many threads its processes have now, or how many of those don't wait for anything."""
        return self._tree.threads(self._keeper, running=running)

    def ran_ns(self) -> int:
        """How long its processes, those that are there now, have had a core."""
        return self._tree.ran_ns(self._keeper)

    def clocks_ns(self) -> dict[int, int]:
        """The same of each that was there when it was stopped last."""
        return self._tree.clocks_ns()

    def killed_by_kernel(self) -> bool:
        """Whether it was killed, and not by the judge."""
        status = self._status
        return (
            status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and not self._killed
        )

    def overdrawn(self) -> str:
        """Whether it holds more than allowed, and of what, or was killed by the kernel rather than by the judge."""
        if self._status is not None:
            return TOO_MUCH if self.killed_by_kernel() and self._peak > self._limits.memory_bytes // 2 else ""
        held = self._memory.now(own := self._own(), self._tree.resident) + self._kernel_memory.now(own)
        held += self._files.beyond_mapped(own)
        self._peak = max(self._peak, held)
        if self._files.too_many:
            return held_files.TOO_MANY
        if self._locks.look(own):
            return held_locks.TOO_MANY
        if self._sent.look(own):
            return sent_descriptors.TOO_MANY
        return TOO_MUCH if held > self._limits.memory_bytes else user_counts.hoarded(own)

    def kill(self) -> None:
        """End it; nothing is left when this returns."""
        self._killed = True
        # once it is reaped, its pid may be reused
        below = [] if self._keeper or self._main in self._reaped else descendants_of(self._main)
        for pid in [p for p in (self._keeper, self._main) if p and p not in self._reaped] + below:
            send_signal(pid, signal.SIGKILL)
        for mine in (self._main, self._keeper):
            if mine:
                self._reap(mine, 0)
        if not self._keeper:
            end_orphans(self._main)
        self._tree.close()
        self._dead.wait_for_all()
        self._kernel_memory.close()

    def log(self) -> str:
        """What it wrote to stdout and stderr, capped."""
        if self._text is None:
            self._text = self._drain.text()
        return self._text

    def written(self) -> int:
        """How many bytes it has written so far; it is stopped."""
        return self._drain.written()

    def log_parts(self, cuts: Sequence[int]) -> list[str]:
        """Its log, cut where it had written so many bytes."""
        text = self.log()
        return self._drain.parts(cuts) if cuts else [text]


def _all_of(fd: int, wait_s: float) -> str:
    parts: list[bytes] = []
    deadline = time.monotonic() + wait_s
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 4096)
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)
    return "error the launcher took too long\n"
