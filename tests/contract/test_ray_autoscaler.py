"""A real Ray whose own autoscaler keeps the pool: it starts what min says and what waits, stops what is idle, and the
check tells what differs from the configuration.

The machines that it starts are processes here, by Ray's own provider for that; everything else in the file is ours.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbslurm.backends.ray import pool as pools
from kbslurm.backends.ray import pool_check
from kbslurm.config.sections.ray import RayGpuSection, RaySection
from kbslurm.domain.finding import Finding, Grade
from tests.ray_cluster import RayCluster, wait_until
from tests.services import RAY_CLUSTER, needs
from tests.unit.test_ray_pool import pool_of

pytestmark = needs(RAY_CLUSTER)

PLACE = RaySection(
    url="http://head",
    gpus={name: RayGpuSection(num_gpus=0, resources={name: 1.0}) for name in ("H100", "A100", "B200")},
)
GPUS = pools.asked(PLACE)
POOL = """
provider = "aws"
region = "nowhere"
key_command = "true"
[head]
machine = "m"
[workers.steady]
gpu = "H100"
machine = "m"
min = 1
max = 1
cpus = 1
[workers.spot]
gpu = "A100"
machine = "m"
max = 1
cpus = 1
preemptible = true
"""
PROCESSES = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
HEAD_ID = "f" * 51 + "00000"


class Autoscaled(RayCluster):
    """A head that was started with this file, as Ray's launcher starts it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        told: dict[str, Any] = yaml.safe_load(text)
        told["provider"] = {
            "type": "external",
            "module": PROCESSES,
            "head_node_id": HEAD_ID,
            "gcs_address": f"127.0.0.2:{self.port}",
        }
        for kind in told["available_node_types"].values():
            kind["node_config"] = {}
            if kind["resources"].get("CPU"):  # memory that several of them have side by side
                kind["resources"]["object_store_memory"] = 100_000_000
        # The provider knows the head by no other name.
        told["available_node_types"]["ray.head.default"] = told["available_node_types"].pop("head")
        told["head_node_type"] = "ray.head.default"
        told |= {"file_mounts": {}, "cluster_synced_files": []}  # as the launcher hands it on
        self.labels: Mapping[str, str] = told["available_node_types"]["ray.head.default"]["labels"]
        self.file = self.folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(told))

    def _start(self, name: str, address: str, argv: list[str], env: Mapping[str, str] | None = None) -> Any:
        if "--head" in argv:
            argv = [*argv, f"--autoscaling-config={self.file}"]
            env = {
                "RAY_enable_autoscaler_v2": "1",
                "RAY_FAKE_CLUSTER": "1",
                "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
                "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
                "RAY_NODE_TYPE_NAME": "ray.head.default",
                "RAY_OVERRIDE_LABELS": json.dumps(self.labels),
                "AUTOSCALER_UPDATE_INTERVAL_S": "1",
                **(env or {}),
            }
        return super()._start(name, address, argv, env)

    def nodes(self) -> list[pool_check.Node]:
        found = pool_check.nodes_in(self.call("GET", pool_check.NODES).json())
        assert found is not None
        return found

    def kinds(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in self.nodes():
            found[node.kind] = found.get(node.kind, 0) + 1
        return found

    def findings(self, text: str, section: Any) -> list[Finding]:
        told = pool_check.autoscaler_in(self.call("GET", pool_check.STATUS).json())
        assert told is not None
        kinds = {("head" if name == "ray.head.default" else name): n for name, n in told.kinds.items()}
        told = dataclasses.replace(told, kinds=kinds)
        nodes = self.nodes()
        types = [pool_check.gpu_finding("eu", gpu, asked, 1, section, nodes) for gpu, asked in GPUS.items()]
        return [*types, *pool_check.findings("eu", GPUS, section, nodes, told, pools.digest_in(text))]


@pytest.fixture(scope="module")
def text() -> str:
    return pools.cluster_file("eu", PLACE, pool_of(POOL))


@pytest.fixture(scope="module")
def ray(text: str) -> Iterator[Autoscaled]:
    cluster = Autoscaled(text)
    with cluster:
        yield cluster


def test_it_keeps_min_and_starts_what_waits_up_to_max(ray: Autoscaled, text: str) -> None:
    wait_until("the worker that min asks for is there", lambda: ray.kinds() == {"": 1, "steady": 1})
    found = ray.findings(text, pool_of(POOL))
    by = {(one.name, one.where): one for one in found}
    assert by["workers", "H100"].text == "1 at once with H100 1"
    assert by["workers", "A100"].text == "none has A100 1 now; workers for 1 at once are started when needed"
    assert by["workers", "B200"].grade is Grade.FAIL, "a type that nobody offers"
    assert {one.grade for key, one in by.items() if key != ("workers", "B200")} == {Grade.PASS}

    for name in ("kb-one", "kb-two"):
        order = {"submission_id": name, "entrypoint": "sleep 600", "entrypoint_resources": {"A100": 1}}
        assert ray.call("POST", "/api/jobs/", json=order).status_code == 200
    wait_until("a worker is started for what waits", lambda: ray.kinds() == {"": 1, "steady": 1, "spot": 1})
    states = {name: (ray.job(name) or {}).get("status") for name in ("kb-one", "kb-two")}
    wait_until("one runs", lambda: "RUNNING" in {(ray.job(name) or {}).get("status") for name in states})
    assert ray.kinds()["spot"] == 1, "max holds: the other one waits"


def test_what_differs_from_the_configuration_is_told(ray: Autoscaled, text: str) -> None:
    wait_until("the worker that min asks for is there", lambda: ray.kinds().get("steady") == 1)
    other = pool_of(POOL.replace("min = 1\nmax = 1", "min = 2\nmax = 3").replace("[workers.spot]", "[workers.other]"))
    now = pools.cluster_file("eu", PLACE, other)
    by = {(one.name, one.where): one for one in ray.findings(now, other)}
    assert by["pool", ""].grade is Grade.CAUTION and "another file" in by["pool", ""].text
    assert by["pool", "steady"].text == "1 node, fewer than min = 2"
    fewer = pool_of(POOL.replace("min = 1\nmax = 1", "max = 0"))
    said = [one.text for one in ray.findings(text, fewer)]
    assert "1 node, more than max = 0" in said and "it was started from the file that the configuration gives" in said


def test_the_command_tells_it_too(ray: Autoscaled, tmp_path: Path) -> None:
    """Here the head's kind has another name than in a file of ours, so it passes for one that somebody else started."""
    pool = POOL.replace("[head]", "[ray.eu.pool.head]").replace("[workers.", "[ray.eu.pool.workers.")
    gpus = "".join(f"[ray.eu.gpus.{gpu}]\nnum_gpus = 0\nresources = {{ {gpu} = 1 }}\nslots = 1\n" for gpu in GPUS)
    head = f'[ray.eu]\nurl = "{ray.url}"\nservice_url = "http://127.0.0.1:9"\n'
    (tmp_path / "kbslurm.toml").write_text(f"{head}{gpus}[ray.eu.pool]\n{pool}")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RAY_EU_TOKEN": ray.token, "RAY_EU_KEY": "ab" * 32}
    argv = [sys.executable, "-m", "kbslurm", "ray", "check", "eu", "--json"]
    wait_until("the worker that min asks for is there", lambda: ray.kinds().get("steady") == 1)
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = {(one["name"], one["where"]): one for one in json.loads(done.stdout)["findings"]}
    assert found["workers", "H100"]["grade"] == "PASS" and found["workers", "B200"]["grade"] == "FAIL"
    assert found["pool", "steady"]["grade"] == "PASS"
    assert "started without the pool's file" in found["autoscaler", ""]["text"]
    assert ray.token not in done.stdout and "ab" * 32 not in done.stdout
