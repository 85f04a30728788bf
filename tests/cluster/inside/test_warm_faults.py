"""What a cluster does to a run in a keeper: no run is lost, none runs twice, none gets a second verdict, and what
befalls the keeper is never held against the submission."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.domain.keepers import Keeper, KeeperState
from kbslurm.domain.run import JobName
from kbslurm.flow.script import keepers_folder
from tests.cluster.inside import control
from tests.cluster.inside.site import at_default_pace
from tests.cluster.inside.walk import GOOD, PATIENCE_S, Walk, submission, walk_at
from tests.cluster.inside.warming import OpenKeeper

WARM = """
[gpus.H100.warm]
max = 2
idle = "5m"
life = "1h"
[gpus.LOW]
request = "--gres=gpu:h100:1"
partition = "low"
vendor = "none"
image = "cpu"
memory = "2G"
[gpus.LOW.warm]
max = 1
idle = "5m"
life = "1h"
"""
# More than its step has.
HUNGRY = "held = bytearray(3 << 30)\nimport time\ntime.sleep(60)\n" + submission(GOOD)
# Everything that it can name.
DEADLY = "import os, signal\ntry:\n    os.kill(-1, signal.SIGKILL)\nexcept OSError:\n    pass\n" + submission(GOOD)


def held_up(seconds: float) -> str:
    """A correct submission that isn't done before so long from now, however often it is begun."""
    return f"import time\ntime.sleep(max(0, {time.time() + seconds} - time.time()))\n" + submission(GOOD)


@pytest.fixture
def walk(database_url: str, request: pytest.FixtureRequest) -> Iterator[Walk]:
    folder = Path("/shared/warm-faults") / request.node.name.replace("[", "-").rstrip("]")
    with walk_at(database_url, folder, gpus=("H100", "LOW"), more=WARM, start="30s") as found:
        yield found
    subprocess.run(["scancel", "--me"], check=False)
    control.settle()


@contextmanager
def holding(walk: Walk, gpu: str = "H100", count: int = 1) -> Iterator[tuple[SlurmBackend, list[OpenKeeper]]]:
    """A daemon, and so many keepers that hold a GPU each and wait for work."""
    store, warm = walk.stage.store, walk.site.gpus[gpu].warm
    assert warm is not None
    with walk.daemon() as backend:
        for _ in range(count):
            now = walk.stage.clock.now()
            made = store.keepers.order(
                "test", gpu, life_s=warm.life_s, idle_s=warm.idle_s, most=count, why="a test", now=now, by="host"
            )
            assert made is not None
        yield backend, wait_holding(walk, count)


def keepers(walk: Walk) -> Sequence[Keeper]:
    return walk.stage.store.keepers.open()


def wait_holding(walk: Walk, count: int = 1) -> list[OpenKeeper]:
    def found() -> list[Keeper]:
        return [one for one in keepers(walk) if one.state is KeeperState.HOLDING]

    walk.stage.wait_until(lambda: len(found()) == count, patience_s=PATIENCE_S)
    return [OpenKeeper(keeper=one, site=walk.site) for one in found()]


def wait_gone(walk: Walk, one: OpenKeeper) -> dict[str, Any]:
    """The row of a keeper that has ended."""

    def row() -> dict[str, Any]:
        (found,) = walk.stage.rows("SELECT * FROM keeper WHERE name = %s", one.keeper.name)
        return dict(found)

    walk.stage.wait_until(lambda: row()["state"] == "ended", patience_s=PATIENCE_S)
    return row()


def is_step_of(handle: str, one: OpenKeeper) -> bool:
    job, _, step = handle.partition(".")
    return job == one.job and step.isdigit()


def wait_warm(walk: Walk, one: OpenKeeper) -> dict[str, Any]:
    """The first attempt, once its judge has begun as a step of this keeper."""
    row = walk.wait_began()
    assert is_step_of(row["handle"], one), row
    return row


def went_cold(walk: Walk, one: OpenKeeper) -> dict[str, Any]:
    """The first attempt, whose run was tried again as a job of its own and passed: nothing goes into a keeper twice."""
    walk.is_well(attempts=2)
    first, second = walk.attempts()
    assert first["handle"].startswith(f"{one.job}.") and second["handle"].isdigit(), (first, second)
    assert walk.gave_up() == first["reason"]
    return first


