"""`python -m tests.contract.ray_submitter`: submits one job to Ray on loopback, and is killed at a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbslurm.backends.ray.api import Api
from kbslurm.backends.ray.backend import RayBackend, RayGpu, RayNodes
from kbslurm.store.connect import Pool
from kbslurm.store.node_jobs import NodeJobs
from tests.contract.submitter import submit


def made(told: dict[str, Any], die: Callable[[str], None]) -> RayBackend:
    pool = Pool(told["database"])
    return RayBackend(
        Api(told["place"], url=told["url"], token=told["token"], timeout_s=20.0),
        lambda: NodeJobs(pool),
        name=told["place"],
        gpus={told["gpu"]: RayGpu(num_gpus=0, resources={told["gpu"]: 1}, slots=2)},
        nodes=RayNodes(service_url=told["service_url"], key_file=told["key_file"], python=told["python"]),
        key=bytes.fromhex(told["run_key"]),
        eval_dir=Path(told["eval_dir"]),
        min_isolation=0,
        crash_point=die,
    )


if __name__ == "__main__":
    submit(made)
