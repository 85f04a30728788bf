"""The Backend contract on a real Slurm, without containers: what holds on every version of the matrix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.inside.site import SlurmCase, site_at
from tests.contract.backend_suite import BackendContract, make_eval


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SlurmCase:
    folder = Path("/shared/contract") / request.node.name.replace("[", "-").rstrip("]")
    (folder / "traces").mkdir(parents=True)
    accounting = os.environ.get("KBSLURM_TEST_ACCOUNTING", "1") == "1"
    site = site_at(folder / "root", runtime="none", accounting=accounting)
    return SlurmCase(folder=folder / "traces", eval_dir=make_eval(folder / "eval"), site=site)


class TestSlurm(BackendContract):
    """Every article."""

    def test_the_memory_limit_is_kept(self, case: SlurmCase) -> None:  # type: ignore[override]
        case.site = site_at(Path(case.site.paths.shared_root), runtime="none", memory="200M")
        super().test_the_memory_limit_is_kept(case)
