"""The cluster floor: one cluster per session; the tests of `inside/` are carried there and their reports come back.

Outside, a test of `inside/` isn't run: the first of its file sends the whole file's selection to the login node in one
go. What it then says of each test is what this session reports, so selection, counts and --last-failed work as ever.
At the default pace (`make test-faults`) each test is sent by itself: they take minutes, and each is told as it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.host_groups import NO_GROUPS
from tests.cluster.run_inside import INSIDE, PACE, REPORTS, Cluster
from tests.services import CLUSTER, in_ci, missing, sentence

HERE = Path(__file__).resolve().parent
_clusters: dict[str, Cluster | str] = {}
_results: dict[str, dict[str, list[dict[str, Any]]]] = {}  # by what was sent in one go: a file, or a test


def is_inside() -> bool:
    return os.environ.get(INSIDE) == "1"


def cluster_or_why(name: str = "main", *options: str) -> Cluster | str:
    """The session's cluster of this name, started when it is first asked for; or why there can't be one."""
    if name not in _clusters:
        _clusters[name] = _started(*options)
    return _clusters[name]


def _started(*options: str) -> Cluster | str:
    if os.geteuid() != 0:
        return "a cluster of its own needs root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap isn't installed (apt-get install mmdebstrap)"
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="kbc-")))
    done = cluster.up("start", "--with-pid", str(os.getpid()), *options, timeout_s=1200)
    return cluster if done.returncode == 0 else done.stdout.strip().rpartition("\n")[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cluster_options(*options): the options that this file's cluster is started with"
    )


def pytest_unconfigure() -> None:
    for cluster in _clusters.values():
        if isinstance(cluster, Cluster):
            keep = ["--keep-logs"] if os.environ.get("KBSLURM_TEST_KEEP_LOGS") else []
            cluster.up("stop", *keep)
            if not keep:
                shutil.rmtree(cluster.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The test cluster, for tests that run outside of it."""
    found = cluster_or_why()
    if isinstance(found, str):
        missing(CLUSTER, found)
    return found


# --------------------------------------------------------------------------------------------- carrying there and back


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if is_inside() or item.path.parent != HERE / "inside":
        return None
    alone = os.environ.get(PACE) == "default"
    sent = item.nodeid if alone else str(item.path)
    if sent not in _results:
        together = [item] if alone else [one for one in item.session.items if one.path == item.path]
        _results[sent] = _run_inside(together)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for told in _results[sent].get(item.nodeid) or [_unreported(item, _results[sent])]:
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=told)
        if report.skipped and isinstance(report.longrepr, list):
            report.longrepr = tuple(report.longrepr)  # JSON knows no tuples, and pytest asks for one
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_inside(items: list[pytest.Item]) -> dict[str, list[dict[str, Any]]]:
    options = next((mark.args for item in items for mark in item.iter_markers("cluster_options")), ())
    found = cluster_or_why(" ".join(options) or "main", *options)
    if isinstance(found, str):
        fails = in_ci() and NO_GROUPS not in found  # no CI can give a kernel what it lacks
        return {"": [{"longrepr": sentence(CLUSTER, found), "outcome": "failed" if fails else "skipped"}]}
    name = f"reports-{items[0].path.stem}.jsonl"
    (found.shared / name).unlink(missing_ok=True)
    done = found.tests([item.nodeid for item in items], name)
    reports: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if (found.shared / name).exists():
        for line in (found.shared / name).read_text().splitlines():
            told = json.loads(line)
            reports[told["nodeid"]].append(told)
    if len(reports) < len(items):
        sys.stderr.write(done.stdout[-8000:])
        reports[""] = [{"longrepr": f"it didn't run:\n{done.stdout[-3000:]}", "outcome": "failed"}]
    return reports


def _unreported(item: pytest.Item, results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    said = results.get("", [{"longrepr": "it left no report", "outcome": "failed"}])[0]
    path, line, name = item.location
    why: Any = said["longrepr"]
    return {
        "$report_type": "TestReport",
        "nodeid": item.nodeid,
        "location": [path, line, name],
        "keywords": {},
        "outcome": said["outcome"],
        "longrepr": [path, line, f"Skipped: {why}"] if said["outcome"] == "skipped" else why,
        "when": "setup",
        "sections": [],
        "duration": 0,
        "start": 0,
        "stop": 0,
    }


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Inside: each report becomes a line that the session outside reads."""
    outcome: Any = yield
    if is_inside():
        report = outcome.get_result()
        told = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        with Path(os.environ[REPORTS]).open("a") as file:
            file.write(json.dumps(told) + "\n")
