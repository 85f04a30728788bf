"""Runs in Apptainer on a Ray node: a real Ray, a real Apptainer, and what is left when a run ends in any way."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.ray import check
from kbslurm.backends.ray.backend import RayBackend, RayGpu, RayImage, RayNodes
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.finding import Grade
from kbslurm.domain.manifest import manifest_for, manifest_text, time_limit_s
from kbslurm.domain.run import Ending, OpenAttempt, Seen, new_job_name
from kbslurm.domain.secret_names import of_ray
from kbslurm.flow.place import Place
from kbslurm.images import pins
from kbslurm.ports import JobSpec
from kbslurm.problems import loading
from kbslurm_eval.shared import wire
from tests import databases
from tests.chaos.history import check as check_history
from tests.contract.backend_suite import attempt_of, key_of, wait_seen, wait_until
from tests.contract.ray_node import IMAGE, KEY, PROGRAM, ContainerNode, has_runner, processes_of
from tests.contract.ray_rig import GPU, RayCase, ray_case
from tests.contract.ray_rig import KEY as RUN_KEY
from tests.flow.held import held
from tests.flow.stage import QUICK, Stage, running
from tests.popcorn.served_api import TRANSPOSE
from tests.ray_cluster import RayCluster
from tests.services import CLUSTER, RAY_CLUSTER, needs

pytestmark = needs(RAY_CLUSTER, CLUSTER)
PROBLEM = loading.load(TRANSPOSE)
PATIENT = replace(PROBLEM, limits=replace(PROBLEM.limits, test_s=300.0))  # whoever sleeps is ended by us
PROGRAMS = ("apptainer", "singularity")
HONEST = (TRANSPOSE / "submissions" / "accepted" / "columns.py").read_text()
SLEEPING = "import time\n\ndef custom_kernel(data):\n    time.sleep(600)\n"
# It passes only where it should be: in the image, and with nothing of the node in reach.
PROBING = f"""
import os, socket

def custom_kernel(data):
    for path in ({KEY!r}, "/kb/venv", "/usr/bin/apptainer", "/shared", "/proc/1/environ"):
        try:
            os.stat(path) if path.startswith(("/kb", "/usr", "/shared")) else open(path).close()
            raise RuntimeError(f"it found {{path}}")
        except OSError:
            pass
    found = [name for name in os.environ if name.startswith(("RAY", "KBSLURM"))]
    if found:
        raise RuntimeError(f"it saw {{found}}")
    try:
        socket.create_connection(("127.0.0.1", PORT), 2.0)
        raise RuntimeError("it reached Ray")
    except OSError:
        pass
    rows, cols, pixels = data
    size = rows * cols
    return bytes([pixels[place] for col in range(cols) for place in range(col, size, cols)])
"""
# An Apptainer whose options somebody has taken away: its containers have the node's network.
OPEN = f"""#!/bin/sh
for word; do
    shift
    case $word in --net | --network | none) ;; *) set -- "$@" "$word" ;; esac
