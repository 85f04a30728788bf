"""Keepers on the test cluster: opened by the backend itself, without a service that would decide when."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.config import shared_folders
from kbslurm.domain.keepers import KEEPER_PREFIX, Keeper, KeeperSighting, KeeperState
from kbslurm.domain.run import Handle, InKeeper, JobName, KeeperId, KeeperName, Seen
from kbslurm.domain.site import Site
from kbslurm.flow.script import keeper_writer, keepers_folder
from kbslurm.ports import JobSpec, KeeperSpec
from tests.cluster.inside.site import SlurmCase

WAIT_S = 120.0


@dataclass(kw_only=True)
class OpenKeeper:
    """A keeper that was opened, as its row would have it."""

    keeper: Keeper
    site: Site

    @property
    def job(self) -> str:
        assert self.keeper.handle is not None
        return self.keeper.handle

    @property
    def folder(self) -> KeeperFolder:
        return KeeperFolder(root=keepers_folder(self.site), name=self.keeper.name)

    @property
    def place(self) -> InKeeper:
        """What an attempt's row has of it."""
        return InKeeper(id=self.keeper.id, name=self.keeper.name, job=self.keeper.handle)

    def script_pid(self) -> int:
        """The process that is its script."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                said = file.read_bytes()
            except OSError:
                continue
            if f"/job{int(self.job):05d}/slurm_script".encode() in said:
                return int(file.parent.name)
        raise AssertionError(f"no script of job {self.job}")

    def script_node(self) -> str:
        """The node that its claim names."""
        return str(json.loads(self.folder.paths.owner.read_text())["node"])

    def freeze(self) -> None:
        os.kill(self.script_pid(), signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.script_pid(), signal.SIGCONT)

    def left(self) -> str:
        """Why it says that it left."""
        return self.folder.paths.exit.read_text() if self.folder.paths.exit.exists() else ""


def new_keeper(site: Site, gpu: str, *, idle_s: float = 300.0, life_s: float = 3600.0) -> Keeper:
    token = base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()
    return Keeper(
        id=KeeperId(1),
        name=KeeperName(KEEPER_PREFIX + token),
        backend=site.name,
        gpu=gpu,
        state=KeeperState.INTENT,
        handle=None,
        opened_at=datetime.now(UTC),
        life_s=life_s,
        idle_s=idle_s,
    )


def spec_of(site: Site, keeper: Keeper, eval_dir: Path) -> KeeperSpec:
    directory = keepers_folder(site) / keeper.name
    writer = keeper_writer(site, templates=shared_folders.path("sbatch_templates"), eval_dir=eval_dir)
    return KeeperSpec(
        name=keeper.name,
        gpu=keeper.gpu,
        directory=directory,
        script=writer(keeper, directory),
        idle_s=keeper.idle_s,
        life_s=keeper.life_s,
    )


def opened(
    backend: SlurmBackend, eval_dir: Path, gpu: str, *, idle_s: float = 300.0, life_s: float = 3600.0, wait: bool = True
) -> OpenKeeper:
    """A keeper that holds its GPU."""
    keeper = new_keeper(backend.site, gpu, idle_s=idle_s, life_s=life_s)
    handle = backend.open_keeper(spec_of(backend.site, keeper, eval_dir))
    found = OpenKeeper(keeper=dataclasses.replace(keeper, handle=handle), site=backend.site)
    if wait:
        wait_keeper(backend, found, lambda seen: seen.seen is Seen.RUNNING)
    return found


def wait_keeper(backend: SlurmBackend, one: OpenKeeper, holds: Callable[[KeeperSighting], bool]) -> KeeperSighting:
    """Watch it, as the daemon does, until this holds."""
    give_up, last = time.monotonic() + WAIT_S, None
    while True:
        last = backend.watch_keepers([one.keeper]).get(one.keeper.name, last)
        if last is not None and holds(last):
            return last
        assert time.monotonic() < give_up, f"it never came to be so: {last}"
        time.sleep(0.1)


@dataclass
class WarmCase(SlurmCase):
    """The contract's case, with every attempt handed over to a keeper that is opened for the first."""

    keepers: list[OpenKeeper] = field(default_factory=list)

    def finished(self, job: JobSpec) -> JobSpec:
        if job.gpu not in self.site.gpus:
            return super().finished(job)
        if not self.keepers:
            self.keepers.append(opened(self.backend(), self.eval_dir, self.gpu))
        return dataclasses.replace(super().finished(job), keeper=self.keepers[0].place)

    def submit_unstarted(self, job: JobSpec) -> None:
        """Its keeper stands still."""
        self.keepers[0].freeze()
        self.held[job.name] = self.backend().submit(job)

    def let_start(self, job: JobSpec) -> None:
        self.keepers[0].thaw()

    def close(self) -> None:
        for one in self.keepers:
            subprocess.run(["scancel", "--quiet", one.job], check=False)


def handle_of(job: JobSpec) -> Handle:
    """What submit gives an attempt in a keeper before its step is known."""
    assert job.keeper is not None
    return Handle(f"{job.keeper.job}.{JobName(job.name)}")
