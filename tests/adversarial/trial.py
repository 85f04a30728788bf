"""One file of the corpus before the real harness, and everything that must hold afterwards, as a list of what doesn't.

The harness is a process in a session of its own, as the backends start it, with secrets in its environment, its
manifest and its key. Whoever outlives it comes to this process and is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbslurm_eval.cage import kernel, users
from kbslurm_eval.shared import timing, wire
from tests.adversarial.corpus import HIDDEN, PROBLEMS, SMALL, Entry

EVAL = Path(__file__).resolve().parents[2] / "eval"
SECRET = "NOBODY-MAY-SEE-THIS"
PASSWORD = "postgres://kbslurm:NEITHER-THIS@localhost/kbslurm"
MARKER, MARKED_KEY = "kb-marker", 0x6B624D4B
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", str(Path.home()))
TOTAL_S, GRACE_S, AMPLE_S = 200.0, 60.0, 300.0
# What the harness says of the clock, and of nobody
NOTED = {timing.UNRESOLVED, timing.ONE_LAUNCH}
QUICK, BRIEF = wire.Budget(launches=1, calls=4), wire.Budget(launches=1, calls=6)
CLOSE = wire.Budget(launches=5, calls=12)
SUSPICIOUS, UNFAIR = 0.7, 0.95


@dataclass(kw_only=True)
class Trial:
    """What came of one file. It holds when `faults` is empty."""

    name: str
    group: str
    size: int
    level: str
    verdict: str = ""
    reason: str = ""
    ratio: float | None = None
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    too_fast: str = ""  # the fault that only the clock says


def tried(entry: Entry, *, level: int, size: int | None = None, budget: wire.Budget = QUICK) -> Trial:
    """Judge it at this level and size, and look at what it left."""
    size = entry.size or size or SMALL[entry.problem]
    trial = Trial(name=entry.name, group=entry.group, size=size, level=str(level))
    began = time.monotonic()
    told = manifest(entry, size, budget)
    key = secrets.token_bytes(32)
    before = _marks()
    with _orphans_counted(trial):
        report, folder = _judged(told, key, level, trial)
    trial.faults += sorted(_marks() - before)
    try:
        if report is not None:
            judged(entry, told, report, key, trial, level)
            if _is_suspicious(trial) and budget not in (BRIEF, CLOSE):
                _look_closer(entry, level, size, trial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trial.took_s = time.monotonic() - began
    return trial


def _is_suspicious(trial: Trial) -> bool:
    return trial.ratio is not None and trial.ratio < SUSPICIOUS


def _look_closer(entry: Entry, level: int, size: int, trial: Trial) -> None:
    """A few calls on a busy machine say little: a file that seems too fast is measured again, as briefly, then for
    longer, and once more where it still does: one interval in forty lies below the truth, more when the machine is
    busy, and a cheat is fast each time."""
    again = tried(entry, level=level, size=size, budget=BRIEF)
    if _is_suspicious(again):
        trial.faults += again.faults
        again = tried(entry, level=level, size=size, budget=CLOSE)
    if again.too_fast:
        again.faults.remove(again.too_fast)
        once_more = tried(entry, level=level, size=size, budget=CLOSE)
        again.faults += once_more.faults
        again.ratio = once_more.ratio
    trial.faults += again.faults
    trial.ratio = again.ratio


def manifest(entry: Entry, size: int, budget: wire.Budget) -> wire.Manifest:
    """A cheat is timed beside its honest twin where it may pass. In a quick look ranked and hidden cases are left out
    where a file doesn't aim at them: they are the same calls with other seeds."""
    paired = not entry.honest and "passed" in entry.verdicts
    in_full = not entry.honest and (entry.all_phases or budget.launches > 1)
    hangs = entry.patience_s is not None and "timeout" in entry.verdicts
    # However busy this machine is, only who hangs may reach a limit.
    phase_s = entry.patience_s if hangs and entry.patience_s is not None else AMPLE_S
    large = bool(entry.needs)  # compiled headers of a large library alone are over 32 MiB, and a minute's work
    return wire.Manifest(
        version=wire.WIRE_VERSION,
        token="t0ken",
        attempt=1,
        nonce=secrets.token_hex(16),
        mode="leaderboard" if in_full else "benchmark",
        problem=entry.problem,
        problem_digest="d" * 64,
        lang="py",
        gpu="cpu",
        files={"reference.py": PROBLEMS[entry.problem]},
        runner_files=[],
        source=entry.source,
        tests=[{"n": 40, "seed": 1}, {"n": 0 if entry.problem == "sorting" else 3, "seed": 2}],
        benchmarks=[{"n": size, "seed": 7}],
        hidden=[HIDDEN],
        secret_seed=SECRET,
        ranking_by="geom",
        limits=wire.Limits(
            test_s=phase_s,
            benchmark_s=60.0 if hangs else AMPLE_S,
            ranked_s=60.0 if hangs else AMPLE_S,
            total_s=TOTAL_S if hangs else 4 * AMPLE_S,
            memory_bytes=1 << 30,
            processes=16 if entry.patience_s else 64,
            file_bytes=32 << 20,
        )
        if not large
        else wire.Limits(test_s=AMPLE_S, benchmark_s=AMPLE_S, ranked_s=AMPLE_S, total_s=4 * AMPLE_S),
        budget=budget,
        config={"baseline": entry.twin} if paired else {},
    )


