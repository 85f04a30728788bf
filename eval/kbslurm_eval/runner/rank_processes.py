"""Inside a launch of several ranks: the first process, which becomes one process for each rank and waits for the first
that ends.

It is in the runner's cage before it starts any rank, and it ends as that rank ended: the judge needs to watch one
process only. The rank's number that it leaves in its own link is for the person who reads it; nothing rests on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kbslurm_eval.cage.kernel import IFF_UP, SIOCGIFFLAGS, forbid_cores
from kbslurm_eval.shared.process_group import HOST, environment
from kbslurm_eval.shared.runner_link import RunnerEnd, Status, rank_folder


def serve_ranks(
    line: RunnerEnd, token: int, said: str, told: Mapping[str, Any], folder: str, serve: Callable[[str], int]
) -> int:
    """Start the ranks, answer the judge's greeting, and end as the first of them ends."""
    world, port = int(told["ranks"]), int(told["port"])
    try:
        _speak_with_oneself()
        found = [_started(rank, world, port, folder, serve) for rank in range(world)]
    except OSError as error:
        line.answer(token, Status.BROKEN, f"{error.strerror or error}")
        return 1
    ranks = {pid: rank for rank, pid in enumerate(found)}
    line.answer(token, Status.OK, said)
    while True:
        pid, status = os.wait()
        if pid in ranks:
            break
    line.say(f"rank {ranks[pid]}")
    if os.WIFSIGNALED(status):
        _die_by(os.WTERMSIG(status))
    return os.WEXITSTATUS(status)


def _started(rank: int, world: int, port: int, folder: str, serve: Callable[[str], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update(environment(rank, world, port))
        code = serve(str(rank_folder(Path(folder), rank)))
    except SystemExit as end:  # of a child of the submission's
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:  # noqa: BLE001 - this process ends here whatever happened, and the log says why
        traceback.print_exc()
        code = 70
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _die_by(number: int) -> None:
    forbid_cores()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _speak_with_oneself() -> None:
    """Without a loopback that works no two ranks could speak; better said here than as a submission's time-out."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as ear:
        ear.bind((HOST, 0))
        ear.listen(1)
        with socket.create_connection(ear.getsockname(), timeout=10):
            ear.settimeout(10)
            ear.accept()[0].close()


def interfaces_up() -> list[str] | None:
    """The network interfaces that are up as this process sees them; None where that can't be seen."""
    try:
        with open("/proc/self/net/dev", encoding="ascii", errors="replace") as file:
            names = [line.partition(":")[0].strip() for line in file if ":" in line]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            return sorted(name for name in names if _is_up(asked, name))
    except OSError:
        return None


def _is_up(asked: socket.socket, name: str) -> bool:
    told = fcntl.ioctl(asked, SIOCGIFFLAGS, struct.pack("<16s24x", name.encode()))
    return bool(struct.unpack_from("<H", told, 16)[0] & IFF_UP)
