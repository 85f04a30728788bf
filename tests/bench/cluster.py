"""What kbslurm adds on a real Slurm: starts a cluster, has the benches run on its login node, and ends it.

The benches are in tests/cluster/inside/bench.py. KBSLURM_BENCH_PARTS names those wanted (latency, calls, busy, warm).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from tests import bench
from tests.bench import Row
from tests.cluster.run_inside import Cluster

CLUSTER = True
START_S, RUN_S = 1200.0, 3600.0


def run() -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="kbc-"))
    cluster = Cluster(folder)
    try:
        _done(cluster, "start", "--with-pid", str(os.getpid()), timeout_s=START_S)
        return _inside(cluster)
    finally:
        cluster.up("stop")
        shutil.rmtree(folder, ignore_errors=True)


def _inside(cluster: Cluster) -> list[Row]:
    name = "bench.jsonl"
    # the root folder's file belongs to the user that writes it
    (cluster.shared / name).touch()
    os.chown(cluster.shared / name, 1000, 1000)
    _done(
        cluster,
        *("exec", "--user", "kb", "--cwd", "/kb/src", "--env=PYTHONDONTWRITEBYTECODE=1", "--"),
        *("/kb/venv/bin/python", "-m", "tests.cluster.inside.bench", f"/shared/{name}", str(bench.SCALE)),
        *os.environ.get("KBSLURM_BENCH_PARTS", "").split(),
        timeout_s=RUN_S,
    )
    return [Row(**json.loads(line)) for line in (cluster.shared / name).read_text().splitlines()]


def _done(cluster: Cluster, *arguments: str, timeout_s: float) -> None:
    done = cluster.up(*arguments, timeout_s=timeout_s)
    if done.returncode:
        raise SystemExit(f"up.py {arguments[0]} ended with status {done.returncode}:\n{done.stdout[-6000:]}")