# ------------------------------------------------------------------------------------------------------ the harness run


def _judged(told: wire.Manifest, key: bytes, level: int, trial: Trial) -> tuple[wire.Report | None, Path]:
    folder = Path(tempfile.mkdtemp(prefix="kbtry-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    folder.chmod(0o711)  # below level 2 a runner started by root is another user, on its way to its own folder
    work = folder / "work"
    work.mkdir(mode=0o711)
    (folder / "manifest.json").write_text(wire.dumps(told))
    (folder / "manifest.json").chmod(0o400)
    (folder / "key").write_bytes(key)
    (folder / "key").chmod(0o400)
    argv = [sys.executable, "-I", str(EVAL), str(folder / "manifest.json"), "--key", str(folder / "key")]
    argv += ["--out", str(folder / "out"), "--work", str(work)]
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "DATABASE_URL": PASSWORD, "KBSLURM_EVAL_LEVEL": str(level)}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=told.limits.total_s + GRACE_S, env=env, check=False,
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        trial.faults.append("the harness hung past its limit")
        return None, folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if left := sorted(str(path) for path in work.rglob("*")):
        trial.faults.append(f"it left {left[0]} and {len(left) - 1} more in the folder of the links")
    strange = {path.name for path in folder.iterdir()} - {"manifest.json", "key", "out", "work"}
    strange |= {path.name for path in (folder / "out").glob("*")} - {"report.json", "heartbeat.json"}
    if strange:
        trial.faults.append(f"it left {min(strange)} beside the attempt's files")
    if done.returncode != 0 or not (folder / "out" / "report.json").exists():
        trial.faults.append(f"no report: exit code {done.returncode}, {done.stderr[-500:]}")
        return None, folder
    try:
        return wire.unseal((folder / "out" / "report.json").read_bytes(), key), folder
    except wire.WireError as error:
        trial.faults.append(f"the report can't be read: {error}")
        return None, folder


@contextlib.contextmanager
def _orphans_counted(trial: Trial) -> Iterator[None]:
    """Whoever is left of what is started inside comes to this process: told as a fault, and ended."""
    before = set(_children())
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 0)
        # what is dead already was killed with the harness's last breath and only waits for its parent; on a busy
        # machine it may have to wait for a core until it can die of the signal that it has
        for pid in set(_children()) - before:
            state = _state(pid)
            if state not in "ZX" and not _is_dying(pid):
                trial.faults.append(f"process {pid} ({state}) outlived the run")
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def _state(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    return "X"


def _is_dying(pid: int) -> bool:
    """Whether SIGKILL is on its way to it: nothing of its own runs any more."""
    with contextlib.suppress(OSError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) >> (signal.SIGKILL - 1) & 1:
                return True
    return False


def _marks() -> set[str]:
    """What bears the corpus's marker, or belongs to the user of the cages, where everybody can leave something."""
    found = set()
    for place in {os.path.realpath(p) for p in PLACES}:
        with contextlib.suppress(OSError), os.scandir(place) as listed:
            for file in listed:
                with contextlib.suppress(OSError):
                    if MARKER in file.name or _is_caged(file.stat(follow_symlinks=False).st_uid):
                        found.add(f"it left {file.path}")
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                if int(line.split()[0]) == MARKED_KEY:
                    found.add(f"it left System V {kind} {line.split()[1]}")
    return found


def _is_caged(uid: int) -> bool:
    return os.getuid() == 0 and (uid == users.CAGED_UID or uid >= users.OWN_UIDS)


# ------------------------------------------------------------------------------------------------------- what must hold


def judged(entry: Entry, told: wire.Manifest, report: wire.Report, key: bytes, trial: Trial, level: int) -> None:
    """Everything that must hold of this report, whoever ran it."""
    trial.verdict, trial.reason = report.verdict, report.reason
    faults = trial.faults
    if report.isolation.level < level:
        faults.append(f"isolation level {report.isolation.level} instead of {level}: {report.isolation.notes}")
    if report.verdict not in entry.expected(level):
        faults.append(f"{report.verdict} ({report.reason}) where {' or '.join(entry.expected(level))} is right")
    if entry.honest and not set(report.flags) <= NOTED:
        faults.append(f"flagged {', '.join(report.flags)}")
    faults += _leaks(entry, told, report, key, level)
    faults += _unsightly(report)
    if report.verdict == "passed" and not entry.honest:
        trial.ratio = _ratio(report)
        faults += _unfair(entry, told, report, trial)


def _ratio(report: wire.Report) -> float | None:
    if not report.benchmarks:
        return None  # it ended with the tests
    timed = report.benchmarks[-1]
    return timed.median_ns / timed.baseline_ns if timed.median_ns and timed.baseline_ns else None


def _unfair(entry: Entry, told: wire.Manifest, report: wire.Report, trial: Trial) -> list[str]:
    """Faster than the same work done honestly, by more than noise; or than it can be at all."""
    found: list[str] = []
    ratio = trial.ratio
    if report.mode == "test":
        return found
    if report.score_s is None or report.interval_s is None or report.interval_s[0] <= 0:
        found.append("passed without a score and an interval above nothing")
    elif report.score_s < 0.7 * entry.works_s:
        found.append(f"{report.score_s:.6f} s where each call takes {entry.works_s} s")
    if not told.config:
        return found  # it has no twin beside it here: that is another floor's
    if ratio is None:
        found.append("passed without having been timed beside its twin")
    elif told.budget.launches >= CLOSE.launches:
        timed = report.benchmarks[-1]
        if timed.high_ns is not None and timed.baseline_ns and timed.high_ns / timed.baseline_ns < UNFAIR:
            trial.too_fast = f"unfairly fast: {ratio:.2f} of what its honest twin takes"
            found.append(trial.too_fast)
    return found


def _told_to_competitors(report: wire.Report) -> str:
    """Every word of it that a competitor may come to see."""
    kept: Mapping[str, Any] = dataclasses.asdict(
        dataclasses.replace(report, secret_log="", token="", nonce="", problem_digest="", harness_digest="", host={})
    )
    return json.dumps(kept, ensure_ascii=False)


def _leaks(entry: Entry, told: wire.Manifest, report: wire.Report, key: bytes, level: int) -> list[str]:
    found = []
    public = _told_to_competitors(report)
    everything = f"{public}\n{report.secret_log}"
    hidden = {
        "the key": key.hex(),
        "the secret seed": SECRET,
        "the attempt's nonce": told.nonce,
        "a password": PASSWORD,
    }
    for what, word in {**hidden, "the problem's text": "sealed-problem: nothing"}.items():
        if word in everything:
            found.append(f"{what} stands in a log or a reason")
    texts = [report.reason, report.log, *(t.message + t.spec for t in report.tests)]
    texts += [b.message + b.spec for b in report.benchmarks]
    for name, value in HIDDEN.items():
        if any(re.search(rf"(?<![\d.]){value}\b", text) for text in texts):
            found.append(f"the hidden case's {name} stands in a log or a reason")
    found += [f"{word!r} stands in a log or a reason" for word in entry.unheard(level) if word in everything]
    return found


def _unsightly(report: wire.Report) -> list[str]:
    found = []
    texts = {"the reason": report.reason, **{f"test {t.index}'s message": t.message for t in report.tests}}
    texts |= {f"benchmark {b.index}'s message": b.message for b in report.benchmarks}
    for what, text in texts.items():
        if len(text.splitlines()) > 1 or len(text) > 4_000 or not all(c.isprintable() for c in text):
            found.append(f"{what} isn't one line of printable text")
    for what, text in (("the log", report.log), ("the secret log", report.secret_log)):
        if len(text) > wire.LOG_CAP or not all(c in "\n\t" or c.isprintable() for c in text):
            found.append(f"{what} is over 64 KiB or has control characters in it")
    return found
