"""The Ray backend: the Backend contract on a real Ray, and what Ray gets to know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbslurm.domain.run import Ending, Seen
from tests import databases
from tests.contract.backend_suite import (
    SECRET,
    BackendContract,
    attempt_of,
    make_job,
    wait_seen,
)
from tests.contract.ray_rig import GPU, KEY, RayCase, ray_case
from tests.ray_cluster import RayCluster
from tests.services import RAY_CLUSTER, needs

pytestmark = needs(RAY_CLUSTER)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as ray:
        ray.add_worker(resources={GPU: 3})
        yield ray


@pytest.fixture(scope="module")
def whole_case(postgres_server: databases.Server, template_database: str, cluster: RayCluster) -> Iterator[RayCase]:
    with ray_case(postgres_server, template_database, cluster) as found:
        yield found


@pytest.fixture
def case(whole_case: RayCase) -> Iterator[RayCase]:
    yield whole_case
    whole_case.later_s = 0.0


class TestTheContract(BackendContract):
    """The suite that every backend passes."""


def test_ray_keeps_the_name_and_nothing_else(case: RayCase) -> None:
    backend = case.backend()
    job = make_job(case, "report", hidden=SECRET)
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    stored = case.ray.stored()
    assert job.name in stored
    for secret in (SECRET, job.key.hex(), KEY.hex(), "stand-in", "manifest"):
        assert secret not in stored.replace("manifest.json", ""), secret
