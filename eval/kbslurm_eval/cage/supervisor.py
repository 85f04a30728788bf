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
      end              the judge is done: kill every runner that is left and leave the loop. Also do so, and end the
                       job's work, when the judge's container has exited without saying `end`.
    DIR/run.N.pid      written by the script at once after the start (temp + mv): the decimal pid, as the host sees
                       it, of the container's first process (`$!`). The judge waits at most 60 s for it.
    DIR/run.N.status   written by the script when the container has ended (temp + mv): its exit status in decimal
                       (128 + signal when it was killed, as the shell says it).
    DIR/facts          optional, written by the script before the judge starts: lines `name=value`.
                       `container=apptainer` names the means; `profiler=ncu` a profiler (see `prof`);
                       `exclusive=1` says that GPU and cores are this job's alone: with it and with what the
                       runner finds inside the isolation level is 3 instead of 2.
                       `image=…`, `image_digest=…` (what it is), `image_pinned=…` (what it has to be) and
                       `image_seen=file|tree|record` (how the digest was found: over its bytes, or as it is written
                       down beside it) go into the report as they are. `scratch=…` says in words what bounds all that
                       a runner may write; the report's notes hold it.
    DIR/run.N.over     written by the script before it ends a runner that wrote more than that: how many MiB it may.

The judge's container has no PID namespace of its own (no `--pid`), so that it sees the runners' processes: it stops
a runner between any two calls with SIGSTOP to run.N.pid and all its descendants, continues them with SIGCONT, and
ends them with SIGKILL. The script must therefore not take a stopped child for an ended one (a plain `wait` in sh
doesn't), and must forward no signal to runners. On SIGTERM the script kills runners and judge; the judge then writes
no report.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kbslurm_eval.shared import remove_tree
from kbslurm_eval.shared.program import eval_folder
from kbslurm_eval.shared.runner_link import FILES, LENT, rank_folder
from kbslurm_eval.shared.wire import LOG_CAP, Limits

from . import guard
from .core_warmer import Warmer

SUFFIX = ".built"  # LINK/N.built lies beside LINK/N: what was built for that launch
CALL_STOP_S = 5.0
# what makes libraries go without memory that is shared by name, which level 1 doesn't allow
UNSHARED = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "NCCL_SHM_DISABLE": "1"}
IMAGE_FACTS = ("image", "image_digest", "image_pinned", "image_seen")
PASSES = 4  # how often in a row a tree must be found wholly stopped: one that seems to be alone may be forking
_PAGE = os.sysconf("SC_PAGE_SIZE")
STOPPED = (b"T", b"t", b"Z", b"X")
GONE = (FileNotFoundError, ProcessLookupError)  # what /proc says of a task that is no more
STAT_SIZE, HELD_OPEN = 1024, 12  # more than a line of /proc/PID/stat has; a judge has 1,024 files, and several runners
_PROCESSOR = 36  # of the words behind the name in /proc/PID/stat
START_S = 60.0


class CantStart(RuntimeError):
    """No runner could be started: the machine's trouble, not the submission's."""


class Unstoppable(RuntimeError):
    """The runner's processes didn't stop when they were told to."""


class Runner(Protocol):
    """One launch. The judge holds it frozen except while a call runs."""

    furnished: bool
    work: Path | None

    @property
    def folder(self) -> Path:
        """Where its link's files are, as the judge sees them."""
        ...

    def thaw(self) -> None:
        """Let every process of it go on."""
        ...

    def freeze(self) -> None:
        """Every process of it is stopped when this returns; Unstoppable otherwise."""
        ...

    def core(self) -> int | None:
        """The core that the process which is called was on when it was stopped."""
        ...

    def ended(self) -> str | None:
        """How it ended, in words for the person; None while it lives."""
        ...

    def out_of_memory(self) -> bool:
        """Whether it ended, or should, because it took more memory than allowed."""
        ...

    def kill(self) -> None:
        """Nothing of it is left when this returns."""
        ...

    def log(self) -> str:
        """What it wrote to stdout and stderr, capped."""
        ...


