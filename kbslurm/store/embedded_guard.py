"""The parent of an embedded Postgres: a small process that stops the server when nobody uses it any more.

Everyone who uses the server holds a shared lock on one file. The guard waits for the exclusive lock, which it gets when
the last user has released theirs, even by SIGKILL; then it tells Postgres to do a fast shutdown. A new user waits for
its shared lock until the guard has gone. Run as a file by kbslurm.store.embedded, stdlib only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

FAST_SHUTDOWN = signal.SIGINT
IMMEDIATE_SHUTDOWN = signal.SIGQUIT
PATIENCE_S = 60
PR_SET_PDEATHSIG = 1


def main(plan_json: str) -> int:
    """Run Postgres until it exits or nobody holds the lock. `plan` is what embedded.py's _spawn() wrote."""
    plan = json.loads(plan_json)
    server = subprocess.Popen(
        plan["argv"],
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=plan["env"],
        umask=0o077,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        **({} if plan["uid"] is None else {"user": plan["uid"], "group": plan["gid"], "extra_groups": []}),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: _ask(server, FAST_SHUTDOWN))
    lock = os.open(plan["users_lock"], os.O_RDWR)
    threading.Thread(target=_end_when_unused, args=(server, lock), daemon=True).start()
    server.wait()
    if plan["socket_dir_to_remove"]:
        shutil.rmtree(plan["socket_dir_to_remove"], ignore_errors=True)
    # Don't wait for the thread, which may be blocked on the lock: the kernel releases it.
    os._exit(0)


def _end_when_unused(server: subprocess.Popen[bytes], lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_EX)
    _ask(server, FAST_SHUTDOWN)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(PATIENCE_S)
    _ask(server, IMMEDIATE_SHUTDOWN)


def _ask(server: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(number)


def _die_with_parent() -> None:
    """Should the guard be killed, Postgres shuts down too (the kernel forgets this across setuid: so after it)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(FAST_SHUTDOWN), 0, 0, 0)


if __name__ == "__main__":
    os.chdir("/")
    sys.exit(main(Path(sys.argv[1]).read_text() if sys.argv[1] != "-" else sys.stdin.read()))
