"""The supervisor of one local attempt: `python -I -S supervise.py ORDER FD`, a program of its own.

It leaves its parent at once, takes the claim (a loser ends there and then), runs the harness as a child, and stays
until nothing of what the harness started is left: it is the subreaper of the tree, so that orphans come to it and
"no children any more" is the whole truth. Then, and only then, it writes how it ended. It knows no name on disk:
the order brings them all. Standard library only, and little of it: it stands between accepting and measuring.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and os.fork():
    # The parent waits for this exit only; the child belongs to nobody.
    os._exit(0)

import ctypes
import errno
import json
import resource
import select
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILLING_S = 30.0
PAGE = os.sysconf("SC_PAGE_SIZE")
# A kernel may lack these lists; then every process is asked for its parent.
LISTS_CHILDREN = Path("/proc/thread-self/children").exists()


@dataclass
class Watch:
    """What is known of the tree while it is watched over."""

    started: float
    deadline: float
    harness: subprocess.Popen[bytes] | None = None
    status: int | None = None
    peak_bytes: int = 0
    logged: int = 0
    told_to_stop: bool = False
    why: str = ""
    reason: str = ""
    left: list[int] = field(default_factory=list)


def main(order_file: str, starting: int) -> int:
    """Claim, run, bury. The exit code is nobody's: exit.json tells.

    `starting` is the one inherited descriptor: its lock says that somebody may still claim. It is held until the
    claim is taken or lost, and no child of ours gets it.
    """
    os.set_inheritable(starting, False)
    order = json.loads(Path(order_file).read_bytes())
    os.setsid()
    signals = listen()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if not take_claim(order):
        return 0
    os.close(starting)
    watch = Watch(started=time.time(), deadline=time.monotonic() + order["time_limit_s"])
    if Path(order["cancelled"]).exists():
        watch.why, watch.reason = "cancelled", "cancelled before it started"
    else:
        run(order, watch, signals)
    settle(order, watch)
    ring(order["doorbell"])
    return 0


def listen() -> int:
    """A descriptor that wakes us on every signal that we care for."""
    wake, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return wake


def take_claim(order: dict[str, Any]) -> bool:
    """Rename a filled folder to the claim: it stands there with its owner's name in it, or somebody else's does."""
    filled = Path(order["claim"]).with_name(f".claim-{os.urandom(4).hex()}")
    filled.mkdir(0o700)
    owner = {
        "pid": os.getpid(),
        "start": start_of(os.getpid()),
        "boot": order["boot"],
        "at": time.time(),
        "supervises": True,
    }
    write_synced(filled / Path(order["owner"]).name, owner)
    try:
        filled.rename(order["claim"])
    except OSError as error:
        (filled / Path(order["owner"]).name).unlink()
        filled.rmdir()
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def run(order: dict[str, Any], watch: Watch, signals: int) -> None:
    """Start the harness, watch its limits, and kill all of it when it ends or breaks one."""
    output, into = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    supervisor = os.getpid()

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        watch.harness = subprocess.Popen(
            order["argv"],
            cwd=order["scratch"],
            env=order["environment"],
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=into,
            preexec_fn=in_child,  # this program has one thread
        )
    except OSError as error:
        watch.why, watch.reason = "no_report", f"the harness couldn't be started: {error.strerror or error}"
        return
    os.close(into)
    ring(order["doorbell"])
    watch_over(order, watch, signals, output, log)
    kill_tree(watch, signals)
    copy_log(order, watch, output, log)


def watch_over(order: dict[str, Any], watch: Watch, signals: int, output: int, log: int) -> None:
    """Until the harness has ended, or must."""
    poller = select.poll()
    poller.register(signals, select.POLLIN)
    poller.register(output, select.POLLIN)
    look_every_s = order["look_every_s"]
    look_at = time.monotonic()
    while True:
        now = time.monotonic()
        ready = dict(poller.poll(max(0.0, min(look_at, watch.deadline) - now) * 1000 + 1))
        if output in ready and not copy_log(order, watch, output, log):
            poller.unregister(output)
        if signals in ready:
            watch.told_to_stop |= signal.SIGTERM in os.read(signals, 512)
        if has_ended(watch):
            return
        now = time.monotonic()
        if watch.told_to_stop:
            note_stop(order, watch)
            return
        if now >= watch.deadline:
            watch.why, watch.reason = "timeout", f"it ran into its time limit of {order['time_limit_s']:g} s"
            return
        if now >= look_at:
            look_at = now + look_every_s
            used = memory_of_tree(order["memory_bytes"])
            watch.peak_bytes = max(watch.peak_bytes, used)
            if used > order["memory_bytes"]:
                watch.why = "memory"
                watch.reason = f"it used {used >> 20} MiB, over its memory limit of {order['memory_bytes'] >> 20} MiB"
                return


def note_stop(order: dict[str, Any], watch: Watch) -> None:
    """A cancel leaves its mark before it signals; any other SIGTERM is this machine's doing."""
    if Path(order["cancelled"]).exists():
        watch.why, watch.reason = "cancelled", "cancelled while it ran"
    else:
        watch.why, watch.reason = "no_report", "this machine told its supervisor to stop"


