"""A real Ray whose own autoscaler keeps the pool: it starts what min says and what waits, stops what is idle, and the
check tells what differs from the configuration.

The machines that it starts are processes here, by Ray's own provider for that; everything else in the file is ours.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
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
        return list(pool_check.findings("eu", GPUS, section, self.nodes(), told, pools.digest_in(text)))


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
    assert by["GPU type", "H100"].text == "1 node can take it, 1 run at once"
    assert by["GPU type", "A100"].text == "no node has 1 A100 now; up to 1 are started when runs wait"
    assert by["GPU type", "B200"].grade is Grade.FAIL, "a type that nobody offers"
    assert {one.grade for key, one in by.items() if key != ("GPU type", "B200")} == {Grade.PASS}

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
    assert by["workers", "steady"].text == "1 node, fewer than min = 2"
    fewer = pool_of(POOL.replace("min = 1\nmax = 1", "max = 0"))
    said = [one.text for one in ray.findings(text, fewer)]
    assert "1 node, more than max = 0" in said and "it was started from the file that the configuration gives" in said