done
exec {PROGRAM} "$@"
"""

# One that starts everything but a judge.
BROKEN = f"""#!/bin/sh
case " $* " in *" --supervisor "*) exit 255 ;; esac
exec {PROGRAM} "$@"
"""


@dataclass
class ContainerCase:
    """A Ray case, and its node."""

    ray: RayCase
    node: ContainerNode
    began: dict[int, str] = field(default_factory=dict)  # a number may be another process's after a while

    def backend(self, *, instead: str | None = None, image: dict[str, Any] | None = None, **told: Any) -> RayBackend:
        kept = RayImage(**{"path": IMAGE, "programs": ("apptainer",), "vendor": "none", **(image or {})})
        resources = told.pop("resources", {GPU: 1})
        return self.ray.backend(
            **{
                "gpus": {GPU: RayGpu(num_gpus=0, resources=resources, slots=3, image=kept)},
                "nodes": RayNodes(
                    service_url=self.ray.service_url or self.ray.api.url, key_file=KEY, python=self.node.python(instead)
                ),
                "min_isolation": 2,
                **told,
            }
        )

    def job(self, source: str) -> JobSpec:
        name = new_job_name()
        told = manifest_for(
            PATIENT,
            token=name,
            attempt=1,
            nonce="nonce",
            mode="test",
            gpu=GPU,
            source=source,
            secret_seed="1",
        )
        return JobSpec(
            name=name,
            gpu=GPU,
            manifest=manifest_text(told),
            key=key_of(name),
            time_limit_s=time_limit_s(PATIENT, "test"),
            memory_bytes=PATIENT.limits.memory_bytes,
        )

    def sleeping(self, **told: Any) -> tuple[RayBackend, OpenAttempt, set[int]]:
        """A run in whose container the submission's process has begun; all its processes."""
        backend = self.backend(**told)
        job = self.job(SLEEPING)
        attempt = attempt_of(self.ray, job, backend.submit(job))
        wait_until(self.ray, "a runner has begun", lambda: has_runner(job.name))
        pids = processes_of(job.name)
        self.began |= {pid: began_at(pid) for pid in pids}
        return backend, attempt, pids

    def ended(self, backend: RayBackend, attempt: OpenAttempt) -> Any:
        wait_until(self.ray, "it has ended", lambda: backend.poll([attempt])[attempt.name].seen is Seen.ENDED)
        return backend.poll([attempt])[attempt.name]

    def _left(self, pids: set[int]) -> list[str]:
        """Those of these processes that live: their states and command lines."""
        found = []
        for pid in pids:
            with suppress(OSError):
                place = Path(f"/proc/{pid}")
                if (place / "exe").exists() and began_at(pid) == self.began.get(pid):
                    words = (place / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"{pid} {(place / 'wchan').read_text()} {words[:200]!r}")
        return found

    def nothing_is_left(self, attempt: OpenAttempt, pids: set[int]) -> None:
        """Of this attempt, in processes, memory or on the disk."""
        try:
            wait_until(self.ray, "its processes are gone", lambda: not self._left(pids))
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._left(pids)}") from None
        wait_until(self.ray, "nobody bears its name", lambda: not processes_of(attempt.name))
        wait_until(self.ray, "its folder is gone", lambda: self.node.left_on_disk() == [])
        assert self.node.in_memory() == []


