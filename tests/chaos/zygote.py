"""A program that has everything imported and forks daemons on demand: a kill and a restart cost milliseconds.

`python -m tests.chaos.zygote URL ROOT SLOTS`. A line on stdin starts a daemon whose KBSLURM_PROBE is that line (or
`-`); it answers with the pid, and with the wait status once that daemon is dead. When stdin ends, so does all of it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kbslurm.backends.local.backend import LocalBackend
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.signals import stop_on_signals
from kbslurm.daemon.timing import Timing
from kbslurm.flow.place import Place
from kbslurm.observe import logs
from kbslurm.observe.crash_points import VARIABLE, crash_point
from kbslurm.store.postgres import PostgresStore

INSTANT = Path(__file__).with_name("instant")
GPU = "A100"
TIMING = Timing(lease_s=3.0, idle_s=1.0, event_wait_s=0.2, database_back_off_s=0.05)


def place(root: Path, slots: int) -> Place:
    """This machine with the harness that is over at once."""
    backend = LocalBackend(
        root / "attempts",
        {GPU: slots},
        INSTANT,
        Path(sys.executable),
        crash_point=lambda step: crash_point(f"local.{step}"),
    )
    return Place(backend=backend, poll_s=0.5, grace_s=0.0, sweep_gap_s=0.1, patience_s=300.0)


def serve(url: str, found: Place, log: Path, timing: Timing = TIMING) -> None:
    """One life of a daemon. Always the same holder: the dead one's lease is its own."""
    with log.open("a") as stream, stop_on_signals() as stop:
        logs.set_up(stream=stream)
        Daemon(PostgresStore(url), [found], timing=timing, holder="chaos").run(stop)


def main(live: Callable[[], None]) -> None:
    """Fork a daemon's life for each line on stdin."""
    buffer = b""
    while True:
        while b"\n" not in buffer:
            got = os.read(0, 4096)
            if not got:
                return
            buffer += got
        line, _, buffer = buffer.partition(b"\n")
        child = os.fork()
        if child == 0:
            try:
                wanted = line.decode()
                if wanted != "-":
                    os.environ[VARIABLE] = wanted
                live()
            finally:
                os._exit(0)
        print(child, flush=True)
        if not _outlived(child):
            return


def _outlived(child: int) -> bool:
    """Wait for the child's end and tell it; False when nobody wants to know any more."""
    life = os.pidfd_open(child)
    poller = select.poll()
    poller.register(life, select.POLLIN)
    poller.register(0, 0)  # only its end: what it says is for later
    for fd, _ in poller.poll():
        if fd == 0:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(life)
    print(status, flush=True)
    return True


if __name__ == "__main__":
    at, slots = Path(sys.argv[2]), int(sys.argv[3])
    main(lambda: serve(sys.argv[1], place(at, slots), at / "daemon.log"))
