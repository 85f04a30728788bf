"""Faults of a real Ray: heads, workers and nodes die in mid-run. Each attempt has one end, and nothing runs twice.

Ray runs at its default settings; only our clock is put forward, where a node's silence has to be waited out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import Ending, OpenAttempt, Seen
from kbslurm.errors import BackendTrouble
from kbslurm.flow.place import Place
from kbslurm.ports import JobSpec
from kbslurm.problems import loading
from tests import databases
from tests.chaos.history import check
from tests.contract.backend_suite import (
    attempt_of,
    executions,
    is_alive,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)
from tests.contract.ray_rig import GPU, KEY, RayCase, ray_case
from tests.flow.stage import QUICK, Stage, running
from tests.popcorn.served_api import TRANSPOSE
from tests.ray_cluster import RayCluster
from tests.services import RAY_CLUSTER, REDIS, USER_NAMESPACES, needs

pytestmark = needs(RAY_CLUSTER)
OTHER = {"lost": 1.0}


@pytest.fixture(scope="module")
def lasting(postgres_server: databases.Server, template_database: str) -> Iterator[RayCase]:
    """A cluster whose head has a store."""
    with RayCluster(redis=True) as ray:
        ray.add_worker(resources={GPU: 3})
        with ray_case(postgres_server, template_database, ray) as case:
            yield case


@pytest.fixture
def case(lasting: RayCase) -> Iterator[RayCase]:
    yield lasting
    lasting.later_s = 0.0


@pytest.fixture
def forgetful(postgres_server: databases.Server, template_database: str) -> Iterator[RayCase]:
    """A cluster whose head has none."""
    with RayCluster() as ray:
        ray.add_worker(resources={GPU: 1})
        with ray_case(postgres_server, template_database, ray) as case:
            yield case


def begun_on(case: RayCase, resources: dict[str, float], *, tree: bool) -> tuple[JobSpec, OpenAttempt, list[int]]:
    """A job that has begun on a worker with these, and its processes. A `tree` ignores every signal that it can."""
    backend = case.backend(resources=resources)
    pids = case.folder / f"pids-{tree}"
    job = make_job(case, "tree", pids=str(pids), stay=True) if tree else make_job(case, "sleep")
    attempt = attempt_of(case, job, backend.submit(job))
    wait_counted(case, job)
    found = [int(pid) for pid in (case.folder / f"{job.name}.count").read_text().split()]
    if tree:
        wait_until(case, "its processes are there", lambda: pids.exists() and len(pids.read_text().split()) == 3)
        found += [int(pid) for pid in pids.read_text().split()]
    return job, attempt, found


def ends_as(case: RayCase, attempt: OpenAttempt, *endings: Ending) -> None:
    """It ends so, however it is seen on the way, and stays so."""
    backend = case.backend()

    def seen() -> Seen:
        try:
            return backend.poll([attempt])[attempt.name].seen
        except BackendTrouble:
            return Seen.UNKNOWN

    wait_until(case, "it has ended", lambda: seen() is Seen.ENDED)
    first = backend.poll([attempt])[attempt.name]
    assert first.ending in endings, first
    assert case.backend().find(attempt.name).ending is first.ending


@pytest.mark.faults  # the walk below has a node removed; here each of the two is looked at more closely
@pytest.mark.parametrize("only_ray", [False, True], ids=["node-removed", "worker-killed"])
def test_a_worker_that_dies_takes_its_run_along_and_only_silence_proves_it(case: RayCase, only_ray: bool) -> None:
    worker = case.ray.add_worker(resources=OTHER)
    job, attempt, pids = begun_on(case, OTHER, tree=only_ray)
    worker.kill_ray() if only_ray else worker.kill()
    wait_until(case, "none of it is left", lambda: not any(map(is_alive, pids)))
    wait_until(case, "Ray says FAILED", lambda: (case.ray.job(job.name) or {}).get("status") == "FAILED")
    row = case.jobs.look([job.name])[job.name]
    if not row.reported:  # killed with its node, it couldn't say anything
        assert case.backend().poll([attempt])[attempt.name].seen in (Seen.RUNNING, Seen.UNKNOWN), "not known yet"
        case.later_s = 200.0
    ends_as(case, attempt, Ending.NODE_FAILURE, Ending.NO_REPORT)
    assert case.backend().collect(attempt) is None
    case.backend().submit(job)
    assert executions(case, job) == 1
    if only_ray:
        worker.kill()


@needs(REDIS)
def test_a_head_that_is_replaced_with_its_store_costs_no_run(case: RayCase) -> None:
    backend = case.backend()
    until = case.folder / "until"
    running, waiting = (make_job(case, "wait", until=str(until)) for _ in range(2))
    attempt = attempt_of(case, running, backend.submit(running))
    wait_counted(case, running)
    pending = attempt_of(case, waiting, case.backend(resources={"nowhere": 1}).submit(waiting))
    wait_seen(case, backend, pending, Seen.WAITING)
    case.ray.kill_head()
    with pytest.raises(BackendTrouble):
        backend.find(waiting.name)
    assert backend.poll([attempt])[attempt.name].seen is Seen.RUNNING, "its node says so"
    case.ray.start_head()
    until.touch()
    ends_as(case, attempt, Ending.REPORTED)
    assert case.backend().collect(attempt) is not None
    assert executions(case, running) == 1
    case.backend().cancel(pending)
    ends_as(case, pending, Ending.CANCELLED, Ending.BOOT_FAILURE)
    assert executions(case, waiting) == 0


def test_a_head_that_forgets_everything_loses_no_result_and_starts_nothing_late(forgetful: RayCase) -> None:
    case = forgetful
    backend = case.backend()
    until = case.folder / "until"
    running, waiting = (make_job(case, "wait", until=str(until)) for _ in range(2))
    attempt = attempt_of(case, running, backend.submit(running))
    wait_counted(case, running)
    pending = attempt_of(case, waiting, backend.submit(waiting))
    wait_seen(case, backend, pending, Seen.WAITING)
    case.ray.replace_head()
    assert case.ray.job(running.name) is None
    ends_as(case, pending, Ending.VANISHED, Ending.CANCELLED)
    seen = backend.poll([attempt])[attempt.name].seen
    assert seen in (Seen.RUNNING, Seen.UNKNOWN, Seen.ENDED) and executions(case, running) == 1
    until.touch()
    if not case.jobs.look([running.name])[running.name].reported:  # Ray's worker may have ended it with itself
        wait_until(case, "it is known", lambda: settled(case, attempt))
    ends_as(case, attempt, Ending.REPORTED, Ending.NODE_FAILURE, Ending.NO_REPORT)
    case.backend().submit(waiting)
    assert executions(case, running) == 1 and executions(case, waiting) == 0


def settled(case: RayCase, attempt: OpenAttempt) -> bool:
    """Whether its result is there, or its processes are gone: then silence is waited out."""
    row = case.jobs.look([attempt.name])[attempt.name]
    pids = (case.folder / f"{attempt.name}.count").read_text().split()
    if not row.reported and not any(is_alive(int(pid)) for pid in pids):
        case.later_s = 200.0
    return row.reported or case.later_s > 0


# ------------------------------------------------------------------------------------------------------ the whole walk

PROBING = """
import os, socket, time

