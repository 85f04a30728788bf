"""What kbslurm adds to a harness on this machine: from accept to its start, and from its end to the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import AttemptId
from kbslurm.flow import render
from kbslurm.ports import JobSpec
from kbslurm.store import migrate
from kbslurm_eval.shared.wire import unseal
from tests import databases
from tests.bench import Row, percentile, scaled
from tests.chaos.zygote import INSTANT, place
from tests.flow.stage import Stage, running

RUNS = 40
AIM_S = 0.150


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="kbbench-") as folder, databases.server() as server:
        url = server.create()
        migrate.upgrade(url)
        with closing(Stage.build(url, clock=WallClock())) as stage:
            return _rows(stage, Path(folder))


def _rows(stage: Stage, folder: Path) -> list[Row]:
    ours_start, ours_end, hand_start, hand_end = [], [], [], []
    root = folder / "ours"
    root.mkdir()
    local = place(root, 1)
    with running(Daemon(stage.store, [local])):
        _walked(stage)  # the first one pays for connections and caches
        job = render.job(stage.store.attempts.work(_last_attempt(stage)), local)
        for n in range(scaled(RUNS, least=5)):
            started, ended = _walked(stage)
            ours_start.append(started)
            ours_end.append(ended)
            started, ended = _by_hand(replace(job, name=f"{job.name}{n}"), folder)  # type: ignore[arg-type]
            hand_start.append(started)
            hand_end.append(ended)
    return [
        _row(what, percent, ours, hand)
        for what, ours, hand in (
            ("accept → harness started", ours_start, hand_start),
            ("harness ended → verdict", ours_end, hand_end),
        )
        for percent in (50, 95)
    ]


def _row(what: str, percent: int, ours: list[float], hand: list[float]) -> Row:
    mine, bare = percentile(ours, percent), percentile(hand, percent)
    return Row(
        name=f"{what}, p{percent}, added",
        value=max(0.0, mine - bare),
        unit="s",
        against=f"{mine * 1000:.0f} ms, by hand {bare * 1000:.0f} ms",
        at_most=AIM_S if percent == 50 else None,
    )


def _walked(stage: Stage) -> tuple[float, float]:
    """One submission through kbslurm: seconds to the harness's start, and from its end to a verdict to be seen."""
    began = time.time_ns()
    receipt = stage.submit("# passed\n", mode="test")
    stage.wait_until(lambda: stage.open_runs(receipt.submission_id) == 0)
    seen = time.time_ns()
    (row,) = stage.rows("SELECT telemetry FROM attempt WHERE run_id = %s", receipt.run_ids[0])
    told = row["telemetry"]
    return (told["harness_started_at_ns"] - began) / 1e9, (seen - told["harness_ended_at_ns"]) / 1e9


def _last_attempt(stage: Stage) -> AttemptId:
    (row,) = stage.rows("SELECT max(id) AS id FROM attempt")
    return AttemptId(row["id"])


def _by_hand(job: JobSpec, folder: Path) -> tuple[float, float]:
    """The same harness on the same manifest, started by whoever sits there and waited for."""
    paths = AttemptPaths(root=folder, name=job.name)
    paths.create(manifest=job.manifest, key=job.key)
    argv = [sys.executable, "-I", str(INSTANT), str(paths.manifest), "--key", str(paths.key), "--out", str(paths.out)]
    began = time.time_ns()
    subprocess.run(argv, check=True, timeout=120, cwd=paths.scratch)
    seen = time.time_ns()
    report = unseal(paths.report.read_bytes(), job.key)
    assert json.loads(job.manifest)["token"] == report.token
    return (report.started_at_ns - began) / 1e9, (seen - report.ended_at_ns) / 1e9
