"""The cage: what keeps a runner from everything else, put on by a short-lived launcher before the runner's Python
starts.

    judge ── launcher ── unshare(user, mount, pid, ipc, net, uts) ──┬─ keeper   pid 1 of the new namespace; dies with
    the judge
                                                                    └─ runner   mounts, limits, seccomp, exec
Keeper and runner are the judge's own children (CLONE_PARENT), so it waits for them and stops them itself; when the
judge dies, the keeper does, and the kernel ends everything in that namespace. Levels as in the design: 0 a separate
process, 1 + seccomp, limits and a judge that can't be looked into, 2 + namespaces and a read-only root of its own, 3
+ a container with a whole device and pinned cores. The level is what a runner found from inside before it had seen
the submission.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import struct
import sys
import time

from kbslurm_eval.cage import landlock
from kbslurm_eval.cage.kernel import (
    ALL_NEW,
    CLONE_PARENT,
    IFF_UP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    SIG_IGN,
    SIGCHLD,
    SIGKILL,
    SIOCGIFFLAGS,
    SIOCSIFFLAGS,
    CageError,
    libc,
    libc_call,
    prctl,
)
from kbslurm_eval.cage.limits import SPARED, set_limits, set_oom_score
from kbslurm_eval.cage.mounts import enter_root, make_root
from kbslurm_eval.cage.places import CPU_SHARE, DEVICES, ETC, ETC_BELOW
from kbslurm_eval.cage.syscall_filter import put_on_seccomp, seccomp_filter
from kbslurm_eval.cage.users import CAGED_UID, INNER_UID, drop_user, map_ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def launch() -> int:
    """The program of `--jail`: reads one JSON line from stdin, starts keeper and runner, says who they are, and
    ends."""
    spec = json.loads(sys.stdin.buffer.readline())
    said = int(spec["said_fd"])
    try:
        _launch(spec, said)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the judge is told in one line
        with contextlib.suppress(OSError):
            os.write(said, _told(error))
        return 1
    os._exit(0)  # Python's own end would take some milliseconds


def _told(error: BaseException) -> bytes:
    text = error.strerror or error if isinstance(error, CageError) else f"{type(error).__name__}: {error}"
    return f"error {text}".replace("\n", " ").encode()[:2000] + b"\n"


def _launch(spec: dict[str, Any], said: int) -> None:
    caged = spec["level"] >= 2
    root, me = os.getuid() == 0, os.getpid()
    if caged:
        _own_namespaces(root, spec["uid"] or CAGED_UID)
        if spec["inet"]:
            _loopback_up()
        make_root(spec)
        keeper = _clone()
        if keeper == 0:
            _keep(said, me, spec["judge"])
        os.write(said, f"keeper {keeper}\n".encode())
    runner = _clone()
    if runner == 0:
        try:
            _outlive(me)
            _become_runner(spec, caged, root)
        except BaseException as error:  # noqa: BLE001 - the process ends here whatever happened
            line = _told(error)
            for fd in (said, 3):  # it is at 3 once the rest is closed
                with contextlib.suppress(OSError):
                    os.write(fd, line)
                    break
        finally:
            os._exit(127)
    os.write(said, f"runner {runner}\n".encode())


def _clone() -> int:
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    pid = int(libc.syscall(ctypes.c_long(number), ctypes.c_long(CLONE_PARENT | SIGCHLD), *[ctypes.c_long(0)] * 4))
    if pid < 0:
        code = ctypes.get_errno()
        raise CageError(code, f"clone: {os.strerror(code)}")
    return pid


def _outlive(launcher: int) -> None:
    """Wait until our parent isn't the launcher any more. Older gVisors ignore CLONE_PARENT: there we become the judge's
    child when the launcher ends, which the parent-death signal mustn't take for the judge's end."""
    while _parent() == launcher:
        time.sleep(0.001)


def _parent() -> int:
    """This process's parent, numbered as /proc does, also from a PID namespace below; 0 if that can't be known."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _die_with(judge: int) -> None:
    """The kernel ends this process when its parent ends. One that has ended already, it says nothing of."""
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if _parent() not in (0, judge):
        os._exit(0)