def custom_kernel(data):
    time.sleep(0.5)
    for path in (KEY_FILE, "/proc/1/environ"):
        try:
            with open(path) as file:
                raise RuntimeError(f"it could read {path}: {file.read(9)}")
        except OSError:
            pass
    found = [name for name in os.environ if name.startswith("RAY") or name.startswith("KBSLURM_TEST")]
    if found:
        raise RuntimeError(f"it saw {found}")
    try:
        socket.create_connection(("127.0.0.1", PORT), 2.0)
        raise RuntimeError("it reached Ray")
    except OSError:
        pass
    rows, cols, pixels = data
    size = rows * cols
    return bytes([pixels[place] for col in range(cols) for place in range(col, size, cols)])
"""


@dataclass
class Ahead:
    """The time, so many seconds ahead."""

    by_s: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.by_s)


@needs(USER_NAMESPACES)
def test_a_run_whose_worker_dies_is_tried_again_and_a_caged_submission_finds_no_way_to_ray(
    lasting: RayCase, postgres_server: databases.Server, template_database: str
) -> None:
    ray = lasting.ray
    with ray_case(postgres_server, template_database, ray, fake=False) as case:
        clock = Ahead()
        problem = loading.load(TRANSPOSE)
        stage = Stage.build(case.database, problem=problem, gpus=(GPU,), clock=clock)
        backend = case.backend(resources=OTHER, min_isolation=2, now=clock.now)
        place = Place(backend=backend, poll_s=0.5, grace_s=1.0, sweep_gap_s=1.0)
        assert case.key_file.read_text() == KEY.hex(), "whoever isn't caged reads it"
        text = PROBING.replace("KEY_FILE", repr(str(case.key_file))).replace("PORT", str(ray.dashboard_port))
        worker = ray.add_worker(resources=OTHER)
        with closing(stage), running(Daemon(stage.store, [place], clock=clock, timing=QUICK)):
            stage.submit(text)
            stage.wait_until(lambda: stage.rows("SELECT 1 FROM attempt WHERE state = 'running'") != [])
            worker.kill()
            replaced = ray.add_worker(resources=OTHER)
            wait_until(case, "Ray says FAILED", lambda: "FAILED" in ray.stored())
            clock.by_s = 200.0
            stage.wait_until(lambda: stage.run()["state"] not in ("queued", "launching", "running"))
            run = stage.run()
            tries = stage.rows("SELECT ending, reason, node FROM attempt ORDER BY number")
            assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 2), (run, tries)
            check(stage)
            assert [row["ending"] for row in tries] == ["node_failure", "reported"], tries
            assert stage.rows("SELECT isolation FROM verdict") == [{"isolation": 2}]
            (late, _) = stage.rows("SELECT claimant, result IS NULL AS nothing FROM node_job ORDER BY offered_at")
            assert late["claimant"] and late["nothing"]
        replaced.kill()
