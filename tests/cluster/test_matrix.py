"""The Backend contract and the faults of warm workers on other Slurm releases (make test-slurm-matrix): no containers,
text output as it is there."""

from __future__ import annotations

import json
import os

import pytest

from tests.cluster import tree
from tests.cluster.conftest import cluster_or_why
from tests.cluster.run_inside import Cluster
from tests.services import CLUSTER, missing

VERSIONS = [version for version in os.environ.get("KBSLURM_SLURM_MATRIX", "").split(",") if version]
CONTRACT = "tests/cluster/inside/test_contract.py"
WARM = "tests/cluster/inside/test_warm_contract.py"
# What befalls a run in a keeper, but for what needs a container, and for one that waits long and asks Slurm nothing.
FAULTS = ["tests/cluster/inside/test_warm_faults.py", "-k", "not kills_what and not fills_its_memory and not lies"]
REST = "tests/cluster/inside/test_rest.py"
WITHOUT_REST = ("22.05",)  # its slurmrestd speaks versions that are too old for us
NEWEST = {"24.11": "v0.0.42", "26.05": "v0.0.45"}
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
    done = found.tests([CONTRACT, WARM], reports, KBSLURM_TEST_ACCOUNTING="0" if plain else "1")
    told = [json.loads(line) for line in (found.shared / reports).read_text().splitlines()]
    failed = [f"{one['nodeid']}: {one['longrepr']}" for one in told if one["outcome"] == "failed"]
    assert not failed, "\n".join(failed)[-8000:]
    assert done.returncode == 0, done.stdout[-4000:]
    assert len({one["nodeid"] for one in told if one["when"] == "call"}) >= 30
    if not plain:
        keeps_its_verdicts(found, version)
    if version not in WITHOUT_REST:
        speaks_its_rest(found, version)
    if tree.pyslurm(version) is not None:
        is_read_by_pyslurm(found)


def keeps_its_verdicts(found: Cluster, version: str) -> None:
    """Each fault of a run in a keeper leaves one verdict there, too."""
    reports = f"matrix-faults-{version}.jsonl"
    done = found.tests(FAULTS, reports, KBSLURM_TEST_RUNTIME="none")
    told = [json.loads(line) for line in (found.shared / reports).read_text().splitlines()]
    failed = [f"{one['nodeid']}: {one['longrepr']}" for one in told if one["outcome"] == "failed"]
    assert not failed, "\n".join(failed)[-8000:]
    assert done.returncode == 0, done.stdout[-4000:]
    assert len({one["nodeid"] for one in told if one["when"] == "call"}) >= 14


def speaks_its_rest(found: Cluster, version: str) -> None:
    """The same contract through that release's slurmrestd, in the newest version of its API that both know."""
    reports = f"matrix-rest-{version}.jsonl"
    done = found.tests([REST], reports, KBSLURM_TEST_REST_API=NEWEST[version])
    told = [json.loads(line) for line in (found.shared / reports).read_text().splitlines()]
    failed = [f"{one['nodeid']}: {one['longrepr']}" for one in told if one["outcome"] == "failed"]
    assert not failed, "\n".join(failed)[-8000:]
    assert done.returncode == 0, done.stdout[-4000:]


def is_read_by_pyslurm(found: Cluster) -> None:
    """A real pyslurm, where `tree.py pyslurm` has built one for this release, says what the commands say."""
    python = found.shared / "pyslurm-python"
    python.write_text('#!/bin/sh\nPYTHONPATH=/kb/pyslurm exec /usr/bin/python3 "$@"\n')
    python.chmod(0o755)
    words = ["tests/contract/test_slurm_fleet.py", "-m", "pyslurm"]
    done = found.tests(words, "pyslurm.jsonl", KBSLURM_PYSLURM_PYTHON="/shared/pyslurm-python")
    assert done.returncode == 0, done.stdout[-4000:]
