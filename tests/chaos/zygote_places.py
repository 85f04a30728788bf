"""As `zygote`, with three places on this machine: `cluster` is home, `github` and `modal` take what it can't.

`python -m tests.chaos.zygote_places URL ROOT SLOTS`. While ROOT/cluster.down exists, home neither takes nor answers
anything. While ROOT/queue exists, the others take runs and start none.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kbslurm.backends.local.backend import LocalBackend
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.signals import stop_on_signals
from kbslurm.domain.placement import Overflow, PlaceRole, Rules
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen, Sighting
from kbslurm.errors import BackendRefused, BackendTrouble
from kbslurm.flow.place import Place
from kbslurm.observe import logs
from kbslurm.ports import JobSpec
from kbslurm.store.postgres import PostgresStore
from tests.chaos.zygote import GPU, INSTANT, TIMING, main


class Home(LocalBackend):
    """A site whose controller can be away."""

    def submit(self, job: JobSpec) -> Handle:
        if self._is_away():
            raise BackendRefused(self.name, "the controller doesn't answer", permanent=False, away=True)
        return super().submit(job)

    def find(self, name: JobName) -> Sighting:
        self._ask()
        return super().find(name)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        self._ask()
        return super().poll(attempts)

    def cancel(self, attempt: OpenAttempt) -> None:
        self._ask()
        super().cancel(attempt)

    def _is_away(self) -> bool:
        return (self.root.parent / "cluster.down").exists()

    def _ask(self) -> None:
        if self._is_away():
            raise BackendTrouble(self.name, "the controller doesn't answer")


class Elsewhere(LocalBackend):
    """A service with a queue of its own: what it has taken lies in a file until it starts or is taken back."""

    def submit(self, job: JobSpec) -> Handle:
        if not (self.root.parent / "queue").exists():
            return super().submit(job)
        if not self._taken(job.name).exists() and not self._gone(job.name).exists():
            fresh = self._taken(job.name).with_suffix(".new")
            fresh.write_bytes(pickle.dumps(job))
            fresh.rename(self._taken(job.name))
        return Handle(job.name)

    def find(self, name: JobName) -> Sighting:
        return self._queued(name) or super().find(name)

    def poll(self, attempts: Sequence[OpenAttempt]) -> Mapping[JobName, Sighting]:
        found = dict(super().poll(attempts))
        return found | {one.name: seen for one in attempts if (seen := self._queued(one.name)) is not None}

    def cancel(self, attempt: OpenAttempt) -> None:
        if self._taken(attempt.name).exists():
            self._taken(attempt.name).rename(self._gone(attempt.name))
        elif not self._gone(attempt.name).exists():
            super().cancel(attempt)

    def _queued(self, name: JobName) -> Sighting | None:
        if self._gone(name).exists():
            return Sighting(seen=Seen.ENDED, ending=Ending.CANCELLED, reason="taken back")
        if not self._taken(name).exists():
            return None
        if (self.root.parent / "queue").exists():
            return Sighting(seen=Seen.WAITING)
        super().submit(pickle.loads(self._taken(name).read_bytes()))
        self._taken(name).unlink()
        return None

    def _taken(self, name: JobName) -> Path:
        return self.root.parent / f"taken-{name}"

    def _gone(self, name: JobName) -> Path:
        return self.root.parent / f"gone-{name}"


def places(root: Path, slots: int) -> list[Place]:
    """Home first."""

    def place(kind: type[LocalBackend], name: str, role: PlaceRole) -> Place:
        backend = kind(root / "attempts", {GPU: slots}, INSTANT, Path(sys.executable), name)
        return Place(
            backend=backend,
            poll_s=0.2,
            grace_s=0.0,
            sweep_gap_s=0.1,
            patience_s=300.0,
            role=role,
            classes={GPU: GPU},
        )

    return [
        place(Home, "cluster", "home"),
        place(Elsewhere, "github", "overflow"),
        place(Elsewhere, "modal", "overflow"),
    ]


def live() -> None:
    """One life of a daemon."""
    root = Path(sys.argv[2])
    with (root / "daemon.log").open("a") as stream, stop_on_signals() as stop:
        logs.set_up(stream=stream)
        Daemon(
            PostgresStore(sys.argv[1]),
            places(root, int(sys.argv[3])),
            timing=replace(TIMING, breaker_s=0.3),
            holder="chaos",
            rules=Rules(overflow=Overflow(when="when_down")),
        ).run(stop)


if __name__ == "__main__":
    main(live)