class Supervisor(Protocol):
    """Starts runners and says what kind of cage they are in. `image`: what their container's image is and has to be.
    `ranks`: how many processes of the submission each of them holds. `bare`: they have no file system of their own.
    `profiler`: the program that can be started around a runner here, or none; while `profiling` is true it is.
    `notes`: what the report says of the cage. `warmer`: what keeps a stopped runner's core awake."""

    bare: bool
    container: bool
    image: Mapping[str, str]
    notes: Sequence[str]
    means: str
    highest: int
    ranks: int
    profiler: str
    profiling: bool
    warmer: Warmer

    def prepare(self) -> Path:
        """The folder of the next launch's link, not made yet."""
        ...

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """A runner on this link, whose files are there; CantStart otherwise. `place`: one more folder that a bare one
        may write to."""
        ...

    def hello(self) -> dict[str, Any]:
        """What a runner has to be told before it says what it sees."""
        ...

    def close(self) -> None:
        """Every runner ended, every folder of ours removed."""
        ...


# ------------------------------------------------------------------------------------------------ processes of a tree


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def _descendants(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        below = _children(waiting.pop())
        found += below
        waiting += below
    return found


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (OSError, IndexError):
        return "X"


def _gone(pid: int) -> bool:
    """No thread of it is left."""
    return _state(pid) in "ZX" and _living(pid) == f"/proc/{pid}"


def _state_in(stat: bytes) -> bytes:
    """The letter behind the name, which may hold anything; of a task that is gone X."""
    return stat.rpartition(b")")[2][1:2] or b"X"


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _living(pid: int) -> str:
    """Where the kernel tells of its memory: of one whose first thread has ended, at a thread that hasn't."""
    if _state(pid) == "Z":
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                if task != str(pid):
                    return f"/proc/{pid}/task/{task}"
    return f"/proc/{pid}"


def _resident_in(statm: bytes) -> int:
    words = statm.split()
    return int(words[1]) * _PAGE if len(words) > 1 else 0


def _resident(pids: list[int], limit: int, of: Callable[[int], int]) -> int:
    """The memory that these processes hold; where it seems to be over the limit pages that they share count once."""
    resident = sum(map(of, pids))
    if resident <= limit or len(pids) < 2:
        return resident
    shared = 0
    for pid in pids:
        try:
            with open(f"{_living(pid)}/smaps_rollup", "rb") as file:
                shared += sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except (OSError, IndexError, ValueError):
            if not _gone(pid):
                return resident  # it can't be told apart: the plain sum counts
    return shared


def _depth(pid: int) -> int:
    """In how many nested PID namespaces a process is, as seen from ours; 0 when that can't be known."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return len(line.split()) - 1
    return 0


Threads = tuple[tuple[str, bytes], ...]


def _stand(threads: Threads) -> bool:
    return all(state in STOPPED for _, state in threads)


class _Pages:
    """What /proc tells of the tasks of one tree, held open: a page takes three times as long to open as to read again.

    A page is its task's, not its number's. It can't be read any more once the task is gone, and the number is then
    looked up anew.
    """

    def __init__(self) -> None:
        self._folders: dict[int, int] = {}
        self._held: dict[tuple[int, str], tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}

    def look(self, pid: int) -> tuple[Threads, list[int]]:
        """Its threads with their states, none of one that is gone, and who its children are: of each thread the state
        first, so that a stopped one's children are all that it has."""
        threads = []
        below: list[int] = []
        for task in self._tasks(pid):
            stat, children = self._task(pid, task)
            threads.append((task, _state_in(stat)))
            below += map(int, children.split())
        return tuple(threads), below

    def stat(self, pid: int) -> bytes:
        """/proc/PID/task/PID/stat, or nothing."""
        return self._task(pid, str(pid))[0]

    def resident(self, pid: int) -> int:
        """The memory that it holds, in bytes."""
        fd = self._sizes.get(pid)
        if fd is not None:
            with contextlib.suppress(*GONE):
                if found := _resident_in(os.pread(fd, STAT_SIZE, 0)):
                    return found
            os.close(self._sizes.pop(pid))
        with contextlib.suppress(*GONE):
            place = _living(pid)
            fd = os.open(f"{place}/statm", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _resident_in(os.pread(fd, STAT_SIZE, 0))
            finally:
                if place == f"/proc/{pid}" and len(self._sizes) < HELD_OPEN:
                    self._sizes[pid] = fd
                else:
                    os.close(fd)
        return 0

    def close(self) -> None:
        """Nothing is held any more."""
        both = (fd for pair in self._held.values() for fd in pair)
        for fd in (*self._folders.values(), *self._sizes.values(), *both):
            os.close(fd)
        self._folders.clear()
        self._sizes.clear()
        self._held.clear()

    def _tasks(self, pid: int) -> list[str]:
        fd = self._folders.get(pid)
        if fd is not None:
            with contextlib.suppress(*GONE):
                if found := os.listdir(fd):
                    return found
            os.close(self._folders.pop(pid))
        try:
            if len(self._folders) >= HELD_OPEN:
                return os.listdir(f"/proc/{pid}/task")
            fd = self._folders[pid] = os.open(f"/proc/{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return os.listdir(fd)
        except GONE:  # and nothing else: a page that can't be had for another reason doesn't make a task a stopped one
            return []

    def _task(self, pid: int, task: str) -> tuple[bytes, bytes]:
        key = (pid, task)
        both = self._held.get(key)
        if both is not None:
            with contextlib.suppress(*GONE):
                return os.pread(both[0], STAT_SIZE, 0), _whole(both[1])
            for fd in self._held.pop(key):
                os.close(fd)
        with contextlib.suppress(*GONE), contextlib.ExitStack() as opened:
            stat = os.open(f"/proc/{pid}/task/{task}/stat", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, stat)
            told = os.pread(stat, STAT_SIZE, 0)
            try:
                below = os.open(f"/proc/{pid}/task/{task}/children", os.O_RDONLY | os.O_CLOEXEC)
            except GONE:  # or a kernel that doesn't tell
                return told, b""
            opened.callback(os.close, below)
            children = _whole(below)
            if len(self._held) < HELD_OPEN:
                self._held[key] = (stat, below)
                opened.pop_all()
            return told, children
        return b"", b""


def _whole(fd: int) -> bytes:
    found = part = os.pread(fd, 4096, 0)
    while part:
        part = os.pread(fd, 4096, len(found))
        found += part
    return found


class _Tree:
    """Stopping and continuing a tree of processes below some roots.

    With `inner` only those in a PID namespace below ours are stopped, where there are any: what a container program
    runs beside its payload (the server of its image's file system, say) has to go on, or the payload can't even stop.
    """

    def __init__(
        self,
        roots: list[int],
        main: int | None,
        *,
        inner: bool = False,
        orphans: Callable[[], list[int]] | None = None,
    ) -> None:
        self.roots, self.main, self._inner, self._orphans = roots, main, inner, orphans
        self._inside: set[int] = set()
        self._held: list[int] = []
        self._still: list[int] | None = None
        self._called: int | None = None
        self._pages = _Pages()

    def all(self) -> list[int]:
        """Every process of it now, once."""
        return list(self._look())

    def known(self) -> list[int]:
        """While it is stopped, those that were found then; every process of it now otherwise."""
        return self.all() if self._still is None else self._still

    def _look(self) -> dict[int, Threads]:
        """Every process of it, and how its threads are."""
        found: dict[int, Threads] = {}
        for root in (*self.roots, *(self._orphans() if self._orphans else ())):
            waiting = [root]
            while waiting:
                if (pid := waiting.pop()) not in found:
                    found[pid], below = self._pages.look(pid)
                    waiting += reversed(below)
        return found

    def _members(self, found: Iterable[int], spare: int | None) -> list[int]:
        mine = [p for p in found if p != spare]
        if not self._inner:
            return mine
        depth = _depth(os.getpid())
        for pid in mine:
            # only a process known to be inside is remembered: a pid from outside may come again inside
            if pid not in self._inside and _depth(pid) > depth:
                self._inside.add(pid)
        return [p for p in mine if p in self._inside] or mine

    def freeze(self, spare: int | None) -> None:
        """Stop all but `spare` (the keeper, which is ours), and see that they stopped."""
        if self.main is not None:
            _signal(self.main, signal.SIGSTOP)
        deadline = time.monotonic() + CALL_STOP_S
        seen: set[int] = set() if self.main is None else {self.main}
        idle: set[int] = set()
        passes = -1  # the first look is none of those that count
        last: dict[int, Threads] = {}
        while True:
            found = self._look()
            members = self._members(found, spare)
            last, before = {p: found[p] for p in members}, last
            fresh = [p for p in members if p not in seen]
            for pid in fresh:
                if _stand(found[pid]):  # not ours to continue: it stopped itself, or another runner's left it with us
                    idle.add(pid)
                _signal(pid, signal.SIGSTOP)
            seen.update(fresh)
            if not fresh and all(map(_stand, last.values())) and (last == before or passes < 0):
                # Processes that come and go, or wake each other, can look stopped one after another while one of them
                # always runs. Whoever slips past one look has to slip past each of these, and changes nothing that they
                # see: who ends a stopped process above himself, to be its parent's, whose children were read, does.
                passes += 1
                if passes >= PASSES:
                    self._held, self._still = [p for p in members if p not in idle], list(found)
                    return
                continue
            passes = 0
            if time.monotonic() > deadline:
                raise Unstoppable("a process of it doesn't stop")
            if not fresh:
                time.sleep(2e-5)
                for pid, threads in last.items():  # one that was continued by a sibling in between
                    if not _stand(threads):
                        _signal(pid, signal.SIGSTOP)

    def core(self) -> int | None:
        """Where the one that is called was last.

        Which one that is shows when this is first asked, before a submission is there: the runner itself, what a
        container's first process started, or the last of several ranks.
        """
        if self._called is None:
            below = [p for p in self._held if p in self._inside or not self._inside]
            self._called = below[-1] if below else self.main
        if self._called is not None:
            with contextlib.suppress(IndexError, ValueError):
                return int(self._pages.stat(self._called).rpartition(b")")[2].split()[_PROCESSOR])
        return None

    def thaw(self) -> None:
        """The one that is called goes on first, where it is known."""
        self._still = None
        if self.main is not None:
            _signal(self.main, signal.SIGCONT)
        for pid in self._held:
            if pid != self.main:
                _signal(pid, signal.SIGCONT)

    def resident(self, pid: int) -> int:
        """The memory that one of its processes holds."""
        return self._pages.resident(pid)

    def close(self) -> None:
        """It has ended."""
        self._pages.close()


class _Drain:
    """Reads what a runner writes, keeps the first part of it and drops the rest: a flood costs nothing but its own
    time."""

    def __init__(self, fd: int, cap: int) -> None:
        self._fd, self._cap = fd, min(cap, LOG_CAP)
        self._kept, self._dropped = bytearray(), 0
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read, name="log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last = False
        with contextlib.suppress(OSError, ValueError):
            while True:
                watched = [self._fd] if last else [self._fd, self._woken]
                ready = select.select(watched, [], [], 0 if last else None)[0]
                last = last or self._woken in ready
                if self._fd in ready:
                    part = os.read(self._fd, 1 << 16)
                    if not part:
                        return
                    room = max(0, self._cap - len(self._kept))
                    self._kept += part[:room]
                    self._dropped += len(part) - min(room, len(part))
                elif last:
                    return

    def text(self) -> str:
        """What was kept, and a line that says how much wasn't. The writers have ended: what is there now is all."""
        os.write(self._wake, b"x")
        self._thread.join(CALL_STOP_S)
        for fd in (self._fd, self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(fd)
        text = bytes(self._kept).decode("utf-8", "replace")
        return text + (f"\n[{self._dropped} bytes more were dropped]" if self._dropped else "")


# ------------------------------------------------------------------------------------------------------------ local


class Local:
    """Runners as children of the judge, in the cage that this machine allows."""

    container = False
    profiler = ""
    profiling = False

    def __init__(self, limits: Limits, *, level: int, shm: str | None = None, ranks: int = 1) -> None:
        self._limits, self._level, self.ranks, self.bare = limits, level, ranks, level < 2
        self.highest = level
        told = {name: os.environ.get(f"KBSLURM_{name.upper()}", "") for name in IMAGE_FACTS}
        self.image: Mapping[str, str] = {name: text for name, text in told.items() if text}
        self.notes: Sequence[str] = ()
        self.means = {2: "unshare", 1: "seccomp", 0: "process"}[level]
        self._base = Path(tempfile.mkdtemp(prefix="kb-", dir=shm or _shared_memory()))
        self._lock = _sweep_and_hold(self._base)
        if level < 2 and os.getuid() == 0:
            self._base.chmod(0o711)
        self._count = 0
        self._live: list[_LocalRunner] = []
        self.warmer = Warmer()

    def prepare(self) -> Path:
        """The folder of the next launch's link."""
        self._count += 1
        return self._base / str(self._count)

    def hello(self) -> dict[str, Any]:
        """Local runners have everything on before they start."""
        fenced = self._level == 1
        return {"supervised": False, "places": places_for_all() if fenced else [], "unshared": fenced}

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """A fresh runner in a fresh cage."""
        uid = _uid_of_its_own(self._count) if self._level < 2 and os.getuid() == 0 else 0
        if uid:
            for reached in (folder, *(rank_folder(folder, n) for n in range(self.ranks if self.ranks > 1 else 0))):
                _let_in(reached, uid)
        runner = _LocalRunner(folder, self._limits, self._level, self.ranks, place, uid)
        self._live.append(runner)
        return runner

    def close(self) -> None:
        """Every runner ended, every folder of ours removed."""
        self.warmer.close()
        for runner in self._live:
            runner.kill()
        remove_tree.remove(self._base)
        os.close(self._lock)


def _sweep_and_hold(mine: Path) -> int:
    """Hold a lock on our folder as long as we live, and remove folders whose judge was killed: nobody holds theirs."""
    for folder in mine.parent.glob("kb-*"):
        if folder == mine:
            continue
        with contextlib.suppress(OSError):
            fd = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree.remove(folder)
            finally:
                os.close(fd)
    fd = os.open(mine / "lock.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    (mine / "lock.new").rename(mine / "lock")  # nobody ever finds it unlocked while we live
    return fd


def _let_in(folder: Path, uid: int) -> None:
    """This launch's user gets through this folder of root's, and nobody else."""
    try:
        os.chown(folder, -1, uid)
        folder.chmod(0o710)
    except OSError:  # no such group in this user namespace
        folder.chmod(0o711)


def _uid_of_its_own(launch: int) -> int:
    """A user for one launch of this judge, whom no other judge on this machine has meanwhile."""
    own = guard.OWN_UIDS + guard.UIDS_OF_A_JUDGE * os.getpid() + launch % guard.UIDS_OF_A_JUDGE
    return own if all(_is_mapped(own, kind) for kind in ("uid", "gid")) else guard.CAGED_UID


def _is_mapped(number: int, kind: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        return any(int(first) <= number < int(first) + int(count) for first, _, count in map(str.split, file))
    return False


def places_for_all() -> list[str]:
    """Where a runner without a file system of its own could leave something for the next one."""
    found = {
        *guard.OPEN,
        os.path.expanduser("~"),
        eval_folder(),
        *interpreter_paths(),
        *filter(os.path.isdir, sys.path),
    }
    return sorted(found)


def _shared_memory() -> str:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()


def interpreter_paths() -> list[str]:
    """What a Python needs to start and to import what is installed: its prefixes, and what its links point through."""
    executable = sys.executable
    found = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    found |= {sys.prefix, sys.base_prefix}
    step = executable
    for _ in range(16):
        found.add(os.path.dirname(step) if not step.startswith(tuple(f"{p}/" for p in found)) else sys.prefix)
        if not os.path.islink(step):
            break
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
    system = [
        p
        for p in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt/rocm", "/nix/store")
        if os.path.lexists(p)
    ]
    wanted = sorted(found - {"/"}) + system
    kept: list[str] = []
    for path in sorted(set(wanted), key=lambda p: (p.count("/"), p)):
        if not any(path == k or (path.startswith(f"{k}/") and not os.path.islink(k)) for k in kept):
            kept.append(path)
    return kept


def toolkit_paths() -> list[str]:
    """Where the environment says that compilers for devices are."""
    found = {os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")}
    under = ("/usr/", "/opt/rocm/")
    return sorted(p for p in found if p.startswith("/") and os.path.isdir(p) and not f"{p}/".startswith(under))


def _built_beside(link: Path) -> str:
    """The folder of what was built for this launch, when there is one."""
    beside = link.with_name(link.name + SUFFIX)
    return str(beside) if beside.is_dir() else ""


def _environment(home: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in guard.KEPT_ENV if name in os.environ}
    path = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    return {**kept, "PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "USER": "runner"}


class _LocalRunner:
    """One launch on this machine."""

    def __init__(self, folder: Path, limits: Limits, level: int, ranks: int, place: Path | None, uid: int) -> None:
        self._folder, self._limits, self._level, self._ranks = folder, limits, level, ranks
        self._place, self._uid = place, uid
        self.furnished = level >= 2
        self._status: int | None = None
        self._reaped: set[int] = set()
        self._keeper: int | None = None
        self._killed, self._peak = False, 0
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
        _MAINS.add(self._main)
        # without a PID namespace a process that leaves its family comes to the judge, and has to be stopped there
        self._tree = _Tree(
            [p for p in (self._main, self._keeper) if p], self._main, orphans=None if self._keeper else _orphans
        )
        self._drain = _Drain(log_read, limits.log_bytes)
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
            for pid in (keeper, main):
                if pid:
                    _signal(pid, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, 0)
            raise CantStart(words.get("error", "the launcher said nothing"))
        return keeper, main

    def _spec(self, log_write: int, said_fd: int) -> dict[str, Any]:
        caged = self._level >= 2
        program, link = ("/eval", "/link") if caged else (eval_folder(), str(self._folder))
        limits = {
            "memory_bytes": self._limits.memory_bytes,
            "processes": self._limits.processes,
            "file_bytes": self._limits.file_bytes,
        }
        return {
            "level": self._level,
            "root": str(self._folder / "root"),
            "link": str(self._folder),
            "links": [
                *FILES,
                *([LENT] if (self._folder / LENT).exists() else ()),
                *(f"{rank_folder(Path(), n)}/{f}" for n in range(self._ranks if self._ranks > 1 else 0) for f in FILES),
            ],
            "ranks": self._ranks,
            "eval": eval_folder(),
            "built": _built_beside(self._folder),
            "binds": [*interpreter_paths(), *toolkit_paths()],
            "libraries": [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p.strip("/")],
            "own": [str(path) for path in (self.work, self._place) if path is not None],
            "uid": self._uid,
            "devices": guard.gpu_devices(),
            "limits": limits,
            "log_fd": log_write,
            "said_fd": said_fd,
            "argv": [sys.executable, "-I", "-B", program, "--runner", link],
            "env": _environment("/tmp")
            if caged
            else {**_environment(str(self.work)), **(UNSHARED if self._level else {})},
            "reached": [os.path.realpath(sys.executable), os.path.realpath(eval_folder()), sys.prefix],
        }

    def thaw(self) -> None:
        """Let every process of it go on."""
        self._tree.thaw()

    def freeze(self) -> None:
        """Every process of it is stopped when this returns."""
        self._tree.freeze(self._keeper)
        if not self._keeper:  # only this launch ran: whoever left its family meanwhile is its own
            for pid in _orphans():
                _LEFT.setdefault(pid, self._main)

    def core(self) -> int | None:
        """The core that it was last on."""
        return self._tree.core()

    def _own(self) -> list[int]:
        """Its processes, without those that another launch's left with the judge."""
        if self._keeper:
            return self._tree.known()
        roots = [self._main, *(p for p in _orphans() if _LEFT.get(p, self._main) == self._main)]
        return [*roots, *(below for root in roots for below in _descendants(root))]

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
            _MAINS.discard(pid)
            self._status = status
        return status

    def ended(self) -> str | None:
        """How it ended, in words for the person."""
        status = self._reap(self._main, os.WNOHANG)
        return None if status is None else _end_in_words(status)

    def out_of_memory(self) -> bool:
        """Whether it holds more memory than allowed, or was killed by the kernel rather than by the judge."""
        if self._status is not None:
            by_kernel = (
                os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGKILL and not self._killed
            )
            return by_kernel and self._peak > self._limits.memory_bytes // 2
        held = _resident(self._own(), self._limits.memory_bytes, self._tree.resident)
        self._peak = max(self._peak, held)
        return held > self._limits.memory_bytes

    def kill(self) -> None:
        """Nothing of it is left when this returns."""
        self._killed = True
        # once it is reaped its number may be somebody else's
        below = [] if self._keeper or self._main in self._reaped else _descendants(self._main)
        for pid in [p for p in (self._keeper, self._main) if p and p not in self._reaped] + below:
            _signal(pid, signal.SIGKILL)
        for mine in (self._main, self._keeper):
            if mine:
                self._reap(mine, 0)
        if not self._keeper:
            _end_orphans()
        self._tree.close()

    def log(self) -> str:
        """What it wrote to stdout and stderr, capped."""
        if self._text is None:
            self._text = self._drain.text()
        return self._text


_LEFT: dict[int, int] = {}  # orphans, and the first process of the launch that they came from
_MAINS: set[int] = set()  # the first processes of runners without a PID namespace, and processes of the judge's own


def own_process(pid: int) -> None:
    """This child of the judge is no orphan of a runner's: it is neither stopped nor ended as one."""
    _MAINS.add(pid)


def disown_process(pid: int) -> None:
    """It is gone, and its number may be an orphan's next."""
    _MAINS.discard(pid)


def _orphans() -> list[int]:
    """Children of the judge's that it never started. Those that have ended are let go: each would count as one of the
    processes that its user may have."""
    found = [p for p in _children(os.getpid()) if p not in _MAINS]
    for pid in tuple(found):
        with contextlib.suppress(ChildProcessError):
            if _gone(pid) and os.waitpid(pid, os.WNOHANG)[0]:
                found.remove(pid)
    for pid in _LEFT.keys() - set(found):
        del _LEFT[pid]
    return found


def _end_orphans() -> None:
    """Without a PID namespace orphans of a runner come to the judge (it is their subreaper): end them here."""
    for _ in range(200):
        left = _orphans()
        if not left:
            return
        for pid in left:
            for below in [*_descendants(pid), pid]:
                _signal(below, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _end_in_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"signal {signal.Signals(number).name}"
        except ValueError:
            return f"signal {number}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _all_of(fd: int, wait_s: float) -> str:
    parts: list[bytes] = []
    deadline = time.monotonic() + wait_s
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 4096)
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)
    return "error the launcher took too long\n"


# --------------------------------------------------------------------------------------------------------- doorbell


class Doorbell:
    """Runners as containers that the job script starts when it is asked to: see the protocol above."""

    bare = False
    container = False
    highest = 3

    def __init__(self, folder: Path, link: Path, limits: Limits, *, ranks: int = 1) -> None:
        self._folder, self._link, self._limits, self.ranks = folder, link, limits, ranks
        facts = _facts(folder / "facts")
        self.means = facts.get("container", "container")
        self.container = facts.get("exclusive") == "1"
        self.profiler, self.profiling = facts.get("profiler", ""), False
        self.image: Mapping[str, str] = {name: facts[name] for name in IMAGE_FACTS if facts.get(name)}
        self.notes: Sequence[str] = (
            (f"all that a runner may write: {facts['scratch']}",) if facts.get("scratch") else ()
        )
        self._count = 0
        self._live: list[_Contained] = []
        self.warmer = Warmer()
        try:
            self._ask = os.open(folder / "ask", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CantStart(f"the supervisor's FIFO can't be opened: {error}") from None

    def prepare(self) -> Path:
        """The folder of the next launch's link."""
        self._count += 1
        return self._link / str(self._count)

    def hello(self) -> dict[str, Any]:
        """The container is the outer part of the cage; limits and filter the runner puts on itself when it reads
        this."""
        limits = {
            "memory_bytes": self._limits.memory_bytes,
            "processes": self._limits.processes,
            "file_bytes": self._limits.file_bytes,
        }
        return {"supervised": True, "limits": limits, "inet": self.ranks > 1, "places": guard.OPEN}

    def start(self, folder: Path, place: Path | None = None) -> Runner:
        """Ask the script for the container of this link and wait until it has started."""
        number = int(folder.name)
        os.mkfifo(folder / "log", 0o666)
        (folder / "log").chmod(0o666)
        drain = os.open(folder / "log", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.say(f"{'prof' if self.profiling else 'run'} {number}")
        runner = _Contained(self, number, folder, drain, self._limits)
        self._live.append(runner)
        return runner

    def say(self, line: str) -> None:
        """One line into the FIFO: short, so it is written whole."""
        os.write(self._ask, line.encode("ascii") + b"\n")

    def file(self, name: str) -> Path:
        """A file of the protocol."""
        return self._folder / name

    def close(self) -> None:
        """Every runner ended; the script leaves its loop."""
        self.warmer.close()
        for runner in self._live:
            runner.kill()
        with contextlib.suppress(OSError):
            self.say("end")
        os.close(self._ask)


def _facts(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, found, value in (line.partition("=") for line in lines) if found}


class _Contained:
    """One launch in a container of the job script's."""

    furnished = False
    work: Path | None = None

    def __init__(self, bell: Doorbell, number: int, folder: Path, drain: int, limits: Limits) -> None:
        self._bell, self._number, self._folder, self._limits = bell, number, folder, limits
        self._killed, self._peak = False, 0
        self._drain = _Drain(drain, limits.log_bytes)
        self._text: str | None = None
        self._pid = self._awaited()
        self._tree = _Tree([self._pid], None, inner=True)

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

    def thaw(self) -> None:
        """Let every process of it go on."""
        self._tree.thaw()

    def freeze(self) -> None:
        """Every process of it is stopped when this returns."""
        self._tree.freeze(None)

    def core(self) -> int | None:
        """The core that it was last on."""
        return self._tree.core()

    def _status(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(self._bell.file(f"run.{self._number}.status").read_text())
        return None

    def ended(self) -> str | None:
        """How it ended, in words for the person."""
        status = self._status()
        if status is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            over = int(self._bell.file(f"run.{self._number}.over").read_text())
            return f"it wrote more than {over} MiB of files and was stopped"
        return _end_in_words(status - 128) if status > 128 else f"exit code {status}"

    def out_of_memory(self) -> bool:
        """Whether it holds more memory than allowed, or was killed by the kernel rather than by the judge."""
        status = self._status()
        if status is not None:
            return status == 128 + signal.SIGKILL and not self._killed and self._peak > self._limits.memory_bytes // 2
        held = _resident(self._tree.known(), self._limits.memory_bytes, self._tree.resident)
        self._peak = max(self._peak, held)
        return held > self._limits.memory_bytes

    def kill(self) -> None:
        """Asks the script and signals the tree itself; waits a moment for the script's word."""
        if self._killed:
            return
        self._killed = True
        if self._status() is None:
            members = self._tree.all()
            for pid in members:
                _signal(pid, signal.SIGKILL)
            self._bell.say(f"stop {self._number}")
            deadline = time.monotonic() + CALL_STOP_S
            while self._status() is None and not all(_gone(p) for p in members) and time.monotonic() < deadline:
                time.sleep(0.002)
        self._tree.close()

    def log(self) -> str:
        """What it wrote to stdout and stderr, capped; what the container said when it never came to run."""
        if self._text is None:
            self._text = self._drain.text()
            if not self._text:
                with contextlib.suppress(OSError):
                    self._text = (
                        self._bell.file(f"run.{self._number}.err").read_bytes()[:LOG_CAP].decode("utf-8", "replace")
                    )
        return self._text