def began_at(pid: int) -> str:
    """When this process began, in the kernel's words; empty if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


@pytest.fixture(scope="module")
def whole_case(postgres_server: databases.Server, template_database: str) -> Iterator[ContainerCase]:
    with ExitStack() as held_open, tempfile.TemporaryDirectory(prefix="kbray-node-") as place:
        Path(place).chmod(0o755)
        node = ContainerNode.made(Path(place) / "node", RUN_KEY)
        held_open.callback(node.remove)
        with RayCluster() as ray:
            ray.add_worker(resources={GPU: 3})
            with ray_case(postgres_server, template_database, ray, fake=False) as case:
                yield ContainerCase(ray=case, node=node)


@pytest.fixture
def case(whole_case: ContainerCase) -> Iterator[ContainerCase]:
    yield whole_case
    whole_case.ray.later_s, whole_case.ray.service_url = 0.0, ""


def report_of(backend: RayBackend, attempt: OpenAttempt) -> wire.Report:
    sealed = backend.collect(attempt)
    assert sealed is not None
    return wire.unseal(sealed, key_of(attempt.name))


# ---------------------------------------------------------------------------------------------------- in the image


def test_a_run_is_in_the_image_at_level_2_and_finds_no_way_to_ray(case: ContainerCase) -> None:
    backend = case.backend()
    job = case.job(PROBING.replace("PORT", str(case.ray.ray.dashboard_port)))
    attempt = attempt_of(case.ray, job, backend.submit(job))
    ended = wait_seen(case.ray, backend, attempt, Seen.ENDED)
    assert ended.ending is Ending.REPORTED, ended
    report = report_of(backend, attempt)
    assert report.verdict == "passed", report.reason
    digest = pins.digest_of((case.node.folder / "images").resolve() / "cpu.sif")
    assert (report.isolation.means, report.isolation.level) == ("apptainer", 2), report.isolation
    assert (report.host["image"], report.host["image_digest"]) == (IMAGE, digest)
    case.nothing_is_left(attempt, set())
    assert list((case.node.folder / "var-tmp").glob(".kb-images-*/file-*")), "the image isn't read again next time"
    for hidden in (job.key.hex(), "custom_kernel", IMAGE):
        assert hidden not in case.ray.ray.stored(), "Ray keeps a name, and nothing else"


@pytest.mark.parametrize(
    ("image", "instead", "said"),
    [
        ({"path": "/opt/kb/images/none.sif"}, None, "there is no image /opt/kb/images/none.sif on"),
        ({"digest": "sha256:" + "0" * 64}, None, "the image cpu.sif is sha256:"),
        ({}, "", "there is no apptainer on"),
        ({}, BROKEN, "the container wouldn't start"),
    ],
    ids=["no-image", "another-image", "no-apptainer", "broken-apptainer"],
)
def test_a_node_without_the_image_runs_nothing_and_says_so(
    case: ContainerCase, image: dict[str, Any], instead: str | None, said: str
) -> None:
    backend = case.backend(image=image, instead=instead)
    job = case.job(HONEST)
    attempt = attempt_of(case.ray, job, backend.submit(job))
    ended = wait_seen(case.ray, backend, attempt, Seen.ENDED)
    assert ended.ending is Ending.IMAGE and said in ended.reason, ended
    assert ended.node is not None and f"on {ended.node}" in ended.reason, "it names the node"
    assert backend.collect(attempt) is None
    case.nothing_is_left(attempt, set())


def test_only_where_it_is_allowed_a_node_without_apptainer_uses_the_harnesss_own_cage(case: ContainerCase) -> None:
    backend = case.backend(instead="", image={"programs": PROGRAMS, "or_own_cage": True})
    job = case.job(HONEST)
    attempt = attempt_of(case.ray, job, backend.submit(job))
    assert wait_seen(case.ray, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    report = report_of(backend, attempt)
    assert report.verdict == "passed" and report.isolation.level == 2
    assert report.isolation.means != "apptainer" and "image" not in report.host


def test_below_level_2_nothing_of_a_submission_runs_in_a_container_either(case: ContainerCase) -> None:
    backend = case.backend(instead=OPEN)
    job = case.job("raise SystemExit('it was run')\n")
    attempt = attempt_of(case.ray, job, backend.submit(job))
    assert wait_seen(case.ray, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    report = report_of(backend, attempt)
    assert report.verdict == "infrastructure", (report.verdict, report.reason)
    assert "isolation level 1 was reached, 2 is needed here" in report.reason
    case.nothing_is_left(attempt, set())


# ------------------------------------------------------------------------------------------------ ended in mid-run


def test_a_cancel_leaves_nothing_of_it(case: ContainerCase) -> None:
    backend, attempt, pids = case.sleeping()
    assert case.node.in_memory() and case.node.left_on_disk(), "there is something that could be left"
    backend.cancel(attempt)
    assert case.ended(backend, attempt).ending is Ending.CANCELLED
    case.nothing_is_left(attempt, pids)


def test_a_node_that_is_told_to_stop_leaves_nothing_of_it(case: ContainerCase) -> None:
    backend, attempt, pids = case.sleeping()
    assert case.ray.ray.call("POST", f"/api/jobs/{attempt.name}/stop").status_code == 200
    ended = case.ended(backend, attempt)
    assert ended.ending in (Ending.CANCELLED, Ending.NO_REPORT) and backend.collect(attempt) is None
    case.nothing_is_left(attempt, pids)


def test_a_node_that_loses_its_way_to_us_ends_its_containers_itself(case: ContainerCase) -> None:
    with held(case.ray.api.url) as ours:
        case.ray.service_url = ours.url
        backend, attempt, pids = case.sleeping(lease_s=4.0)
        ours.hold()
        wait_until(case.ray, "its containers are gone", lambda: not has_runner(attempt.name))
        ours.let_go()
        ended = case.ended(backend, attempt)
    assert ended.ending is Ending.NO_REPORT and "couldn't reach the service for 4 s" in ended.reason
    case.nothing_is_left(attempt, pids)


@pytest.mark.parametrize("which", ["the supervisor around it", "the supervisor in the job"])
def test_whoever_is_killed_of_it_nothing_is_left(case: ContainerCase, which: str) -> None:
    backend, attempt, pids = case.sleeping()
    sign = b"supervise.main" if which == "the supervisor around it" else b"/bin/sh\0-c"
    (victim,) = [pid for pid in pids if sign in Path(f"/proc/{pid}/cmdline").read_bytes() and _leads(pid, pids)]
    os.kill(victim, signal.SIGKILL)
    ended = case.ended(backend, attempt)
    assert ended.ending in (Ending.IMAGE, Ending.NO_REPORT), ended
    case.nothing_is_left(attempt, pids)


def _leads(pid: int, pids: set[int]) -> bool:
    """Whether it isn't one of its own kind that has started it, as a shell's subshells are."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Path(f"/proc/{fields[1]}/cmdline").read_bytes() != Path(f"/proc/{pid}/cmdline").read_bytes()


