"""The Backend contract for attempts that run in a keeper, as steps of a job of ours, on a real Slurm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.inside.site import site_at
from tests.cluster.inside.warming import WarmCase
from tests.contract.backend_suite import BackendContract, make_eval


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[WarmCase]:
    folder = Path("/shared/warm-contract") / request.node.name.replace("[", "-").rstrip("]")
    (folder / "traces").mkdir(parents=True)
    accounting = os.environ.get("KBSLURM_TEST_ACCOUNTING", "1") == "1"
    site = site_at(folder / "root", runtime="none", accounting=accounting)
    found = WarmCase(folder=folder / "traces", eval_dir=make_eval(folder / "eval"), site=site)
    yield found
    found.close()


class TestWarm(BackendContract):
    """Every article."""

    def test_the_memory_limit_is_kept(self, case: WarmCase) -> None:  # type: ignore[override]
        case.site = site_at(Path(case.site.paths.shared_root), runtime="none", memory="200M")
        super().test_the_memory_limit_is_kept(case)
