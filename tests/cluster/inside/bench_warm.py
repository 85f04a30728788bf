"""Runs in keepers, against jobs of their own and against a bare srun in an allocation that is held by hand."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbslurm.domain.keepers import KeeperState
from kbslurm_eval.shared.wire import unseal
from tests import databases
from tests.bench import Row, percentile, scaled
from tests.cluster.inside import bench
from tests.cluster.inside.bench import ByHand, ClusterService, Way, wait_until

ROUNDS, SHORT_RUNS, KEEPERS = 20, 300, 2
WARM = '[gpus.H100.warm]\nmax = {most}\nidle = "15m"\nlife = "1h"\n'
PART_S, SHORT_S = 0.1, 0.05


@contextmanager
def holding(our: ClusterService, count: int) -> Iterator[None]:
    """So many keepers of the service's that wait for work."""
    store = our.stage.store.keepers
    for _ in range(count):
        now = our.stage.clock.now()
        store.order("test", "H100", life_s=3600, idle_s=900, most=count, why="a bench", now=now, by="host")
    wait_until(lambda: [one.state for one in store.open()] == [KeeperState.HOLDING] * count)
    try:
        yield
    finally:
        for one in store.open():
            subprocess.run(["/usr/bin/scancel", "--quiet", str(one.handle)], check=False)


@contextmanager
def held_by_hand() -> Iterator[str]:
    """The ID of a job that holds a GPU and does nothing else."""
    options = [
        "-p",
        "gpu-h100",
        "--gres=gpu:h100:1",
        "--cpus-per-task=2",
        "--mem=2304M",
        "--time=60",
        "-o",
        "/dev/null",
    ]
    done = subprocess.run(
        ["/usr/bin/sbatch", "--parsable", *options, "-o/dev/null", "--wrap=sleep 3600"],
        capture_output=True,
        text=True,
        check=True,
    )
    job = done.stdout.strip()
    ask = ["/usr/bin/squeue", "-h", "-j", job, "-t", "R", "-o", "%i"]
    wait_until(lambda: bool(subprocess.run(ask, capture_output=True, text=True, check=True).stdout))
    try:
        yield job
    finally:
        subprocess.run(["/usr/bin/scancel", "--quiet", job], check=False)


def warm(server: databases.Server) -> list[Row]:
    """The three ways in turns, then throughput."""
    with (
        bench.service(server, min_interval_s=15.0, more=WARM.format(most=1)) as our,
        bench.service(server, min_interval_s=15.0) as cold,
        our.daemon(),
        cold.daemon(),
        holding(our, 1),
        held_by_hand() as job,
    ):
        bench.walked(our)  # the first ones pay for connections, caches, the staged harness and the image's digest
        bench.walked(cold)
        by_hand = ByHand.like(cold)
        _stepped(by_hand, job, "first")
        ours, theirs, bare, verdicts = [], [], [], []
        before, rounds = our.calls().total(), scaled(ROUNDS, least=5)
        for n in range(rounds):
            _pause(n / rounds)
            ours.append(bench.walked(our))
            _pause(n / rounds)
            bare.append(_stepped(by_hand, job, str(n)))
            _pause(n / rounds)
            theirs.append(bench.walked(cold))
            _pause(n / rounds)
            verdicts.append(_to_verdict(our))
        calls = our.calls().total() - before
        steps = [row["handle"] for row in our.stage.rows("SELECT handle FROM attempt")]
        assert all("." in step for step in steps), steps
    first = [way.harness_s for way in ours]
    added = percentile(first, 50) - percentile([way.harness_s for way in bare], 50)
    mine, other = bench.medians(ours), bench.medians(theirs)
    return [
        Row(
            name=f"warm: accept → first line of the harness, p50 of {len(first)}",
            value=percentile(first, 50),
            unit="s",
            against=f"a job of its own {other.harness_s:.3f} s",
            at_most=1.0,
        ),
        Row(
            name="… p95",
            value=percentile(first, 95),
            unit="s",
            against=f"a job of its own {percentile([way.harness_s for way in theirs], 95):.3f} s",
            at_most=2.5,
        ),
        Row(
            name="… how much sooner than a job of its own, p50",
            value=other.harness_s,
            unit="s",
            ratio=other.harness_s / mine.harness_s,
        ),
        Row(
            name="… added to a bare srun --exact of the same container, p50",
            value=added,
            unit="s",
            against=f"the bare one {percentile([way.harness_s for way in bare], 50):.3f} s",
            at_most=0.25,
        ),
        *(
            Row(name=f"… {what}", value=here, unit="s")
            for what, here in (
                ("until it is handed over", mine.called_s),
                ("until its script runs in a step", mine.script_s - mine.called_s),
                ("script and container", mine.harness_s - mine.script_s),
            )
        ),
        Row(
            name="warm: accept → verdict of a test of one second, p50",
            value=percentile(verdicts, 50),
            unit="s",
            at_most=3.0,
        ),
        Row(name="warm: scheduler calls per run", value=calls / (2 * rounds), unit="calls", at_most=0.0),
        *_throughput(server),
    ]