@dataclass
class Ahead:
    """The time, so many seconds ahead."""

    by_s: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.by_s)


def test_a_run_whose_worker_dies_has_one_verdict_and_the_next_run_clears_up(
    case: ContainerCase, postgres_server: databases.Server, template_database: str
) -> None:
    ray, lost = case.ray.ray, {"lost": 1.0}
    with ray_case(postgres_server, template_database, ray, fake=False) as own:
        clock = Ahead()
        walk = ContainerCase(ray=own, node=case.node)
        stage = Stage.build(own.database, problem=PATIENT, gpus=(GPU,), clock=clock)
        place = Place(backend=walk.backend(resources=lost, now=clock.now), poll_s=0.5, grace_s=1.0, sweep_gap_s=1.0)
        worker = ray.add_worker(resources=lost)
        slow = "import time\n" + PROBING.replace("PORT", str(ray.dashboard_port)).replace(
            "    rows,", "    time.sleep(1.0)\n    rows,"
        )
        with closing(stage), running(Daemon(stage.store, [place], clock=clock, timing=QUICK)):
            stage.submit(slow)
            stage.wait_until(lambda: stage.rows("SELECT 1 FROM attempt WHERE state = 'running'") != [])
            (first,) = stage.rows("SELECT name FROM attempt")
            wait_until(own, "a runner has begun", lambda: has_runner(first["name"]))
            pids = processes_of(first["name"])
            worker.kill()
            for pid in pids:  # what has hidden from its mark is on that machine, too
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(own, "all of it is gone", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
            assert case.node.in_memory(), "whoever would have removed it is gone as well"
            for folder in (walk.node.folder / "tmp").glob("kbslurm-node-*/of-*"):
                os.utime(folder, (0, 0))  # it isn't one that has just been made
            ray.add_worker(resources=lost)
            clock.by_s = 200.0
            stage.wait_until(lambda: stage.run()["state"] not in ("queued", "launching", "running"))
            run = stage.run()
            tries = stage.rows("SELECT ending, reason, node FROM attempt ORDER BY number")
            assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 2), (run, tries)
            check_history(stage)
            assert stage.rows("SELECT isolation FROM verdict") == [{"isolation": 2}]
        assert case.node.in_memory() == [] and walk.node.left_on_disk() == []


# ---------------------------------------------------------------------------------------------------------- the check


def test_the_check_names_the_image_and_what_only_a_node_can_say(case: ContainerCase) -> None:
    told = [one for one in check.findings(case.backend(), RUN_KEY, of_ray("pool")) if one.name == "image"]
    assert [(one.grade, one.where) for one in told] == [(Grade.UNSEEN, GPU)]
    assert told[0].text.startswith(f"{IMAGE}, by apptainer")
    assert told[0].remedy == f"On a worker: test -r {IMAGE} && {{ apptainer --version; }}"
