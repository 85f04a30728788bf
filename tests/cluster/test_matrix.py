"""The Backend contract on other Slurm releases (make test-slurm-matrix): no containers, text output as it is there."""

from __future__ import annotations

import json
import os

import pytest

from tests.cluster.conftest import cluster_or_why
from tests.services import CLUSTER, missing

VERSIONS = [version for version in os.environ.get("KBSLURM_SLURM_MATRIX", "").split(",") if version]
CONTRACT = "tests/cluster/inside/test_contract.py"
# Accounting is off where a tree has no slurmdbd; the backend then goes without sacct, as it does on such a site.
WITHOUT_ACCOUNTING: tuple[str, ...] = ()


@pytest.mark.matrix
@pytest.mark.parametrize("version", VERSIONS or ["none"])
def test_the_contract_holds_on_this_slurm(version: str) -> None:
    plain = version in WITHOUT_ACCOUNTING
    options = ("--slurm", version, *(("--no-accounting",) if plain else ()))
    found = cluster_or_why(f"matrix-{version}", *options)
    if isinstance(found, str):
        missing(CLUSTER, found)
    reports = f"matrix-{version}.jsonl"
    done = found.tests([CONTRACT], reports, KBSLURM_TEST_ACCOUNTING="0" if plain else "1")
    told = [json.loads(line) for line in (found.shared / reports).read_text().splitlines()]
    failed = [f"{one['nodeid']}: {one['longrepr']}" for one in told if one["outcome"] == "failed"]
    assert not failed, "\n".join(failed)[-8000:]
    assert done.returncode == 0, done.stdout[-4000:]
    assert len({one["nodeid"] for one in told if one["when"] == "call"}) >= 15
