"""The contract with others on a cluster, kept by the daemon on a real Slurm: a keeper is started for work that history
says it will do and goes without it, and one that others wait for goes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from kbslurm.daemon.loop import Daemon
from kbslurm.domain.keepers import LOOK_EVERY_S, KeeperState
from kbslurm.domain.run import is_step
from tests.chaos import zygote_warm
from tests.cluster.inside import control
from tests.cluster.inside.walk import GOOD, PATIENCE_S, place_of, submission, walk_at
from tests.flow.stage import running

WARM = """
[gpus.H100.warm]
max = 1
idle = "10m"
life = "1h"
"""


SHORT = """
max_open = 2
[gpus.H100.warm]
max = 1
idle = "10s"
life = "20m"
"""
RUNS = 45


def test_a_keeper_is_started_for_a_backlog_that_history_knows_and_goes_when_it_is_done(database_url: str) -> None:
    """By nobody's hand, at the daemon's own pace."""
    folder = Path("/shared/warm-backlog")
    with walk_at(database_url, folder, runtime="none", more=SHORT, start="30s") as walk:
        zygote_warm.harness_at(folder / "harness", first="import time\ntime.sleep(2)\n")
        place, stage = replace(place_of(walk.site, folder / "harness")[0], poll_s=1.0, sweep_gap_s=25.0), walk.stage
        try:
            with running(Daemon(stage.store, [place], clock=stage.clock)):
                for number in range(3):
                    stage.submit("# passed\n", by=f"p{number}", gpus=["H100"])
                walk.wait_ended(3)
                assert stage.rows("SELECT id FROM keeper") == [], "three runs are no reason to hold a GPU"
                for number in range(RUNS):
                    stage.submit("# passed\n", by=f"p{number % 5}", gpus=["H100"])
                runs = walk.wait_ended(3 + RUNS)
                stage.wait_until(lambda: not stage.store.keepers.open(), patience_s=PATIENCE_S)
        finally:
            subprocess.run(["scancel", "--me"], check=False)
            control.settle()
        assert {run["verdict"] for run in runs} == {"passed"}
        first, *more = stage.rows("SELECT * FROM keeper ORDER BY id")
        assert (first["asked_by"], more) == (None, [])
        assert "enough work for 1 warm worker" in first["why"]
        assert first["ending"] == "idle", first
        assert sum(is_step(row["handle"]) for row in walk.attempts()) >= 5


def test_a_keeper_is_given_back_when_others_wait_and_none_follows(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/warm-policy"), more=WARM, start="30s") as walk:
        store, stage = walk.stage.store.keepers, walk.stage
        try:
            with walk.daemon():
                made = store.order(
                    "test", "H100", life_s=3600, idle_s=600, most=1, why="a test", now=stage.clock.now(), by="host"
                )
                assert made is not None
                stage.wait_until(
                    lambda: [one.state for one in store.open()] == [KeeperState.HOLDING], patience_s=PATIENCE_S
                )
                stage.submit(submission(GOOD), by="ada", gpus=["H100"])
                walk.wait_ended(1)
                for _ in range(2):  # the second waits: the keeper's node isn't free
                    words = "cd /tmp && exec sbatch --parsable -p gpu-h100 --mem=100M -o /dev/null --wrap 'sleep 600'"
                    whole = f"{words} --gres=gpu:h100:3 -N1 --exclusive"
                    control.as_root("runuser", "-u", "other", "--", "sh", "-c", whole)
                # Five minutes pass for the keeper; they do here, too, but for its row.
                past = f"started_at = started_at - interval '{LOOK_EVERY_S} s'"
                stage.rows(f"UPDATE keeper SET {past} WHERE id = %s RETURNING id", made.id)
                stage.wait_until(lambda: not store.open(), patience_s=PATIENCE_S)
                (row,) = stage.rows("SELECT * FROM keeper")
                assert (row["ending"], row["others"], row["drain_as"]) == ("gave_back", "yes", "gave_back"), row
                control.as_root("scancel", "-u", "other")
                stage.submit(submission(GOOD), by="bob", gpus=["H100"])
                walk.wait_ended(2)
                first, second = walk.attempts()
                assert is_step(first["handle"])
                assert not is_step(second["handle"])
                assert {run["verdict"] for run in stage.runs()} == {"passed"}
                assert len(stage.rows("SELECT id FROM keeper")) == 1
        finally:
            control.as_root("scancel", "-u", "other")
            subprocess.run(["scancel", "--me"], check=False)
            control.settle()
