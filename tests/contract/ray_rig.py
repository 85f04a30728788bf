"""A real Ray, the service that its nodes call, and the Ray backend between them: what its tests begin with."""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.ray.api import Api
from kbslurm.backends.ray.backend import RayBackend, RayGpu, RayNodes
from kbslurm.config import shared_folders
from kbslurm.domain.run import JobName, OpenAttempt
from kbslurm.ports import JobSpec
from kbslurm.store.connect import Pool
from kbslurm.store.node_jobs import NodeJobs
from tests import databases
from tests.contract import submitter
from tests.contract.backend_suite import REPOSITORY, attempt_of, make_eval, make_job, wait_counted
from tests.popcorn.served_api import ServedApi, served
from tests.ray_cluster import RayCluster

PLACE, GPU, KEY = "pool", "T4", secrets.token_bytes(32)
TOML = """
[ray.pool]
url = "http://127.0.0.1:8265"
service_url = "http://127.0.0.1:8000"
"""


@dataclass
class RayCase:
    """The Ray backend as the suite wants it. Its clock can be put forward: a node's silence is waited out so."""

    folder: Path
    ray: RayCluster
    api: ServedApi
    database: str
    eval_dir: Path
    name: str = PLACE
    gpu: str = GPU
    wait_s: float = 150.0
    time_limit_s: float = 1.0
    enforces_memory: bool = True
    steps: Sequence[str] = ("offering", "sending", "sent")
    lost_at: Sequence[str] = ()
    later_s: float = 0.0
    service_url: str = ""
    closed: list[Api | Pool] = field(default_factory=list)

    @property
    def key_file(self) -> Path:
        return self.folder / "run-key"

    def backend(self, **told: Any) -> RayBackend:
        api = Api(PLACE, url=told.pop("url", self.ray.url), token=told.pop("token", self.ray.token), timeout_s=20.0)
        pool = Pool(self.database)
        self.closed += [api, pool]
        resources = told.pop("resources", {GPU: 1})
        return RayBackend(
            api,
            lambda: NodeJobs(pool),
            **{
                "name": PLACE,
                "gpus": {GPU: RayGpu(num_gpus=0, resources=resources, slots=3)},
                "nodes": RayNodes(
                    service_url=self.service_url or self.api.url, key_file=str(self.key_file), python=sys.executable
                ),
                "key": KEY,
                "eval_dir": self.eval_dir,
                "min_isolation": 0,
                "now": lambda: datetime.now(UTC) + timedelta(seconds=self.later_s),
                **told,
            },
        )

    @property
    def jobs(self) -> NodeJobs:
        return self.api.store.node_jobs

    def finished(self, job: JobSpec) -> JobSpec:
        return job

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        told = {
            "database": self.database,
            "place": PLACE,
            "url": self.ray.url,
            "token": self.ray.token,
            "service_url": self.api.url,
            "key_file": str(self.key_file),
            "python": sys.executable,
            "run_key": KEY.hex(),
            "eval_dir": str(self.eval_dir),
        }
        process = submitter.started("tests.contract.ray_submitter", told, job, step)
        assert process.wait(timeout=self.wait_s) == -signal.SIGKILL

    def submit_unstarted(self, job: JobSpec) -> None:
        self.submit_and_die(job, "sending")

    def let_start(self, job: JobSpec) -> None:
        self.backend().submit(job)

    def wait_out(self, job: JobSpec) -> None:
        raise AssertionError("nothing is ever lost here")

    def paths(self, name: JobName) -> None:
        return None

    def started(self, do: str = "sleep", **told: Any) -> tuple[RayBackend, JobSpec, OpenAttempt]:
        """A job that has really begun."""
        backend = self.backend(**told)
        job = make_job(self, do)
        attempt = attempt_of(self, job, backend.submit(job))
        wait_counted(self, job)
        return backend, job, attempt


@contextlib.contextmanager
def ray_case(server: databases.Server, template: str, ray: RayCluster, *, fake: bool = True) -> Iterator[RayCase]:
    """A case with a database and a service of its own. `fake`: its harness is the suite's stand-in."""
    with contextlib.ExitStack() as held, tempfile.TemporaryDirectory(prefix="kbray-case-") as place:
        folder = Path(place)
        eval_dir = make_eval(folder / "eval") if fake else REPOSITORY / "eval"
        patched = held.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(shared_folders, "eval_dir", lambda: eval_dir)
        url = server.create(template)
        held.callback(server.drop, url)
        env = {"RAY_POOL_KEY": KEY.hex(), "RAY_POOL_TOKEN": ray.token}
        api = held.enter_context(served(url, folder / "state", boards=False, toml=TOML, env=env))
        case = RayCase(folder=folder, ray=ray, api=api, database=url, eval_dir=eval_dir)
        case.key_file.write_text(KEY.hex())
        try:
            yield case
        finally:
            for one in case.closed:
                one.close()
