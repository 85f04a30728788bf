"""The hand that starts daemons and kills them, and cleans up after all of them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbslurm.domain.run import AttemptId, AttemptState, Handle, JobName, OpenAttempt, RunId, Seen
from tests.chaos.zygote import place
from tests.flow.stage import START

PATIENCE_S = 180.0


class Killer:
    """Daemons by fork from one prepared process: `module` with these arguments, its log below `root`."""

    def __init__(self, module: str, *arguments: str, root: Path, checkout: Path) -> None:
        self.root = root
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = 0
        self.kills = 0
        self._logged = 0

    def start(self, crash_point: str = "-") -> None:
        """Begin a daemon's life, to end at this crash point."""
        assert not self.pid
        assert self.zygote.stdin is not None
        self._logged = len(self.log())
        self.zygote.stdin.write(f"{crash_point}\n".encode())
        self.zygote.stdin.flush()
        self.pid = int(self._said(PATIENCE_S) or 0)
        assert self.pid

    def wait(self, within_s: float) -> int | None:
        """The wait status of the daemon when it is dead within that time."""
        said = self._said(within_s)
        if said is None:
            return None
        self.pid = 0
        status = int(said)
        self.kills += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return status

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the daemon now, or find it dead. With another signal than SIGKILL once it has started: what it was to do
        may have been done before, and only then does it end in good order."""
        if self.pid:
            until = time.monotonic() + PATIENCE_S
            while number is not signal.SIGKILL and "daemon started" not in self.log()[self._logged :]:
                assert time.monotonic() < until, "it doesn't start"
                time.sleep(0.02)
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            status = self.wait(PATIENCE_S)
            assert status is not None
            return status
        return 0

    def died_at_its_crash_point(self, within_s: float = PATIENCE_S) -> bool:
        status = self.wait(within_s)
        return status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def log(self) -> str:
        file = self.root / "daemon.log"
        return file.read_text() if file.exists() else ""

    def _said(self, within_s: float) -> str | None:
        assert self.zygote.stdout is not None
        ready, _, _ = select.select([self.zygote.stdout], [], [], within_s)
        return self.zygote.stdout.readline().decode().strip() if ready else None

    def close(self) -> None:
        """End the daemon and the process that forks them."""
        if self.zygote.poll() is None:
            if self.pid:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            assert self.zygote.stdin is not None
            self.zygote.stdin.close()
            try:
                self.zygote.wait(60)
            except subprocess.TimeoutExpired:
                self.zygote.kill()
                self.zygote.wait()
        if self.zygote.stdout is not None:
            self.zygote.stdout.close()


@contextmanager
def killer(url: str, root: Path, slots: int, checkout: Path) -> Iterator[Killer]:
    """The hand for daemons whose jobs run on this machine; none of those outlives it."""
    made = Killer("tests.chaos.zygote", url, str(root), str(slots), root=root, checkout=checkout)
    try:
        yield made
    finally:
        made.close()
        end_all_jobs(root, slots)


def end_all_jobs(root: Path, slots: int) -> None:
    """No supervisor and no harness of this root lives on."""
    backend = place(root, slots).backend
    names = [JobName(folder.name) for folder in (root / "attempts").glob("kb-*")]
    for name in names:
        if backend.find(name).seen in (Seen.RUNNING, Seen.WAITING):
            backend.cancel(_named(name))
    until = time.monotonic() + 60
    while any(backend.find(name).seen in (Seen.RUNNING, Seen.WAITING) for name in names):
        assert time.monotonic() < until, "a job outlives its test"
        time.sleep(0.05)


def _named(name: JobName) -> OpenAttempt:
    return OpenAttempt(
        id=AttemptId(0),
        run_id=RunId(0),
        number=1,
        name=name,
        backend="local",
        gpu="A100",
        state=AttemptState.SUBMITTED,
        handle=Handle(name),
        opened_at=START,
        deadline_at=None,
    )