def _pause(phase: float) -> None:
    """Go at this fraction of a second, so that chance doesn't decide who waits for whose look."""
    threading.Event().wait(0.2 + (phase - time.time()) % 1.0)


def _to_verdict(our: ClusterService) -> float:
    began = time.monotonic()
    our.wait_over(our.stage.submit("# 1\n", mode="test", gpus=["H100"]).submission_id)
    return time.monotonic() - began


def _stepped(by_hand: ByHand, job: str, name: str) -> Way:
    """The same container as a step by hand."""
    folder = by_hand.service.folder / f"step-{name}"
    gpu = by_hand.service.site.gpus["H100"]
    began_ns = time.time_ns()
    by_hand.furnish(folder)
    script = f"date +%s%N >{folder}/script-0; exec {by_hand.container(gpu, folder, '/kb/out')}"
    options = ["--exact", "--immediate=10", "-N1", "-n1", "--cpus-per-task=2", "--mem=2048M", "--gres=gpu:h100:1"]
    subprocess.run(
        ["/usr/bin/srun", f"--jobid={job}", *options, f"--output={folder}/log", "/bin/sh", "-c", script],
        check=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    report = unseal((folder / "out" / "report.json").read_bytes(), by_hand.key)
    return Way(
        called_s=0.0,
        sent_s=0.0,
        script_s=(int((folder / "script-0").read_text()) - began_ns) / 1e9,
        harness_s=(report.started_at_ns - began_ns) / 1e9,
    )


def _throughput(server: databases.Server) -> list[Row]:
    """Short runs, all submitted at once, on so many keepers; against one array on as many GPUs."""
    count = scaled(SHORT_RUNS, least=30)
    warm_ones = WARM.format(most=KEEPERS)
    with bench.service(server, min_interval_s=15.0, more=warm_ones, max_open=KEEPERS + 1) as our:
        with our.daemon(), holding(our, KEEPERS):
            bench.walked(our)
            by_hand = ByHand.like(our)
            for n in range(count):
                our.stage.submit(f"# {SHORT_S}\n", by=f"p{n % 20}", mode="test", gpus=["H100"])
            began = time.monotonic()
            our.wait_over()
            mine_s = time.monotonic() - began
            warm_runs = sum("." in row["handle"] for row in our.stage.rows("SELECT handle FROM attempt")) - 1
        short = by_hand.manifest.replace(b"# 0.1\\n", f"# {SHORT_S}\\n".encode())
        array_s = _as_array(dataclasses.replace(by_hand, manifest=short), count)
    return [
        Row(
            name=f"warm: {count} runs of {SHORT_S} s on {KEEPERS} keepers, runs per second",
            value=count / mine_s,
            unit="/s",
            against=f"one array on {KEEPERS} GPUs {count / array_s:.2f} /s ({warm_runs} of the runs were warm)",
            ratio=array_s / mine_s,  # twice as many was hoped for and isn't promised
        )
    ]


def _as_array(by_hand: ByHand, count: int) -> float:
    folder = by_hand.service.folder / "short-array"
    began = time.monotonic()
    where = ("--partition=gpu-h100", "--gres=gpu:h100:1", f"--array=0-{count - 1}%{KEEPERS}")
    by_hand.send(folder, *where, out="/kb/out/$SLURM_ARRAY_TASK_ID")
    reports = [Path(folder / "out" / str(n) / "report.json") for n in range(count)]
    wait_until(lambda: all(file.exists() for file in reversed(reports)))
    return time.monotonic() - began