def _own_namespaces(root: bool, launch_uid: int) -> None:
    uid, gid, me = os.getuid(), os.getgid(), os.getpid()
    ready, go = os.pipe()
    told, tell = os.pipe()
    mapper = os.fork() if root else -1
    if mapper == 0:
        os.close(go)
        os.close(told)
        os.read(ready, 1)
        done = map_ids(me, *[f"0 0 1\n{INNER_UID} {launch_uid} 1\n"] * 2)
        os.write(tell, b"y" if done else b"n")
        os._exit(0)
    libc_call("unshare", ALL_NEW)
    mapped = False
    if root:
        os.write(go, b"x")
        mapped = os.read(told, 1) == b"y"
        os.waitpid(mapper, 0)
    if not mapped and not map_ids(me, f"{INNER_UID} {uid} 1\n", f"{INNER_UID} {gid} 1\n"):
        raise CageError("no user can be mapped into a namespace of its own")
    for fd in (ready, go, told, tell):
        os.close(fd)


def _loopback_up() -> None:
    """In a fresh network namespace even loopback is down."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        flags = struct.unpack_from("<H", fcntl.ioctl(asked, SIOCGIFFLAGS, struct.pack("<16s24x", b"lo")), 16)[0]
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("<16sH22x", b"lo", flags | IFF_UP))


def _keep(said: int, launcher: int, judge: int) -> None:
    """Pid 1 of the namespace: holds nothing, reaps orphans, and dies with the judge; then the kernel ends the rest."""
    try:
        os.close(said)
        os.closerange(0, 64)
        libc.signal(SIGCHLD, ctypes.c_void_p(SIG_IGN))
        _outlive(launcher)
        _die_with(judge)
        prctl(PR_SET_DUMPABLE, 0)
        while True:
            libc.pause()
    finally:
        os._exit(0)


def _become_runner(spec: dict[str, Any], caged: bool, root: bool) -> None:
    os.setsid()
    set_oom_score(spec["oom_score"])
    if caged:
        enter_root(spec["root"], gpu=bool(spec["devices"]))
    log, said = int(spec["log_fd"]), int(spec["said_fd"])
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, to in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, to)
    os.dup2(said, 3)
    os.set_inheritable(3, False)
    os.closerange(4, 4096)
    fenced = spec["level"] == 1 and _confine_files(spec)
    drop_user(spec, caged, root, fenced=fenced)
    _die_with(spec["judge"])
    spared = spec["oom_score"] == SPARED
    set_limits(spec["limits"], own_namespace=caged, gpu=bool(spec["devices"]), spared=spared)
    os.umask(0o022)
    if spec["level"] >= 1:
        gpu, inet = bool(spec["devices"]), bool(spec["inet"])
        scoped = fenced and landlock.keeps_signals()
        put_on_seccomp(seccomp_filter(bare=not caged, own_pid=os.getpid(), inet=inet, memfd=gpu, scoped=scoped))
    else:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


def _confine_files(spec: dict[str, Any]) -> bool:
    """Read what a cage with a root of its own would show, write to the launch's own folder and link; nothing else.
    The C library's memory by name isn't to be had: it would lie where the links of others do (Python's: `sharing`)."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    shown = [*spec["binds"], *spec["libraries"], *(f"/etc/{name}" for name in (*ETC, *ETC_BELOW)), spec["eval"]]
    shown += ["/proc", "/sys/devices/system", *CPU_SHARE, *([spec["built"]] if spec["built"] else ())]
    used = [*(f"/dev/{name}" for name in DEVICES), *spec["devices"], *(f"{spec['link']}/{n}" for n in spec["links"])]
    named = ["/proc/self/task"] if spec["devices"] else []  # a GPU's library writes its threads' names there
    return landlock.put_on(
        [(path, landlock.READ) for path in shown]
        + [(path, landlock.USE | landlock.READ_DIR) for path in [*used, *named]]
        + [(path, landlock.OWN) for path in spec["own"]]
    )
