"""The real Ray that runs on Ray are tested with: it works, needs its token, and dies as it should."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.ray_cluster import RayCluster, holding, marked, wait_until
from tests.services import RAY_CLUSTER, REDIS, needs

pytestmark = needs(RAY_CLUSTER)


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    with RayCluster() as cluster:
        cluster.add_worker(resources={"H100": 2})
        yield cluster


def submit(ray: RayCluster, name: str, entrypoint: str) -> None:
    order = {"submission_id": name, "entrypoint": entrypoint, "entrypoint_resources": {"H100": 1}}
    assert ray.call("POST", "/api/jobs/", json=order).status_code == 200


def wait_for(ray: RayCluster, name: str, *states: str) -> None:
    wait_until(f"{name} is {states}", lambda: (ray.job(name) or {}).get("status") in states)


def test_a_job_runs_on_the_worker_and_a_token_is_needed(ray: RayCluster) -> None:
    submit(ray, "kb-one", "echo said; exit 0")
    wait_for(ray, "kb-one", "SUCCEEDED")
    assert "said" in ray.stored()
    assert httpx.get(f"{ray.url}/api/jobs/").status_code == 401
    assert httpx.get(f"{ray.url}/api/jobs/", headers={"Authorization": "Bearer no"}).status_code == 403


def test_a_worker_that_is_killed_takes_its_job_along_and_another_one_can_join(ray: RayCluster) -> None:
    lost = ray.add_worker(resources={"A100": 1})
    order = {"submission_id": "kb-two", "entrypoint": "sleep 1000", "entrypoint_resources": {"A100": 1}}
    assert ray.call("POST", "/api/jobs/", json=order).status_code == 200
    wait_for(ray, "kb-two", "RUNNING")
    lost.kill()
    assert marked(lost.mark) == []
    wait_for(ray, "kb-two", "FAILED")


@needs(REDIS)
@pytest.mark.parametrize("redis", [True, False])
def test_only_with_redis_a_new_head_knows_the_jobs_of_the_old_one(redis: bool) -> None:
    with RayCluster(redis=redis) as cluster:
        cluster.add_worker(resources={"H100": 1})
        submit(cluster, "kb-three", "true")
        wait_for(cluster, "kb-three", "SUCCEEDED")
        cluster.replace_head()
        assert (cluster.job("kb-three") is not None) is redis
    assert marked(cluster.id) == [] and holding(cluster.folder) == []
