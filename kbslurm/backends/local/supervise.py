"""The supervisor of one local attempt: `python -I -S supervise.py ORDER FD`, a program of its own.

It leaves its parent at once, takes the claim (a loser ends there and then), runs the harness as a child, and stays
until nothing of what the harness started is left: it is the subreaper of the tree, so that orphans come to it and
"no children any more" is the whole truth. Then, and only then, it writes how it ended. It knows no name on disk:
the order brings them all. It stands between accepting and measuring, so it imports only what starts fast: os, not
pathlib; fork and exec, not subprocess; no dataclass.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH110, PTH119, PTH120, PTH123, PTH208
from __future__ import annotations

import os
import sys

if __name__ == "__main__" and os.fork():
    # The parent waits only for this exit; the child is detached.
    os._exit(0)

import ctypes
import errno
import json
import resource
import select
import signal
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILLING_S = 30.0
CLEARING_S = 5.0  # before it says how it ended
REST_S = 60.0  # afterwards; what is left even then goes with the attempt's folder
DEFAULT_AGAIN = ("SIGHUP", "SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGXFSZ")
PAGE = os.sysconf("SC_PAGE_SIZE")
# A kernel may lack these lists; then the parent of every process is read.
LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")


class Watch:
    """The state of the watched process tree."""

    def __init__(self, deadline: float) -> None:
        self.started = time.time()
        self.deadline = deadline
        self.harness = 0
        self.status: int | None = None
        self.peak_bytes = 0
        self.logged = 0
        self.told_to_stop = False
        self.why = ""
        self.reason = ""
        self.left = 0


def main(order_file: str, starting: int) -> int:
    """Claim, run, reap. The exit code isn't used: exit.json has the result.

    `starting` is the one inherited descriptor: its lock says that somebody may still claim. It is held until the
    claim is taken or lost, and no child of ours gets it.
    """
    os.set_inheritable(starting, False)
    order = json.loads(read(order_file))
    os.setsid()
    signals = listen()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if not take_claim(order):
        return 0
    os.close(starting)
    watch = Watch(time.monotonic() + order["time_limit_s"])
    if os.path.exists(order["cancelled"]):
        watch.why, watch.reason = "cancelled", "cancelled before it started"
    else:
        run(order, watch, signals)
    settle(order, watch)
    ring(order["doorbells"])
    clear(order, REST_S)
    return 0


def listen() -> int:
    """A descriptor that wakes us on every signal that we handle."""
    wake, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return wake


def take_claim(order: dict[str, Any]) -> bool:
    """Rename a filled folder to the claim, so that it appears together with its owner's record, or another one is
    there."""
    filled = f"{os.path.dirname(order['claim'])}/.claim-{os.urandom(4).hex()}"
    note = f"{filled}/{os.path.basename(order['owner'])}"
    os.mkdir(filled, 0o700)
    owner = {
        "pid": os.getpid(),
        "start": start_of(os.getpid()),
        "boot": order["boot"],
        "at": time.time(),
        "supervises": True,
    }
    write_synced(note, owner)
    try:
        os.rename(filled, order["claim"])
    except OSError as error:
        os.unlink(note)
        os.rmdir(filled)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def run(order: dict[str, Any], watch: Watch, signals: int) -> None:
    """Start the harness, watch its limits, and kill everything when it ends or exceeds one."""
    output, into = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(output, False)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.mkdir(order["work"], 0o700)
        if os.getuid() == 0:  # outside of namespaces root's runners are users of their own, who pass through here
            os.chmod(order["work"], 0o711)  # noqa: S103
    except OSError as error:
        watch.why, watch.reason = "no_report", f"can't make the folder for its runners: {error}"
        return
    watch.harness = start(order, into)
    os.close(into)
    ring(order["doorbells"])
    watch_over(order, watch, signals, output, log)
    kill_tree(watch, signals)
    copy_log(order, watch, output, log)


def start(order: dict[str, Any], into: int) -> int:
    """The harness's pid. It dies with us, has no descriptor but three, and no signal that we chose to ignore."""
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:
            signal.set_wakeup_fd(-1)
            for name in DEFAULT_AGAIN:
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(into, 1)
            os.dup2(into, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            os.chdir(order["scratch"])
            os.execve(sys.executable, [sys.executable, *order["argv"]], order["environment"])
    except OSError as error:
        os.write(into, f"the harness couldn't be started: {error}\n".encode())
    finally:
        os._exit(127)


def watch_over(order: dict[str, Any], watch: Watch, signals: int, output: int, log: int) -> None:
    """Wait until the harness has ended or must be killed."""
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
            watch.why, watch.reason = "timeout", f"it hit its time limit of {order['time_limit_s']:g} s"
            return
        if now >= look_at:
            look_at = now + look_every_s
            used = memory_below(watch.harness, order["memory_bytes"])
            watch.peak_bytes = max(watch.peak_bytes, used)
            if used > order["memory_bytes"]:
                watch.why = "memory"
                watch.reason = f"it used {used >> 20} MiB, over its memory limit of {order['memory_bytes'] >> 20} MiB"
                return


def note_stop(order: dict[str, Any], watch: Watch) -> None:
    """A cancel sets its mark before it signals; any other SIGTERM comes from this machine."""
    if os.path.exists(order["cancelled"]):
        watch.why, watch.reason = "cancelled", "cancelled while it ran"
    else:
        watch.why, watch.reason = "no_report", "this machine told its supervisor to stop"


def reap(watch: Watch) -> bool:
    """Reap every dead child, the harness or an adopted orphan. False: there are no children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == watch.harness:
            watch.status = os.waitstatus_to_exitcode(status)


def has_ended(watch: Watch) -> bool:
    reap(watch)
    return watch.status is not None


def kill_tree(watch: Watch, signals: int) -> None:
    """Kill until no child is left. All are stopped before any is killed, so that none can escape by forking."""
    poller = select.poll()
    poller.register(signals, select.POLLIN)
    give_up = time.monotonic() + KILLING_S
    while reap(watch):
        if time.monotonic() > give_up:
            watch.left = len(descendants(os.getpid()))
            return
        stopped: set[int] = set()
        while fresh := set(descendants(os.getpid())) - stopped:
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


def descendants(root: int) -> list[int]:
    """Every process below this one, parents first."""
    found: list[int] = []
    queue = [root]
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
            found += map(int, read(f"/proc/{pid}/task/{task}/children").split())
        except OSError:
            continue
    return found


def numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def memory_below(harness: int, limit: int) -> int:
    """The memory of everything except the harness itself: the limit is the submission's, not the judge's.

    Shared pages are counted once, with a second reading when it matters.
    """
    tree = [pid for pid in descendants(os.getpid()) if pid != harness]
    rough = sum(resident(pid) for pid in tree)
    return rough if rough <= limit else sum(proportional(pid) for pid in tree)


def resident(pid: int) -> int:
    try:
        return int(read(f"/proc/{pid}/statm").split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    try:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        # A process that made itself unreadable is counted in full.
        pass
    return resident(pid)


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the program's name, which may contain anything."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def start_of(pid: int) -> int:
    return int(stat_fields(pid)[19])


def parent_of(pid: int) -> int:
    try:
        return int(stat_fields(pid)[1])
    except OSError:
        return 0


def copy_log(order: dict[str, Any], watch: Watch, output: int, log: int) -> bool:
    """Move output to the log, dropping what exceeds the cap. False: there will be no more."""
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
    """Remove everything that another job could learn from, and record how it ended."""
    for path in (order["exit"], order["report"]):
        unlock(os.path.dirname(path))
    try:
        clear(order, CLEARING_S)
    except Exception:  # noqa: BLE001, S110 - whatever a job left, how it ended is told
        pass
    report = report_at(order["report"], order["report_cap"])
    ending, reason = watch.why, watch.reason
    if ending != "cancelled" and report == "there":
        ending, reason = "reported", ""
    elif not ending and report == "unfit":
        ending, reason = "bad_report", "its report isn't a regular file of a valid size"
    elif not ending:
        ending, reason = "no_report", f"the harness ended {in_words(watch.status)} and left no report"
    if watch.left:
        reason = f"{reason}; {watch.left} of its processes couldn't be killed".lstrip("; ")
    write_ending(
        order["exit"],
        {
            "ending": ending,
            "exit_code": watch.status,
            "checking": stands(order["checking"]),
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


def stands(path: str) -> bool:
    """Whether the judge's mark says that it was looking at an answer. Whatever else lies there says nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and os.read(fd, 1) == b"1"
    except OSError:
        return False
    finally:
        os.close(fd)


def in_words(status: int | None) -> str:
    if status is None:
        return "without a status"
    return f"with exit code {status}" if status >= 0 else f"by signal {-status}"


def clear(order: dict[str, Any], within_s: float) -> None:
    """Remove the manifest, the key and what is in the working folders, as far as it goes in this time."""
    give_up = time.monotonic() + within_s
    for path in order["secrets"]:
        quietly(os.unlink, path)
    remove(order["work"], give_up)  # memory before the disk
    empty(order["scratch"], give_up)


def remove(folder: str, give_up: float) -> bool:
    """This folder with all in it, as far as it goes until then: whether it is gone."""
    empty(folder, give_up)
    quietly(os.rmdir, folder)
    return not os.path.lexists(folder)


def empty(place: str, give_up: float) -> None:
    """Remove what is in this folder. Each folder in it goes once the folders in that one have moved up to the top:
    however deep they nest and however long their paths are, none needs more than a name and a descriptor."""
    try:
        top = opened(place)
    except OSError:
        return
    mark, moved = f".kb-{os.urandom(8).hex()}-", 0
    try:
        waiting = without_files(top, give_up)
        while waiting and time.monotonic() < give_up:
            folder = waiting.pop()
            try:
                fd = opened(folder, top)
            except OSError:
                continue
            for name in without_files(fd, give_up):
                moved += 1
                unlock(name, fd)  # one that can't be written to can't be moved
                try:
                    os.rename(name, f"{mark}{moved}", src_dir_fd=fd, dst_dir_fd=top)
                except OSError:
                    continue
                waiting.append(f"{mark}{moved}")
            os.close(fd)
            quietly(lambda name: os.rmdir(name, dir_fd=top), folder)
    finally:
        os.close(top)


def without_files(fd: int, give_up: float) -> list[str]:
    """Remove everything in this folder but the folders in it that aren't empty: which these are."""
    folders: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if time.monotonic() > give_up:
                break
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                (os.rmdir if is_folder else os.unlink)(entry.name, dir_fd=fd)
            except OSError:
                folders += [entry.name] if is_folder else []
    return folders


def opened(folder: str, above: int | None = None) -> int:
    """A descriptor of this folder, whatever the job did to its mode. Links are never followed."""
    found = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        quietly(lambda same: os.chmod(same, 0o700), f"/proc/self/fd/{found}")  # fchmod needs a descriptor with rights
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)


def unlock(folder: str, above: int | None = None) -> None:
    """Restore our access to this folder."""
    try:
        os.close(opened(folder, above))
    except OSError:
        pass


def quietly(act: Callable[[str], None], path: str) -> None:
    try:
        act(path)
    except OSError:
        pass


def write_ending(path: str, facts: dict[str, Any]) -> None:
    fresh = f"{os.path.dirname(path)}/.exit-{os.urandom(4).hex()}"
    write_synced(fresh, facts)
    os.rename(fresh, path)


def write_synced(path: str, facts: dict[str, Any]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(facts, sort_keys=True).encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def ring(doorbells: str) -> None:
    """Ring every listener's bell; only a hint. A bell without a listener belongs to a dead process and is removed."""
    try:
        bells = [name for name in os.listdir(doorbells) if not name.startswith(".")]
    except OSError:
        return
    for name in bells:
        bell = f"{doorbells}/{name}"
        try:
            fd = os.open(bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ENXIO:
                quietly(os.unlink, bell)
            continue
        try:
            os.write(fd, b"!")
        except OSError:
            # Full: it has been rung for a while without being read.
            pass
        finally:
            os.close(fd)


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2])))