def reap(watch: Watch) -> bool:
    """Bury every child that is dead, the harness or an orphan that came to us. False: there are no children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if watch.harness is not None and pid == watch.harness.pid:
            watch.status = watch.harness.returncode = os.waitstatus_to_exitcode(status)


def has_ended(watch: Watch) -> bool:
    reap(watch)
    return watch.status is not None


def kill_tree(watch: Watch, signals: int) -> None:
    """Kill until no child is left. All are stopped before any is killed, so that none can outrun us by forking."""
    poller = select.poll()
    poller.register(signals, select.POLLIN)
    give_up = time.monotonic() + KILLING_S
    while reap(watch):
        if time.monotonic() > give_up:
            watch.left = descendants()
            return
        stopped: set[int] = set()
        while fresh := set(descendants()) - stopped:
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            stopped |= fresh
        for pid in stopped:
            send(pid, signal.SIGKILL)
        if poller.poll(10):
            os.read(signals, 512)


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def descendants() -> list[int]:
    """Every process below this one, parents first."""
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        children = children_of(queue.pop())
        found += children
        queue += children
    return found


def children_of(pid: int) -> list[int]:
    if not LISTS_CHILDREN:
        return [other for other in numbers("/proc") if parent_of(other) == pid]
    found: list[int] = []
    for task in numbers(f"/proc/{pid}/task"):
        try:
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
        except OSError:
            continue
    return found


def numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208  # it is asked often
    except OSError:
        return []


def memory_of_tree(limit: int) -> int:
    """What the tree holds in memory. Pages that processes share are counted once, by asking again when it matters."""
    tree = descendants()
    rough = sum(resident(pid) for pid in tree)
    return rough if rough <= limit else sum(proportional(pid) for pid in tree)


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        # A process that made itself unreadable is counted in full.
        pass
    return resident(pid)


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the program's name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def start_of(pid: int) -> int:
    return int(stat_fields(pid)[19])


def parent_of(pid: int) -> int:
    try:
        return int(stat_fields(pid)[1])
    except OSError:
        return 0


def copy_log(order: dict[str, Any], watch: Watch, output: int, log: int) -> bool:
    """Move what was printed to the log, and drop what is over the cap. False: nothing more will come."""
    try:
        for _ in range(16):
            data = os.read(output, 65536)
            if not data:
                return False
            room = max(0, order["log_bytes"] - watch.logged)
            watch.logged += len(data)
            if room:
                os.write(log, data[:room])
    except BlockingIOError:
        pass
    except OSError:
        # A log that can't be written (a full disk) costs the log, never the attempt.
        watch.logged = order["log_bytes"]
    return True


def settle(order: dict[str, Any], watch: Watch) -> None:
    """Say how it ended, for good."""
    report = report_at(order["report"], order["report_cap"])
    ending, reason = watch.why, watch.reason
    if ending != "cancelled" and report == "there":
        ending, reason = "reported", ""
    elif not ending and report == "unfit":
        ending, reason = "bad_report", "what it left as its report isn't a plain file of a fit size"
    elif not ending:
        ending, reason = "no_report", f"the harness ended {in_words(watch.status)} and left no report"
    if watch.left:
        reason = f"{reason}; {len(watch.left)} processes of it wouldn't die".lstrip("; ")
    write_ending(
        order["exit"],
        {
            "ending": ending,
            "exit_code": watch.status,
            "reason": reason,
            "started_at": watch.started,
            "ended_at": time.time(),
            "peak_bytes": watch.peak_bytes,
        },
    )


def report_at(path: str, cap: int) -> str:
    try:
        looks = os.lstat(path)
    except OSError:
        return "missing"
    return "there" if stat.S_ISREG(looks.st_mode) and looks.st_size <= cap else "unfit"


def in_words(status: int | None) -> str:
    if status is None:
        return "without a status"
    return f"with exit code {status}" if status >= 0 else f"by signal {-status}"


def write_ending(path: str, facts: dict[str, Any]) -> None:
    fresh = Path(path).with_name(f".exit-{os.urandom(4).hex()}")
    write_synced(fresh, facts)
    fresh.rename(path)


def write_synced(path: Path, facts: dict[str, Any]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(facts, sort_keys=True).encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def ring(doorbell: str) -> None:
    """Say "look" to whoever listens. Nobody there, or a full pipe, is fine: it is only a hint."""
    try:
        fd = os.open(doorbell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"!")
    except OSError:
        pass
    finally:
        os.close(fd)


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2])))