def steps() -> str:
    ask = ["squeue", "--me", "-h", "-s", "-o", "%i"]
    return subprocess.run(ask, capture_output=True, text=True, check=False).stdout


def scancel(one: OpenKeeper) -> None:
    subprocess.run(["scancel", one.job], check=True)


def test_runs_follow_one_another_in_a_keeper_and_the_scheduler_is_asked_nothing(walk: Walk) -> None:
    with holding(walk) as (backend, (one,)):
        before = dict(backend.calls())
        for number in range(3):
            walk.stage.submit(submission(GOOD), by=f"p{number}", gpus=["H100"])
            runs = walk.wait_ended(number + 1)
        assert backend.calls() == before
    assert [(run["verdict"], run["attempts"]) for run in runs] == [("passed", 1)] * 3
    steps = [row["handle"] for row in walk.attempts()]
    assert all(is_step_of(step, one) for step in steps) and len(set(steps)) == 3
    assert (walk.claims(), walk.verdicts()) == (3, 3)


def test_two_keepers_on_a_node_have_a_gpu_each(walk: Walk) -> None:
    def device(row: dict[str, Any]) -> str:
        """The GPU that the attempt's step was given, by the environment of its script."""
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                told = dict(word.split("=", 1) for word in file.read_text().split("\0") if "=" in word)
            except OSError:
                continue
            if told.get("KB_STEP") == row["name"]:
                # Where a control group holds only the step's devices, they're numbered from 0 for CUDA.
                return f"{told['SLURMD_NODENAME']}:{told.get('SLURM_STEP_GPUS') or told['CUDA_VISIBLE_DEVICES']}"
        raise AssertionError("its step isn't there")

    with holding(walk, count=2):
        for number in range(2):
            walk.stage.submit(held_up(12), by=f"p{number}", gpus=["H100"])
        walk.stage.wait_until(lambda: [row["state"] for row in walk.attempts()] == ["running"] * 2)
        used = {device(row) for row in walk.attempts()}
        walk.wait_ended(2)
    assert len(used) == 2, used
    assert walk.verdicts() == 2


def test_a_keeper_that_is_cancelled_in_mid_run(walk: Walk) -> None:
    """While another one lives on."""
    with holding(walk, count=2) as (_, both):
        walk.stage.submit(held_up(20), gpus=["H100"])
        job, _, _ = walk.wait_began()["handle"].partition(".")
        (one,) = [keeper for keeper in both if keeper.job == job]
        scancel(one)
        first = went_cold(walk, one)
        assert wait_gone(walk, one)["ending"] == "cancelled"
    assert first["ending"] == "keeper_left"
    assert first["reason"].startswith("its warm worker ended on h")


def test_a_keeper_that_is_preempted(walk: Walk) -> None:
    with holding(walk, "LOW") as (_, (one,)):
        walk.stage.submit(held_up(20), gpus=["LOW"])
        node = wait_warm(walk, one)["node"]
        sbatch = ["sbatch", "--parsable", "-p", "high", "-w", node, "--gres=gpu:3", "--mem=100M", "-o", "/dev/null"]
        subprocess.run([*sbatch, "--wrap", "sleep 3"], check=True, stdout=subprocess.DEVNULL)
        first = went_cold(walk, one)
        gone = wait_gone(walk, one)
        assert gone["ending"] == "preempted", gone["reason"]
    assert first["ending"] == "preempted" and "PREEMPTED" in first["reason"]


def test_a_keeper_that_is_requeued_from_outside(walk: Walk) -> None:
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(20), gpus=["H100"])
        wait_warm(walk, one)
        control.as_root("scontrol", "update", f"jobid={one.job}", "requeue=1")  # against our --no-requeue
        control.as_root("scontrol", "requeue", one.job)
        first = went_cold(walk, one)
        assert wait_gone(walk, one)["ending"] == "cancelled"
    assert first["ending"] == "keeper_left" and "requeued from outside" in first["reason"]


def test_a_keeper_whose_time_is_over_in_mid_run(walk: Walk) -> None:
    """Its limit isn't the run's: nobody is blamed for a timeout."""
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(50), gpus=["H100"])
        wait_warm(walk, one)
        control.as_root("scontrol", "update", f"jobid={one.job}", "EndTime=now")
        first = went_cold(walk, one)
        assert wait_gone(walk, one)["ending"] == "life"
    assert first["ending"] == "keeper_left" and "TIMEOUT" in first["reason"]


def test_a_keeper_whose_node_loses_power(walk: Walk) -> None:
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(20), gpus=["H100"])
        node = wait_warm(walk, one)["node"]
        control.daemon("kill", f"node:{node}")
        try:
            control.as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
            assert went_cold(walk, one)["ending"] == "node_failure"
            assert wait_gone(walk, one)["ending"] == "node_failure"
        finally:
            control.daemon("start", f"slurmd:{node}")
            control.resume(node)


def test_a_slurmd_that_dies_and_comes_back_costs_nothing(walk: Walk) -> None:
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(8), gpus=["H100"])
        node = wait_warm(walk, one)["node"]
        control.daemon("kill", f"slurmd:{node}")
        control.daemon("start", f"slurmd:{node}")
        walk.is_well()


def test_a_controller_that_is_gone_while_a_step_runs(walk: Walk) -> None:
    """What runs is scored by its report. What can't be begun without it is certainly not begun, and waits for it."""
    gone_s = 90 if at_default_pace() else 15
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(8), gpus=["H100"])
        wait_warm(walk, one)
        control.daemon("stop", "slurmctld")
        back_at = time.monotonic() + gone_s
        try:
            walk.is_well()
            walk.stage.submit(submission(GOOD), by="second", gpus=["H100"])
            walk.stage.wait_until(lambda: time.monotonic() > back_at, patience_s=2 * gone_s)
        finally:
            control.daemon("start", "slurmctld")
        runs = walk.wait_ended(2)
    assert [run["verdict"] for run in runs] == ["passed", "passed"]
    assert walk.verdicts() == 2
    assert [row["ending"] for row in walk.attempts()][:1] == ["reported"]


@pytest.mark.parametrize("why", ["busy", "step-limit"])
def test_a_step_that_slurm_refuses_is_certainly_not_started(walk: Walk, why: str) -> None:
    conf = "/etc/slurm/slurm.conf"
    with holding(walk) as (_, (one,)):
        if why == "busy":
            options = ["--exact", "--mem=100M", "--gres=gpu:h100:1", "-n1", "-c1"]
            taking = subprocess.Popen(
                ["srun", f"--jobid={one.job}", *options, "sleep", "60"], stderr=subprocess.DEVNULL
            )
            walk.stage.wait_until(
                lambda: (
                    f"{one.job}.0" in subprocess.run(["squeue", "--me", "-hs"], capture_output=True, text=True).stdout
                )
            )
        else:
            walk.stage.submit(submission(GOOD), by="the first", gpus=["H100"])
            walk.wait_ended(1)
            control.as_root("sh", "-c", f"echo MaxStepCount=1 >>{conf}; scontrol reconfigure")
        try:
            walk.stage.submit(submission(GOOD), by="the last", gpus=["H100"])
            walk.wait_ended(1 if why == "busy" else 2)
        finally:
            if why == "busy":
                taking.terminate()
                taking.wait()
            else:
                control.as_root("sh", "-c", f"sed -i /MaxStepCount/d {conf}; scontrol reconfigure")
    *_, refused, cold = walk.attempts()
    assert refused["ending"] == "withdrawn" and "its warm worker didn't start it: " in refused["reason"], refused
    assert cold["handle"].isdigit() and cold["state"] == "reported"
    assert walk.verdicts() == (1 if why == "busy" else 2)


def test_an_srun_that_is_killed(walk: Walk) -> None:
    with holding(walk) as (_, (one,)):
        walk.stage.submit(held_up(15), gpus=["H100"])
        first = wait_warm(walk, one)
        srun = [
            int(file.parent.name)
            for file in Path("/proc").glob("[0-9]*/cmdline")
            if f"--job-name={first['name']}".encode() in _read(file)
        ]
        assert srun
        for pid in srun:
            with suppress(ProcessLookupError):  # the second of its processes goes with the first
                os.kill(pid, signal.SIGKILL)
        (run,) = walk.wait_ended()
    assert (run["verdict"], walk.verdicts()) == ("passed", 1)
    # Where the step lives on without its srun it is waited for; where it is killed too, the run is tried again.
    assert walk.claims() == run["attempts"] <= 2


def test_a_submission_that_kills_what_it_can_reach(walk: Walk) -> None:
    """It reaches nobody: neither its judge nor its keeper, which serves the next one."""
    with holding(walk) as (_, (one,)):
        walk.stage.submit(DEADLY, gpus=["H100"])
        walk.wait_ended()
        walk.stage.submit(submission(GOOD), by="the next", gpus=["H100"])
        runs = walk.wait_ended(2)
        assert [keeper.name for keeper in keepers(walk)] == [one.keeper.name]
    assert runs[1]["verdict"] == "passed" and [run["attempts"] for run in runs] == [1, 1]
    assert all(is_step_of(row["handle"], one) for row in walk.attempts())
    assert walk.verdicts() == 2


def test_a_submission_that_fills_its_memory(walk: Walk) -> None:
    """Slurm ends its step, and the keeper serves the next one. What the step was given counts, as for any job."""
    with holding(walk) as (_, (one,)):
        walk.stage.submit(HUNGRY, gpus=["H100"])
        (run,) = walk.wait_ended()
        assert (run["verdict"], run["attempts"]) == ("infrastructure", 1), (run, walk.attempts())
        assert "had given it 2048 MB where its problem needs" in run["verdict_reason"]
        walk.stage.submit(submission(GOOD), by="the next", gpus=["H100"])
        runs = walk.wait_ended(2)
    assert (runs[1]["verdict"], walk.verdicts()) == ("passed", 2)
    assert all(is_step_of(row["handle"], one) for row in walk.attempts())


def test_a_keeper_that_lies(walk: Walk) -> None:
    """It claims the run, says that it lives, and does nothing at all."""
    with holding(walk) as (_, (one,)):
        one.freeze()
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        name = JobName(walk.wait_attempt("submitted")["name"])
        folder, attempt = one.folder, Path(walk.site.paths.shared_root) / "attempts" / name
        (folder.dir / "mail" / name).rename(folder.dir / "taken" / name)
        (attempt / "claim").mkdir()
        (attempt / "claim" / "job").write_text(f"{one.job}.7\n")
        (attempt / "claim" / "owner.json").write_text(json.dumps({"job": f"{one.job}.7", "node": "h1"}))
        handed = AttemptPaths(root=attempt.parent, name=name).keeper
        told = json.loads(handed.read_text())
        handed.write_text(json.dumps({**told, "limit_s": 0}))  # its time is over
        walk.stage.wait_until(lambda: _lies(folder) and walk.stage.open_runs() == 0, patience_s=PATIENCE_S)
        first = went_cold(walk, one)
    assert first["ending"] == "no_report" and "said nothing of how it ended" in first["reason"]


def test_a_keeper_that_dies_with_a_mail_in_its_box(walk: Walk) -> None:
    """It is taken back: the run goes on as a job of its own, and nothing of it ever ran there."""
    with holding(walk) as (_, (one,)):
        one.freeze()
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        walk.wait_attempt("submitted")
        os.kill(one.script_pid(), signal.SIGKILL)
        walk.stage.wait_until(lambda: len(walk.attempts()) == 2, patience_s=PATIENCE_S)
        walk.is_well(attempts=2, claims=1)
    assert walk.attempts()[0]["ending"] == "withdrawn"


def test_of_two_daemons_one_leads_and_each_run_has_one_verdict(walk: Walk) -> None:
    with holding(walk) as (_, (one,)), walk.daemon():
        for number in range(3):
            walk.stage.submit(submission(GOOD), by=f"p{number}", gpus=["H100"])
            runs = walk.wait_ended(number + 1)
    assert [(run["verdict"], run["attempts"]) for run in runs] == [("passed", 1)] * 3
    assert (walk.verdicts(), walk.claims()) == (3, 3)
    assert len(list(keepers_folder(walk.site).glob("kbk-*"))) == 1
    assert all(is_step_of(row["handle"], one) for row in walk.attempts())


def _lies(folder: KeeperFolder) -> bool:
    """It says something new each time that it is looked at."""
    folder.beat.write_text(json.dumps({"beat": time.monotonic_ns(), "served": 0, "idle_s": 0, "busy": ""}))
    return True


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
